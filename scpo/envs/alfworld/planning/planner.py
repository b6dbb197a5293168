"""Lengths of shortest plans: A* over the grounded task with a landmark lower bound.

Facts are bit masks. Three reductions keep the search small without changing any length in
ALFWorld's domain:

- Objects that the goal does not mention stay where they are, or are put down if they are held.
- Facts that no precondition and no goal reads are dropped, and so are operators that change only
  such facts.
- Every place can be reached from every other in one step, so all moves to a place become one step,
  and no two moves follow each other. Games without this property keep their moves as they are.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, count
from math import ceil, inf
from operator import or_

from scpo.envs.alfworld.planning.pddl import Atom
from scpo.envs.alfworld.planning.translation import Condition, Operator, Task

Facts = int
"""Set of facts; bit n is fact n."""


@dataclass(frozen=True)
class Step:
    """Ground action.

    Attributes:
        needs: Facts that must hold.
        adds: Facts that it makes true.
        removes: Facts that it makes false.
        goes: It is a move to a place; the search takes no two of them in a row.
    """

    needs: Facts
    adds: Facts
    removes: Facts
    goes: bool


def facts(mask: Facts) -> Iterator[int]:
    """Numbers of the facts in a mask."""
    while mask:
        # The lowest set bit.
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class LandmarkBound:
    """Lower bound on the length of a shortest plan, cached by state.

    A landmark of a goal is a fact that every plan makes true at some time, in the task in which
    nothing becomes false again (Keyder, Richter and Helmert, ECAI 2010). Every landmark that does
    not hold yet must be added by some step of the plan, and one step may add several. So each
    counts 1/n if, of the steps that add it, the one with the most landmarks adds n. Then the
    landmarks of one step count at most 1 together, and no plan has fewer steps than the sum over
    all landmarks.

    Args:
        steps: All steps.
        options: Goals, any of which will do.
    """

    def __init__(self, steps: Sequence[Step], options: Sequence[Facts]) -> None:
        self._steps = steps
        self._options = options
        # Unpacked once, because the landmarks of each state read the facts of many steps.
        self._needs = [tuple(facts(step.needs)) for step in steps]
        self._adds = [tuple(facts(step.adds)) for step in steps]
        self._users: defaultdict[int, list[int]] = defaultdict(list)
        for number, needs in enumerate(self._needs):
            for fact in needs:
                self._users[fact].append(number)
        self._known: dict[Facts, int | None] = {}

    def __call__(self, state: Facts) -> int | None:
        """The bound; None if no goal can be reached."""
        # Different paths reach the same states, and the bound costs more than a lookup.
        if state not in self._known:
            landmarks = self._landmarks(state)
            bounds = []
            for option in self._options:
                missing = tuple(facts(option & ~state))
                # A goal with a fact that can never become true gives no bound.
                if all(fact in landmarks for fact in missing):
                    needed = _union(landmarks[fact] for fact in missing)
                    bounds.append(self._count(needed))
            self._known[state] = min(bounds, default=None)
        return self._known[state]

    def _landmarks(self, state: Facts) -> dict[int, Facts]:
        """Landmarks of every fact that does not hold in the state but can become true.

        A fact's landmarks are the fact itself and what all steps that add it have in common (an
        intersection); a step has the landmarks of all its needs (a union). The first step that
        reaches a fact gives it too large a set or the right one. Other steps that add the fact, and
        needs whose sets have shrunk, only shrink it. So the result is the largest solution of these
        equations, whichever order the steps are taken in.
        """
        landmarks: dict[int, Facts] = {}
        # For each step, the number of its needs that do not hold and were not reached yet.
        unreached = [(step.needs & ~state).bit_count() for step in self._steps]

        # Steps to process, all of whose needs are reached. The keys of a dict are a queue that
        # holds each step once.
        queue = dict.fromkeys(number for number, left in enumerate(unreached) if not left)
        while queue:
            number = next(iter(queue))
            del queue[number]
            before = 0
            for fact in self._needs[number]:
                # Facts of the state have no landmarks.
                before |= landmarks.get(fact, 0)

            for fact in self._adds[number]:
                if state & (1 << fact):
                    continue
                # The landmarks that the fact would have if no other step added it.
                through_step = before | (1 << fact)
                old = landmarks.get(fact)
                if old is None:
                    new = through_step
                    for user in self._users[fact]:
                        unreached[user] -= 1
                else:
                    new = old & through_step
                if new == old:
                    continue
                landmarks[fact] = new
                # The steps that need the fact have a new set, too.
                for user in self._users[fact]:
                    if not unreached[user]:
                        queue[user] = None
        return landmarks

    def _count(self, needed: Facts) -> int:
        """Lower bound on the number of steps that make all needed facts true."""
        # The n of each fact (see the class). A step that adds one needed fact changes nothing.
        largest = dict.fromkeys(facts(needed), 1)
        for step in self._steps:
            together = (step.adds & needed).bit_count()
            if together > 1:
                for fact in facts(step.adds & needed):
                    largest[fact] = max(largest[fact], together)
        # The margin: fractions with a sum of 2 that rounding lifts above 2 must not give 3.
        return ceil(sum(1 / together for together in largest.values()) - 1e-9)


_GO, _HOLDS = "gotolocation", "holds"


class Planner:
    """Shortest plans in one game.

    Args:
        task: The grounded game.
        things: Names of what can be carried or used (PDDL type ``object``).
    """

    def __init__(self, task: Task, things: Set[str]) -> None:
        self._operators = task.operators
        self._variables = task.variables
        self._things = things
        self._options = list(_options(task))
        atoms = list(task.variables)
        mentioned: set[str] = set()
        for option in self._options:
            for fact in facts(option):
                # Facts 2 v and 2 v + 1 are about variable v.
                mentioned.update(atoms[fact // 2])
        self._wanted = things & mentioned
        self._searches: dict[frozenset[str], _Search] = {}

    def length(self, state: Set[Atom], max_states: int) -> int | None:
        """Steps of a shortest plan.

        Args:
            state: The atoms that hold, without derived ones.
            max_states: Give up after looking at the successors of this many states.

        Returns:
            None if the goal cannot be reached, or the search was given up.
        """
        # A search is specific to the held objects: only they must be put down.
        held = frozenset(atom[-1] for atom in state if atom[0] == _HOLDS)
        if held not in self._searches:
            steps = _relevant(map(_step, self._useful(held)), self._options)
            self._searches[held] = _Search(steps, self._options)
        return self._searches[held].length({self._variables[atom] for atom in state}, max_states)

    def _useful(self, held: frozenset[str]) -> Iterator[Operator]:
        """Operators that name no things but wanted and held ones, and take none but wanted ones.

        So a held thing that is not wanted can only be put down, and not be taken again.
        """
        ignored = self._things - self._wanted - held
        to_put_down = held - self._wanted
        # Effects that no operator may have: one of these things is held.
        taking = set()
        for atom, variable in self._variables.items():
            if atom[0] == _HOLDS and atom[-1] in to_put_down:
                taking.add((variable, 0))

        for operator in self._operators:
            effects = {effect for _, effect in operator.effects}
            if ignored.isdisjoint(operator.name) and taking.isdisjoint(effects):
                yield operator


class _Search:
    """A* over the relevant steps.

    Their facts are numbered anew from 0, because most of the search is operations on masks, which
    are faster if the masks are short.

    Args:
        steps: The relevant steps.
        options: Goals, any of which will do.
    """

    def __init__(self, steps: Sequence[Step], options: Sequence[Facts]) -> None:
        read = _union(chain((step.needs | step.adds for step in steps), options))
        self._facts = list(facts(read))
        place = {fact: number for number, fact in enumerate(self._facts)}

        def short(mask: Facts) -> Facts:
            return sum(1 << place[fact] for fact in facts(mask & read))

        self._options = [short(option) for option in options]
        renamed = [Step(short(s.needs), short(s.adds), short(s.removes), s.goes) for s in steps]
        self._bound = LandmarkBound(renamed, self._options)
        # Steps by the lowest fact that they need: if it is missing, all of them are skipped. Steps
        # without needs have the key 0.
        self._by_need: defaultdict[Facts, list[Step]] = defaultdict(list)
        for step in renamed:
            self._by_need[step.needs & -step.needs].append(step)

    def length(self, true: Set[int], max_states: int) -> int | None:
        """Steps of a shortest plan; ``true`` are the variables whose atom holds."""
        start = 0
        for place, fact in enumerate(self._facts):
            # Fact 2 v: variable v's atom holds; 2 v + 1: it does not.
            variable, negated = divmod(fact, 2)
            if (variable in true) != bool(negated):
                start |= 1 << place

        # Entries: cost plus bound, bound, number of the entry, cost, state, whether the last step
        # was a move. Ties go to the lower bound, then to the earlier entry: states are never
        # compared, and the search is deterministic. The first entry is popped first in any case, so
        # it has zeros in place of its bound.
        order = count()
        queue = [] if self._bound(start) is None else [(0, 0, next(order), 0, start, False)]
        best = {(start, False): 0}
        for _ in range(max_states):
            if not queue:
                return None
            # The bound never overestimates, so the first goal that is popped is a nearest one.
            *_, cost, state, went = heapq.heappop(queue)
            # Won if no fact of one of the goals is missing.
            if any(not option & ~state for option in self._options):
                return cost
            new_cost = cost + 1
            for following, goes in self._successors(state, went):
                # Kept apart by the last step, because no second move may follow a move.
                if new_cost >= best.get((following, goes), inf):
                    continue
                best[following, goes] = new_cost
                left = self._bound(following)
                # None: no goal can be reached from there.
                if left is not None:
                    entry = (new_cost + left, left, next(order), new_cost, following, goes)
                    heapq.heappush(queue, entry)
        return None

    def _successors(self, state: Facts, went: bool) -> Iterator[tuple[Facts, bool]]:
        """States after one step, and whether it was a move.

        ``went``: the step before was a move, so no second one may follow.
        """
        for lowest_need, steps in self._by_need.items():
            if lowest_need & ~state:
                continue
            for step in steps:
                applicable = not step.needs & ~state
                if applicable and not (step.goes and went):
                    yield (state & ~step.removes) | step.adds, step.goes


def _options(task: Task) -> Iterator[Facts]:
    """Conjunctions of facts that each imply the goal.

    A goal of one derived fact is replaced by the preconditions of its axioms.
    """
    derived = set()
    for axiom in task.axioms:
        effects = {effect for _, effect in axiom.effects}
        derived |= effects
        if effects == task.goal:
            yield _mask(axiom.preconditions)
    if not task.goal & derived:
        yield _mask(task.goal)


def _step(operator: Operator) -> Step:
    """Convert an operator, dropping conditional effects.

    Nothing depends on the facts that these change: ``World`` rejects games where something does.
    """
    changed = [effect for conditions, effect in operator.effects if not conditions]
    opposite = [(variable, 1 - value) for variable, value in changed]
    return Step(
        _mask(operator.preconditions), _mask(changed), _mask(opposite), operator.name[0] == _GO
    )


def _relevant(steps: Iterable[Step], options: Sequence[Facts]) -> list[Step]:
    """Steps that add facts needed by the goal or by a relevant step.

    Each is reduced to these facts, and moves to the same place become one step.
    """
    # Fixpoint: facts that relevant steps need make further steps relevant.
    steps = list(steps)
    read = 0
    more = _union(options)
    while more != read:
        read = more
        for step in steps:
            if step.adds & read:
                more |= step.needs
    cut = [Step(s.needs, s.adds & read, s.removes & read, s.goes) for s in steps if s.adds & read]
    others = [step for step in cut if not step.goes]
    moves = _merged_moves([step for step in cut if step.goes])
    return list(dict.fromkeys([*others, *moves]))


def _merged_moves(moves: Sequence[Step]) -> Iterator[Step]:
    """One step for each place that is reached from every other; the moves themselves if not."""
    places = {step.adds for step in moves} | {step.needs for step in moves}
    moves_to: defaultdict[Facts, list[Step]] = defaultdict(list)
    for step in moves:
        moves_to[step.adds].append(step)
    for place, steps in moves_to.items():
        # Reachable from every other place: one step without a precondition is enough.
        if {step.needs for step in steps} == places - {place}:
            yield Step(0, place, _union(step.removes for step in steps), goes=True)
        else:
            # Not marked as moves: a shortest way to this place may be several moves in a row.
            yield from (replace(step, goes=False) for step in steps)


def _union(masks: Iterable[Facts]) -> Facts:
    return reduce(or_, masks, 0)


def _mask(conditions: Iterable[Condition]) -> Facts:
    """Mask of conditions: fact 2 v is that variable v's atom holds, 2 v + 1 that it does not."""
    return _union(1 << (2 * variable + value) for variable, value in conditions)
