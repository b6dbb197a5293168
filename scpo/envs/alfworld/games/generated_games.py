"""Generated games on the real rooms: the offline default, a pure function of (split, seed, index)."""

from __future__ import annotations

import functools
import hashlib
import json
import random
import re
from collections.abc import Sequence

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.games.game import Game
from scpo.envs.alfworld.games.problem import pddl, sentence, walkthrough
from scpo.envs.alfworld.games.scenario import sample
from scpo.errors import GameError
from scpo.schema import FAMILIES
from scpo.schema.env import GeneratedGames as Sizes

_ID = re.compile(r"(?P<split>train|valid_seen|valid_unseen)/generated-(?P<seed>\d+)/(?P<index>\d{6})-(?P<family>\w+)")
_FAMILIES = tuple(FAMILIES.values())


class GeneratedGames:
    """Games made on demand; game ``index`` of a split is of family ``index mod 6``.

    Games of ``valid_unseen`` lie in ALFRED's test rooms, the others in its training rooms.
    """

    def __init__(self, sizes: Sizes) -> None:
        self._seed = sizes.seed
        self._sizes = {"train": sizes.train, "valid_seen": sizes.valid_seen, "valid_unseen": sizes.valid_unseen}

    def ids(self, split: str) -> dict[str, Sequence[str]]:
        """Ids of the split's games by family."""
        step = len(_FAMILIES)
        return {
            family: [f"{split}/generated-{self._seed}/{i:06d}-{family}" for i in range(first, self._sizes[split], step)]
            for first, family in enumerate(_FAMILIES)
        }

    def playable(self, game_id: str) -> bool:
        """Every generated game has its walkthrough."""
        return _ID.fullmatch(game_id) is not None

    def read(self, game_id: str) -> Game:
        """Make the game; about 5 ms.

        Raises:
            GameError: The id is not that of a generated game.
        """
        parts = _ID.fullmatch(game_id)
        if parts is None or _FAMILIES[int(parts["index"]) % len(_FAMILIES)] != parts["family"]:
            raise GameError(
                f"{game_id!r} is no generated game; ids look like train/generated-0/000000-{_FAMILIES[0]}, "
                "their family given by the index modulo 6"
            )
        return generate(parts["split"], int(parts["seed"]), int(parts["index"]))


@functools.lru_cache(maxsize=1024)
def generate(split: str, seed: int, index: int) -> Game:
    """The game of these three numbers, the same in every process and on every platform."""
    constants = assets().constants
    family = _FAMILIES[index % len(_FAMILIES)]
    rng = random.Random(f"alfworld {split} {seed} {index}")
    rooms = constants.TEST_SCENE_NUMBERS if split == "valid_unseen" else constants.TRAIN_SCENE_NUMBERS
    scenario = sample(family, rooms, rng)
    grammar = assets().grammar.replace("UNKNOWN GOAL", sentence(scenario, rng))
    problem = pddl(scenario, f"generated_{split}_{seed}_{index}")
    commands = walkthrough(scenario)
    content = {"pddl_domain": assets().domain, "pddl_problem": problem, "grammar": grammar, "walkthrough": commands}
    return Game(
        id=f"{split}/generated-{seed}/{index:06d}-{family}",
        family=family,
        sha256=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        domain=assets().domain,
        problem=problem,
        grammar=grammar,
        walkthrough=tuple(commands),
    )
