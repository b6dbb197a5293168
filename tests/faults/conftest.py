import pytest


@pytest.fixture
def threads():
    """The trainer sets the threads of its process, which for a test that trains in its own is that of all tests."""
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
