"""The official games, as ``alfworld-download`` unpacks them under ``$ALFWORLD_DATA``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scpo.envs.alfworld.games.game import SPLITS, Game
from scpo.errors import GameError
from scpo.schema import FAMILIES

_FIX = "run alfworld-download and set ALFWORLD_DATA to its folder, or use generated games (env.games=generated)"
_TEXTS = ("pddl_domain", "pddl_problem", "grammar")


class OfficialGames:
    """Game files ``<folder>/json_2.1.1/<split>/<family>-<object>-...-<room>/<trial>/game.tw-pddl``.

    Raises:
        GameError: No folder was given, or it holds no games.
    """

    def __init__(self, folder: str | None) -> None:
        if folder is None:
            raise GameError(f"official ALFWorld games were asked for but ALFWORLD_DATA is not set; {_FIX}")
        self._root = Path(folder) / "json_2.1.1"
        if not self._root.is_dir():
            raise GameError(f"no ALFWorld games at {self._root}: the folder does not exist; {_FIX}")

    def ids(self, split: str) -> dict[str, Sequence[str]]:
        """Sorted ids (paths below the root without the file name) of the split's games, by family.

        Raises:
            GameError: The split has no folder or no game file in it.
        """
        if not (self._root / split).is_dir():
            raise GameError(f"no ALFWorld games at {self._root / split}; splits are {', '.join(SPLITS)}; {_FIX}")
        found: dict[str, list[str]] = {family: [] for family in FAMILIES.values()}
        for path in sorted((self._root / split).glob("*/*/game.tw-pddl")):
            folder = path.parent.parent.name
            family = folder.split("-", 1)[0]
            # ALFWorld plays neither movable receptacles nor sliced objects, though the release holds such games.
            if family in found and "Sliced" not in folder:
                found[family].append(path.parent.relative_to(self._root).as_posix())
        if not any(found.values()):
            raise GameError(f"{self._root / split} holds no file <game>/<trial>/game.tw-pddl; {_FIX}")
        return dict(found)

    def playable(self, game_id: str) -> bool:
        """Whether the file says that the game is solvable."""
        return bool(self._load(game_id)[1].get("solvable"))

    def read(self, game_id: str) -> Game:
        """Read one game file.

        Raises:
            GameError: The file is missing, is not JSON, or lacks a part.
        """
        content, data = self._load(game_id)
        walkthrough = data.get("walkthrough") or []
        missing = [key for key in _TEXTS if not isinstance(data.get(key), str)]
        if missing or not all(isinstance(command, str) for command in walkthrough):
            wrong = ", ".join(missing) or "walkthrough"
            raise GameError(f"game file {self._path(game_id)} has no usable {wrong}; download it again")
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
        path = self._path(game_id)
        try:
            content = path.read_bytes()
            data = json.loads(content)
        except OSError as error:
            raise GameError(f"cannot read game file {path}: {error.strerror}; {_FIX}") from error
        except ValueError as error:
            raise GameError(
                f"game file {path} is not JSON ({error}); it is corrupt, download it again (alfworld-download)"
            ) from error
        if not isinstance(data, dict):
            raise GameError(f"game file {path} holds a {type(data).__name__}, not a game; download it again")
        return content, data
