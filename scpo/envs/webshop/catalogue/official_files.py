"""List the official WebShop files, where to get them, and check a folder. Never downloads.

python -m scpo.envs.webshop [folder]              check a folder (default: WEBSHOP_DATA)
python -m scpo.envs.webshop <folder> --generate   write the generated catalogue in the same format
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scpo.envs.webshop.catalogue.catalogue import FULL, HUMAN, SMALL, Catalogue, load_catalogue
from scpo.envs.webshop.catalogue.generated_catalogue import generate
from scpo.envs.webshop.catalogue.goals import goal_order
from scpo.errors import CatalogueError

_DRIVE = "https://drive.google.com/uc?id="

# Hash of what the engine reads of the 1,000 products; a hash of the file would also depend on the
# columns that it does not read.
SMALL_CONTENT = "91ea10a438bee2620b24fd7f730a9ded8e4902af35763ca3802f0c4a9de465f8"


@dataclass(frozen=True)
class OfficialFile:
    """File of the release.

    Attributes:
        name: Its name, which the loader looks for.
        drive_id: Its id at Google Drive, as in the original's setup.sh.
        purpose: What it is needed for.
        sha256: Hash of the whole file; None if it is unknown.
    """

    name: str
    drive_id: str
    purpose: str
    sha256: str | None = None

    @property
    def url(self) -> str:
        return _DRIVE + self.drive_id


OFFICIAL = (
    OfficialFile(
        SMALL[0],
        "1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
        "1,000 products: what verl-agent's script uses",
    ),
    OfficialFile(
        SMALL[1],
        "1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
        "their attributes and synthetic instructions",
        "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
    ),
    OfficialFile(FULL[0], "1A2whVgOO0euk5O13n2iYDM0bQRkkRduB", "all products (1.18 million)"),
    OfficialFile(
        FULL[1], "1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi", "their attributes and synthetic instructions"
    ),
    OfficialFile(
        HUMAN, "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O", "human instructions, only for env.goals=human"
    ),
)


def survey(folder: Path) -> list[tuple[OfficialFile, str]]:
    """State of each official file: "missing", "ok", "there" (no known checksum) or an error."""
    return [(file, _state(file, folder / file.name)) for file in OFFICIAL]


def _state(file: OfficialFile, path: Path) -> str:
    """State of one file, see ``survey``."""
    if not path.exists():
        return "missing"
    # Without a known hash, only the presence of the file is checked.
    if file.sha256 is None:
        return "there"
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest == file.sha256:
        return "ok"
    return f"differs from the official file: sha256 {digest}, not {file.sha256}"


def content_sha256(catalogue: Catalogue) -> str:
    """Hash of everything that the engine reads of the products."""
    return hashlib.sha256("\n".join(map(repr, catalogue.products)).encode()).hexdigest()


def write_generated(folder: Path, seed: int, products: int) -> None:
    """Write the generated catalogue as an items file and an attribute file.

    Tools that read the official format can then read it.

    Raises:
        CatalogueError: One of the files exists; it may be the official one.
    """
    for path in (folder / name for name in SMALL):
        if path.exists():
            raise CatalogueError(
                f"{path} is there already and is not overwritten; name another folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip(SMALL, generate(seed, products), strict=True):
        (folder / name).write_text(
            json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8"
        )


def report(folder: Path | None) -> str:
    """Text for a terminal: each file's state, purpose and address, and whether the folder loads."""
    lines = []
    states = survey(folder) if folder else [(file, "") for file in OFFICIAL]
    for file, state in states:
        lines += [f"{file.name}  {state}".rstrip(), f"    {file.purpose}", f"    {file.url}"]
    lines += [
        "Download them with a browser or with gdown into one folder and set WEBSHOP_DATA to it.",
        "",
    ]
    if folder:
        lines.append(_loaded(folder))
    return "\n".join(lines)


def _loaded(folder: Path) -> str:
    """Load the catalogue and describe it, or explain why it cannot be used."""
    try:
        catalogue = load_catalogue(folder)
    except CatalogueError as error:
        return f"{folder} cannot be used: {error}"
    known = "not that of a known catalogue"
    if content_sha256(catalogue) == SMALL_CONTENT:
        known = "the official 1,000 products"
    goals = len(goal_order(catalogue, 0, False))
    return (
        f"{folder} can be used: {len(catalogue)} products, {goals} synthetic goals; their "
        f"content is {known}."
    )


def main(words: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m scpo.envs.webshop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder", nargs="?", default=os.environ.get("WEBSHOP_DATA"), help="default: WEBSHOP_DATA"
    )
    parser.add_argument(
        "--generate", action="store_true", help="write the generated catalogue into the folder"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the generated catalogue (default: 0)"
    )
    parser.add_argument(
        "--products", type=int, default=1000, help="its number of products (default: 1000)"
    )
    arguments = parser.parse_args(words)
    folder = Path(arguments.folder) if arguments.folder else None
    if arguments.generate:
        if folder is None:
            parser.error("--generate needs a folder")
        write_generated(folder, arguments.seed, arguments.products)
    sys.stdout.write(report(folder) + "\n")
    return 0
