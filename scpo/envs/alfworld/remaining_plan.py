"""How many steps a game is from won: the symbolic state after some actions, and a shortest plan from it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from scpo.bounded import Bounded
from scpo.envs.alfworld.engine.engine import Engine
from scpo.envs.alfworld.engine.graph import Key
from scpo.envs.alfworld.planning.pddl import read_problem
from scpo.envs.alfworld.planning.planner import Planner
from scpo.envs.alfworld.planning.translation import make_task

_STATES = 16384  # lengths remembered, below 1 kB each: most of a rollout's states are a sibling's too
_GAMES = 64  # planners kept, below 1 MB each; a new one takes the 0.01 to 0.2 s of grounding its game
_MAX_STATES = 1000  # thirty-step random walks in 24 games needed fewer than 300


class Plans:
    """Remaining plans in the games of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._planner = functools.lru_cache(_GAMES)(self._new_planner)
        self._lengths: Bounded[tuple[str, Key], tuple[int | None]] = Bounded(_STATES)

    def remaining(self, game_id: str, actions: Sequence[str]) -> int | None:
        """Steps of a shortest plan after these actions from the start; None if none was found."""
        opened = self._engine.open(game_id)
        state = opened.start
        for action in actions:
            state, _ = self._engine.step(opened, state, action)
        known = self._lengths.get((game_id, state.key))
        if known is None:
            known = (self._planner(game_id).length(opened.world.atoms(state), _MAX_STATES),)
            self._lengths.put((game_id, state.key), known)
        return known[0]

    def _new_planner(self, game_id: str) -> Planner:
        game = self._engine.game(game_id)
        problem = read_problem(game.domain, game.problem)
        return Planner(make_task(problem), {name for name, kind in problem.objects.items() if kind == "object"})
