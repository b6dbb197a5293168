"""Hooks of mkdocs.yml that add pages outside docs/ to the site and redirect links to them."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
BESIDE = {
    "REPRODUCTION.md": "reproduction.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
FOLDER = re.compile(
    r"\[([^\]]*)\]\([^):]*/\)"
)  # a link to a folder of the repository: the site has no page for it


def on_files(files, config):
    """Add the pages; in them, links into docs/ are relative links."""
    for name, page in BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead links to the pages to where they are on the site."""
    markdown = FOLDER.sub(r"\1", markdown)
    for name, there in BESIDE.items():
        markdown = markdown.replace(f"](../../{name}", f"](../{there}")  # pages of docs/study/
        markdown = markdown.replace(f"](../{name}", f"]({there}").replace(f"]({name}", f"]({there}")
    return markdown
