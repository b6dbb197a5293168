"""docs/index.md lists every page of the site."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
INDEX = ROOT / "docs" / "index.md"


def test_every_page_has_one_line_in_the_index():
    lines = [line for line in INDEX.read_text(encoding="utf-8").splitlines() if line.startswith("| [")]
    links = [re.findall(r"\]\(([^)]+)\)", line) for line in lines]
    assert all(len(found) == 1 for found in links), links
    listed = [(INDEX.parent / found[0]).resolve() for found in links]
    pages = {path for kind in ("md", "ipynb") for path in INDEX.parent.rglob(f"*.{kind}")} - {INDEX}
    pages |= {ROOT / name for name in ("REPRODUCTION.md", "CONTRIBUTING.md", "CHANGELOG.md")}
    assert sorted(listed) == sorted(pages)
