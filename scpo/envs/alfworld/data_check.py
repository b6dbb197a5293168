"""Checks of ALFWorld's data on this machine, before a run is started."""

from collections.abc import Iterator
from pathlib import Path

from scpo.findings import Finding, error, ok, warning
from scpo.schema.env import AlfworldConfig

# Number of games in the official release, by split.
OFFICIAL_GAMES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
DOWNLOAD = "alfworld-download, then ALFWORLD_DATA=<its folder>; or env.games=generated"


def check_data(config: AlfworldConfig, folder: str | None) -> Iterator[Finding]:
    """Check that the games exist.

    Args:
        config: The environment's configuration.
        folder: Folder of the official games (``ALFWORLD_DATA``); None if it is not set.
    """
    if config.games == "generated":
        yield ok(
            "games", "generated on the rooms of the alfworld package; --deep hashes the panels"
        )
        return

    root = Path(folder or "") / "json_2.1.1"
    if folder is None or not root.is_dir():
        message = (
            f"no official games at {root}"
            if folder
            else "env.games=official, but ALFWORLD_DATA is not set"
        )
        yield error("games", message, DOWNLOAD)
        return

    # Files are counted, not read; `--deep` reads and hashes those of the panels.
    counts = {
        split: sum(1 for _ in (root / split).glob("*/*/game.tw-pddl")) for split in OFFICIAL_GAMES
    }
    text = ", ".join(f"{count} {split}" for split, count in counts.items())
    if not all(counts.values()):
        yield error("games", f"{root} has {text}", DOWNLOAD)
    # A warning only: panels are drawn from the games found, and a panel's hash identifies them.
    elif any(counts[split] < count for split, count in OFFICIAL_GAMES.items()):
        expected = ", ".join(f"{count} {split}" for split, count in OFFICIAL_GAMES.items())
        yield warning(
            "games", f"{root} has {text}; the release has {expected}", "alfworld-download --force"
        )
    else:
        yield ok("games", f"{root}: {text}; --deep hashes the panels")
