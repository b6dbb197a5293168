"""Where a fault happens, and damage that fits any file."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.campaign.readers import Reading, Verdict
from tests.faults.campaign.tiny_sweep import TinySweep
from tests.support import damage

NOT_READ = ("lock", ".lock", "stdout.log")
Found = tuple[Verdict, str]


@dataclass(frozen=True)
class Place:
    """Where one fault happens: a sweep to copy, a folder of its own, a generator of its own."""

    sweep: TinySweep
    truth: Reading
    folder: Path
    chance: random.Random

    @property
    def top(self) -> Path:
        """The folder of everything that is made once."""
        return self.sweep.top


def records(folder: Path) -> list[Path]:
    """The files that somebody reads."""
    return [path for path in sorted(folder.rglob("*")) if is_record(path)]


def is_record(path: Path) -> bool:
    """Whether somebody reads it."""
    return path.is_file() and not path.is_symlink() and path.name not in NOT_READ and path.stat().st_size > 0


def damage_one(chance: random.Random, paths: Iterable[Path]) -> str:
    """Damage one file in one way; every file is as likely, whatever its size."""
    path = chance.choice(list(paths))
    size = path.stat().st_size
    how = chance.choice(("bit", "bit", "bit", "cut", "zeros", "line", "lost"))
    place = chance.randrange(size)
    if how == "bit":
        damage.flip_a_bit(path, place, chance.randrange(8))
    elif how == "cut":
        damage.cut(path, place)
    elif how == "zeros":
        damage.zero(path, place, chance.choice((1, 16, 512, 4096)))
    elif how == "line":
        lines = path.read_bytes().count(b"\n")
        damage.keep_lines(path, chance.randrange(lines + 1))
    else:
        path.unlink()
    return f"{how} at {place} of {size} in {path}"
