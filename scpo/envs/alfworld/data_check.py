"""Checks of ALFWorld's data on this machine, before a run is started."""

from collections.abc import Iterator
from pathlib import Path

from scpo.findings import Finding, error, ok, warning
from scpo.schema.env import AlfworldConfig

# Numbers of games in the release, by split.
OFFICIAL_GAMES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
DOWNLOAD = "alfworld-download, then ALFWORLD_DATA=<its folder>; or env.games=generated"


def check_data(config: AlfworldConfig, folder: str | None) -> Iterator[Finding]:
    """Check that the games exist; ``folder`` is the folder of the official ones."""
    if config.games == "generated":
        yield ok(
            "games", "generated on the rooms of the alfworld package; --deep hashes the panels"
        )
        return

    root = Path(folder or "") / "json_2.1.1"
    if folder is None or not root.is_dir():
        what = (
            f"no official games at {root}"
            if folder
            else "official games, and ALFWORLD_DATA is not set"
        )
        yield error("games", what, DOWNLOAD)
        return

    # Files are counted, not read; `--deep` reads and hashes those of the panels.
    counts = {
        split: sum(1 for _ in (root / split).glob("*/*/game.tw-pddl")) for split in OFFICIAL_GAMES
    }
    text = ", ".join(f"{count} {split}" for split, count in counts.items())
    if not all(counts.values()):
        yield error("games", f"{root} has {text}", DOWNLOAD)
    # No error: panels are drawn from what is there, and their hashes tell results apart.
    elif any(counts[split] < count for split, count in OFFICIAL_GAMES.items()):
        expected = ", ".join(f"{count} {split}" for split, count in OFFICIAL_GAMES.items())
        yield warning(
            "games", f"{root} has {text}; the release has {expected}", "alfworld-download --force"
        )
    else:
        yield ok("games", f"{root}: {text}; --deep hashes the panels")
