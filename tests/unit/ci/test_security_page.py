"""docs/security.md promises nothing that no test shows."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_row_of_the_security_page_names_tests_that_are_there():
    lines = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    promises = [row for row in rows if row[-1] != "test"]
    assert len(promises) > 15
    for promise, *_, tests in promises:
        named = [ROOT / name.strip() for name in tests.split(",")]
        assert all(path.exists() and path.is_relative_to(ROOT / "tests") for path in named), promise
