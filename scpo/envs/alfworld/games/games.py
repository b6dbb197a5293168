"""Games and their sources: generated on the ALFRED rooms, or the official files.

Generated games are the offline default and a pure function of (split, seed, index). Official games
are read from the folder that ``alfworld-download`` fills.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.games.scenario import pddl, sample, sentence, walkthrough
from scpo.errors import GameError
from scpo.schema.env import FAMILIES
from scpo.schema.env import GeneratedGames as Sizes

SPLITS = ("train", "valid_seen", "valid_unseen")


@dataclass(frozen=True)
class Game:
    """The content of one game.

    Attributes:
        id: Stable name, ``<split>/...``, the same on every machine.
        family: One of the values of ``scpo.schema.env.FAMILIES``.
        sha256: Hash of the content.
        domain: PDDL domain.
        problem: PDDL problem.
        grammar: Text grammar, the task's sentence included.
        walkthrough: Commands that win the game.
    """

    id: str
    family: str
    sha256: str
    domain: str
    problem: str
    grammar: str
    walkthrough: tuple[str, ...]


class GameSource(Protocol):
    """A place that games are read from, one by one."""

    def ids(self, split: str) -> dict[str, Sequence[str]]:
        """Sorted ids of a split's games by family; some may turn out not to be playable."""

    def playable(self, game_id: str) -> bool:
        """Return True if the game is known to be solvable."""

    def read(self, game_id: str) -> Game:
        """Read the game's content.

        Raises:
            GameError: The game does not exist or cannot be read.
        """


_ID = re.compile(
    r"(?P<split>train|valid_seen|valid_unseen)/"
    r"generated-(?P<seed>\d+)/(?P<index>\d{6})-(?P<family>\w+)"
)
_FAMILIES = tuple(FAMILIES.values())


class GeneratedGames:
    """Games made on demand; game ``index`` of a split is of family ``index mod 6``.

    Games of ``valid_unseen`` are in ALFRED's test rooms, the others in its training rooms.
    """

    def __init__(self, sizes: Sizes) -> None:
        self._seed = sizes.seed
        self._sizes = {
            "train": sizes.train,
            "valid_seen": sizes.valid_seen,
            "valid_unseen": sizes.valid_unseen,
        }

    def ids(self, split: str) -> dict[str, Sequence[str]]:
        """Ids of the split's games by family."""
        step = len(_FAMILIES)
        found: dict[str, Sequence[str]] = {}
        for first, family in enumerate(_FAMILIES):
            indices = range(first, self._sizes[split], step)
            found[family] = [_generated_id(split, self._seed, index) for index in indices]
        return found

    def playable(self, game_id: str) -> bool:
        """Return True if the id is that of a generated game: each has a walkthrough."""
        return _ID.fullmatch(game_id) is not None

    def read(self, game_id: str) -> Game:
        """Make the game; about 5 ms.

        Raises:
            GameError: The id is not that of a generated game.
        """
        parts = _ID.fullmatch(game_id)
        # The index determines the family, which the id only repeats for its readers.
        if parts is None or _FAMILIES[int(parts["index"]) % len(_FAMILIES)] != parts["family"]:
            raise GameError(
                f"{game_id!r} is not a generated game; ids look like "
                f"train/generated-0/000000-{_FAMILIES[0]}, their family given by the index modulo 6"
            )
        return generate(parts["split"], int(parts["seed"]), int(parts["index"]))


def _generated_id(split: str, seed: int, index: int) -> str:
    return f"{split}/generated-{seed}/{index:06d}-{_FAMILIES[index % len(_FAMILIES)]}"


@functools.lru_cache(maxsize=1024)
def generate(split: str, seed: int, index: int) -> Game:
    """The game of these three numbers, the same in every process and on every platform."""
    constants = assets().constants
    family = _FAMILIES[index % len(_FAMILIES)]
    # A string gives the same seed in every process; the hash of a tuple would not.
    rng = random.Random(f"alfworld {split} {seed} {index}")
    rooms = constants.TRAIN_SCENE_NUMBERS
    if split == "valid_unseen":
        rooms = constants.TEST_SCENE_NUMBERS
    scenario = sample(family, rooms, rng)
    grammar = assets().grammar.replace("UNKNOWN GOAL", sentence(scenario, rng))
    problem = pddl(scenario, f"generated_{split}_{seed}_{index}")
    # Part of the hashed content, because demonstrations follow it.
    commands = walkthrough(scenario)
    content = {
        "pddl_domain": assets().domain,
        "pddl_problem": problem,
        "grammar": grammar,
        "walkthrough": commands,
    }
    return Game(
        id=_generated_id(split, seed, index),
        family=family,
        sha256=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        domain=assets().domain,
        problem=problem,
        grammar=grammar,
        walkthrough=tuple(commands),
    )


_FIX = (
    "run alfworld-download and set ALFWORLD_DATA to its folder, or use generated games "
    "(env.games=generated)"
)
_TEXTS = ("pddl_domain", "pddl_problem", "grammar")


class OfficialGames:
    """Game files ``<folder>/json_2.1.1/<split>/<family>-<object>-...-<room>/<trial>/game.tw-pddl``.

    Nothing is read before a game is asked for: the release has thousands of files.

    Raises:
        GameError: No folder was given, or it holds no games.
    """

    def __init__(self, folder: str | None) -> None:
        if folder is None:
            raise GameError(
                f"official ALFWorld games were asked for but ALFWORLD_DATA is not set; {_FIX}"
            )
        self._root = Path(folder) / "json_2.1.1"
        if not self._root.is_dir():
            raise GameError(f"no ALFWorld games at {self._root}: the folder does not exist; {_FIX}")

    def ids(self, split: str) -> dict[str, Sequence[str]]:
        """Sorted ids (paths below the root without the file name) of the split's games, by family.

        Raises:
            GameError: The split has no folder or no game file in it.
        """
        if not (self._root / split).is_dir():
            raise GameError(
                f"no ALFWorld games at {self._root / split}; splits are {', '.join(SPLITS)}; {_FIX}"
            )

        found: dict[str, list[str]] = {family: [] for family in FAMILIES.values()}
        for path in sorted((self._root / split).glob("*/*/game.tw-pddl")):
            folder = path.parent.parent.name
            family = folder.split("-", 1)[0]
            # ALFWorld plays neither movable receptacles nor sliced objects, though the release
            # holds such games.
            if family in found and "Sliced" not in folder:
                found[family].append(path.parent.relative_to(self._root).as_posix())

        if not any(found.values()):
            raise GameError(
                f"{self._root / split} holds no file <game>/<trial>/game.tw-pddl; {_FIX}"
            )

        return dict(found)

    def playable(self, game_id: str) -> bool:
        """Return True if the game's file marks it as solvable."""
        _, data = self._load(game_id)
        return bool(data.get("solvable"))

    def read(self, game_id: str) -> Game:
        """Read one game file.

        Raises:
            GameError: The file is missing, is not JSON, or lacks a part.
        """
        content, data = self._load(game_id)
        # Optional: only demonstrations need it.
        walkthrough = data.get("walkthrough") or []
        missing = [key for key in _TEXTS if not isinstance(data.get(key), str)]
        if missing or not all(isinstance(command, str) for command in walkthrough):
            wrong = ", ".join(missing) or "walkthrough"
            raise GameError(
                f"game file {self._path(game_id)} has no usable {wrong}; download it again"
            )

        return Game(
            id=game_id,
            family=game_id.split("/")[1].split("-", 1)[0],
            sha256=hashlib.sha256(content).hexdigest(),
            domain=data["pddl_domain"],
            problem=data["pddl_problem"],
            grammar=data["grammar"],
            walkthrough=tuple(walkthrough),
        )

    def _path(self, game_id: str) -> Path:
        return self._root / game_id / "game.tw-pddl"

    def _load(self, game_id: str) -> tuple[bytes, dict[str, Any]]:
        """Bytes of a game file, which its hash is taken of, and their parsed content.

        Raises:
            GameError: The file is missing or is not a JSON object; the message names the remedy.
        """
        path = self._path(game_id)
        try:
            content = path.read_bytes()
            data = json.loads(content)
        except OSError as error:
            raise GameError(f"cannot read game file {path}: {error.strerror}; {_FIX}") from error
        except ValueError as error:
            raise GameError(
                f"game file {path} is not JSON ({error}); it is corrupt, download it again "
                "(alfworld-download)"
            ) from error

        if not isinstance(data, dict):
            raise GameError(
                f"game file {path} holds a {type(data).__name__}, not a game; download it again"
            )

        return content, data
