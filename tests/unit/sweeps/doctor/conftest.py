import pytest

from sweeps.doctor.subject import read_subject


@pytest.fixture
def subject(tmp_path):
    """Reads a subject whose run folders would lie in a folder of the test's own."""

    def read(*words):
        return read_subject([f"machine.runs_dir={tmp_path / 'runs'}", *words])

    return read
