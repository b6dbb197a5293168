"""Demonstrations for the warm start of a small policy: walkthroughs with exploratory detours.

A walkthrough knows where everything is, so a policy that imitates it learns to guess. Therefore a
demonstration searches a few likely places in vain before it goes to the wanted object, and the
policy learns to search.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.engine.engine import Engine
from scpo.envs.alfworld.engine.grammar import read_grammar
from scpo.envs.alfworld.engine.world import NOTHING_HAPPENS
from scpo.envs.alfworld.episode import AlfworldEpisode, task_of
from scpo.envs.base import Demonstration
from scpo.envs.projection import respond
from scpo.progress import progress
from scpo.records.memory import usable_cores
from scpo.schema.env import FAMILIES, AlfworldConfig
from scpo.schema.model import Imitation
from scpo.stop_signals import stop_signals_blocked

logger = logging.getLogger(__name__)
# The kinds of the object and of the receptacle that it is taken from.
_TAKE = re.compile(r"take (?P<kind>[a-z]+) \d+ from (?P<place>[a-z]+) \d+")

# No horizon: a demonstration ends when its walkthrough does.
_ENDLESS = 10_000

# Weight of a kind of place where the thing was never found, as a share of the weight of all places
# where it was.
_ANYWHERE = 0.02

# Parts of the work, many enough that processes end together and progress can be shown.
_PARTS = 20

# The vocabulary has the numbers below it: no game has so many objects of a kind, and no prompt
# counts that far.
_NUMBERS = 60

# Words of the compact prompt that no text of the game has.
_COMPACT_WORDS = "start nothing holding at can hot cool clean | > : ;"

# Probability that a search takes the next copy of a receptacle in order.
_NEXT_COPY = 0.8

Habits = Mapping[str, Mapping[str, int]]
"""How often each kind of object was found in each kind of receptacle."""


def demonstrations(
    engine: Engine,
    config: AlfworldConfig,
    warm_start: Imitation,
    games: Sequence[str],
    *,
    open_engine: Callable[[], Engine],
    processes: int | None = None,
) -> list[Demonstration]:
    """Play demonstrations of these games; the result does not depend on the number of processes.

    Args:
        engine: Engine of the games.
        config: The environment's; its history length applies to the prompts.
        warm_start: How many demonstrations of a game, how often to stop a detour, the seed.
        games: Ids of training games, neither trained on nor held out.
        open_engine: Opens an engine of the same games in another process.
        processes: None for one per available core.
    """
    # Taken from the training games only: the policy must not learn the places of validation games.
    habits = _habits(engine.source.read(game_id).walkthrough for game_id in games)
    job = _Job(config.model_copy(update={"horizon": _ENDLESS}), warm_start, habits)
    processes = min(processes or usable_cores(), len(games))
    # Every _PARTS-th game, so that parts have equal shares of rooms and families.
    parts = [games[first::_PARTS] for first in range(min(_PARTS, len(games)))]
    if processes == 1:
        made = _joined((_demonstrate(engine, job, part) for part in parts), len(parts))
    else:
        work = partial(_demonstrate_in_worker, open_engine, job)
        with _workers(processes) as pool:
            with stop_signals_blocked():
                # The workers start at the first submission, and inherit the blocked signals.
                parts_made = pool.map(work, parts)
            made = _joined(parts_made, len(parts))

    # From the order of the parts to that of the games; a stable sort keeps a game's repetitions in
    # order.
    order = {game_id: place for place, game_id in enumerate(games)}
    return sorted(made, key=lambda demonstration: order[demonstration.task_id])


def vocabulary() -> list[str]:
    """Texts that hold every word the environment can produce."""
    constants = assets().constants
    kinds = {kind.lower() for kind in (*constants.OBJECTS, *constants.RECEPTACLES)}
    tasks = []
    for family in FAMILIES.values():
        for template in assets().goals.gdict[family]["templates"]:
            tasks.append(template.format(obj="", recep="", toggle="", mrecep=""))
    numbers = " ".join(map(str, range(_NUMBERS)))
    return [*sorted(kinds), *tasks, *_grammar_texts(), numbers, NOTHING_HAPPENS, _COMPACT_WORDS]


def _grammar_texts() -> Iterator[str]:
    """Literal texts of the grammar; its other symbols name rules or entities."""
    grammar = read_grammar(assets().grammar)
    rows = [rule.symbols for rules in grammar.rules.values() for rule in rules]
    rows += [(*action.command, *action.feedback) for action in grammar.actions.values()]
    for row in rows:
        yield from (symbol for symbol in row if isinstance(symbol, str))


def _joined(made: Iterable[list[Demonstration]], parts: int) -> list[Demonstration]:
    """All demonstrations of the parts, with a line of progress after each part."""
    joined = []
    steps = progress(range(parts), "demonstrations for the warm start", "part")
    for _, part in zip(steps, made, strict=True):
        joined += part
    return joined


@dataclass(frozen=True)
class _Job:
    """Settings shared by all demonstrations; pickled for the worker processes.

    Attributes:
        config: The environment's configuration, with an endless horizon.
        warm_start: Settings of the demonstrations.
        habits: Where kinds of objects are usually found.
    """

    config: AlfworldConfig
    warm_start: Imitation
    habits: Habits


@contextmanager
def _workers(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Pool whose workers exit at once if the block raises or this process is killed.

    A pool that is closed waits for its tasks, which takes minutes, and a killed process closes
    nothing. So each worker watches a pipe whose other end only this process has.
    """
    # Not fork, which is unsafe once a library has threads.
    context = get_context("forkserver")
    watched, held = context.Pipe(duplex=False)
    # Starting the tracker unblocks signals, so it must run before ours are blocked.
    resource_tracker.ensure_running()
    pool = ProcessPoolExecutor(
        processes, mp_context=context, initializer=_exit_with, initargs=(watched,)
    )
    try:
        with held:
            yield pool
            # Wait for the tasks before `held` is closed, which ends the workers.
            pool.shutdown()
    finally:
        pool.shutdown(cancel_futures=True)
        watched.close()


def _exit_with(watched: Connection) -> None:
    """In a worker: exit as soon as the other end of the pipe is closed."""

    def watch() -> None:
        connection.wait([watched])
        # Without cleanup: a worker in the middle of a game has nothing to save.
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _habits(walkthroughs: Iterable[Sequence[str]]) -> Habits:
    """Count where the walkthroughs take each kind of object from."""
    found: dict[str, Counter[str]] = {}
    for walkthrough in walkthroughs:
        for match in filter(None, map(_TAKE.fullmatch, walkthrough)):
            found.setdefault(match["kind"], Counter())[match["place"]] += 1
    return found


def _demonstrate_in_worker(
    open_engine: Callable[[], Engine], job: _Job, games: Sequence[str]
) -> list[Demonstration]:
    """In a worker: play with an engine of its own, since an engine cannot be pickled."""
    return _demonstrate(open_engine(), job, games)


def _demonstrate(engine: Engine, job: _Job, games: Sequence[str]) -> list[Demonstration]:
    """All demonstrations of these games that win."""
    made = []
    for game_id in games:
        for repetition in range(job.warm_start.demonstrations_per_game):
            # Seeded by the game, so that the result does not depend on the division into parts.
            rng = random.Random(f"demonstration {job.warm_start.seed} {game_id} {repetition}")
            # The first demonstration of a game is its plain walkthrough.
            detours = job.warm_start.max_detours if repetition else 0
            demonstration = _Demonstrator(engine, game_id, job, detours, rng).play()
            if demonstration is None:
                logger.warning("no demonstration of %s: its walkthrough does not win", game_id)
            else:
                made.append(demonstration)
    return made


class _Demonstrator:
    """Plays one demonstration.

    Args:
        engine: Engine of the game.
        game_id: The game.
        job: Settings of all demonstrations.
        max_detours: Most places searched in vain before each object.
        rng: Draws the detours.
    """

    def __init__(
        self, engine: Engine, game_id: str, job: _Job, max_detours: int, rng: random.Random
    ) -> None:
        self._engine = engine
        opened = engine.open(game_id)
        self._episode = AlfworldEpisode(task_of(opened.game), opened, engine, job.config)
        self._habits = job.habits
        self._stop = job.warm_start.stop_detour
        self._max_detours = max_detours
        self._rng = rng
        self._visited: set[str] = set()
        self._prompts: list[str] = []
        self._responses: list[str] = []

    def play(self) -> Demonstration | None:
        """Follow the walkthrough, searching before each object; None if it does not win."""
        walkthrough = self._episode.opened.game.walkthrough
        for number, command in enumerate(walkthrough):
            if command.startswith("go to "):
                place = command.removeprefix("go to ")
                # Two commands, because a closed place is opened first.
                wanted = _wanted(walkthrough[number + 1 : number + 3])
                if wanted:
                    self._search(wanted, place)
                self._visited.add(place)
            # A detour may have opened this receptacle already: to open it is then not admissible.
            if command in self._episode.transcript.admissible and not self._episode.done:
                self._do(command)
        if not self._episode.state.won:
            return None
        return Demonstration(self._episode.task.id, tuple(self._prompts), tuple(self._responses))

    def _do(self, command: str) -> None:
        """Execute a command and keep it with the prompt that it answers."""
        self._prompts.append(self._episode.prompt())
        self._responses.append(respond(command))
        self._episode.step(self._responses[-1])

    def _search(self, wanted: str, place: str) -> None:
        """Search a few other places in vain for a kind of object, which is at ``place``."""
        for _ in range(self._max_detours):
            if self._rng.random() <= self._stop:
                return
            detour = self._choose(wanted, place)
            if detour is None:
                return
            # Not drawn again, even if it has such an object and the detour is empty.
            self._visited.add(detour)
            for command in self._looking_into(detour, wanted):
                self._do(command)

    def _choose(self, wanted: str, place: str) -> str | None:
        """Draw a place that was not visited yet, its kind weighted by habit; None if none is left.

        The object is at ``place``, which is never drawn.
        """
        # Places that can still be drawn, by kind.
        copies: dict[str, list[str]] = {}
        for command in self._episode.transcript.admissible:
            name = command.removeprefix("go to ")
            is_place = name != command
            if is_place and name != place and name not in self._visited:
                copies.setdefault(name.split()[0], []).append(name)

        if not copies:
            return None
        habit = self._habits.get(wanted, {})

        # Unlikely places keep some weight. The 0.1 counts where no walkthrough took such an object:
        # without it all weights would be 0, with it all places are equally likely.
        floor = _ANYWHERE * sum(habit.values()) + 0.1
        kinds = sorted(copies)
        weights = [habit.get(kind, 0) + floor for kind in kinds]
        kind = self._rng.choices(kinds, weights)[0]
        ordered = sorted(copies[kind], key=lambda name: int(name.split()[1]))
        if self._rng.random() < _NEXT_COPY:
            return ordered[0]
        return self._rng.choice(ordered)

    def _looking_into(self, place: str, wanted: str) -> list[str]:
        """Commands that show what is in a place; empty if a wanted object is there.

        Such a place is skipped, because finding the object would end the search.
        """
        commands = [f"go to {place}"]
        admissible, answer = self._peek(commands)
        if f"open {place}" in admissible:
            commands.append(f"open {place}")
            _, answer = self._peek(commands)
        if re.search(rf"\b{wanted} \d", answer):
            return []
        return commands

    def _peek(self, commands: Sequence[str]) -> tuple[tuple[str, ...], str]:
        """Admissible commands and last answer after these commands, without taking them.

        The engine steps from any state of the graph, so the episode stays where it is.
        """
        state = self._episode.state
        answer = ""
        for command in commands:
            state, answer = self._engine.step(self._episode.opened, state, command)
        return state.admissible, answer


def _wanted(following: Sequence[str]) -> str:
    """Kind of object that the first command other than "open" takes or uses; empty if none does."""
    for command in following:
        verb, _, rest = command.partition(" ")
        if verb in ("take", "use"):
            return rest.split()[0]
        if verb != "open":
            return ""
    return ""
