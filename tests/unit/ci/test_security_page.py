"""docs/security.md promises nothing that no test shows."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_row_of_the_security_page_names_tests_that_are_there():
    lines = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
    promises, names_tests = [], False
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("| "):
            cells = line.strip("| ").split(" | ")
            if not before.startswith("|"):  # the head of a table
                names_tests = cells[-1] == "test"
            elif names_tests:
                promises.append(cells)
    assert len(promises) > 15
    for promise, *_, tests in promises:
        named = [ROOT / name.strip() for name in tests.split(",")]
        assert all(path.exists() and path.is_relative_to(ROOT / "tests") for path in named), promise
