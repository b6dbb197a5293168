"""Credit matchers: generators that ask for one similarity at a time (paper, algorithm 2).

A matcher yields the ``Cell`` it wants to read and is sent the score, so it reads like the paper's
pseudocode (section 3.3). The driver decides where scores come from: a full matrix, or a scorer that
is only asked for what the walk reads.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ConfigError, ContractError
from scpo.extensions import Part, load_parts
from scpo.steps import FloatArray

T = TypeVar("T")
AfterFullMatch = Literal["stop", "restart"]


class Cell(NamedTuple):
    """Cell of a similarity matrix.

    ``failed``: M[u, v], reference step u against failed step v. ``self``: M*[u, v], both in the
    reference, u < v.
    """

    matrix: Literal["failed", "self"]
    u: int
    v: int


class Credited(NamedTuple):
    """Failed step v earned ``credit`` at reference position u, with ``similarity`` M[u, v].

    Both numbers are float32 values as Python floats. ``credit`` is 0 where λ exceeds θ and the
    similarity lies between them; the match uses up the position nevertheless.
    """

    u: int
    v: int
    similarity: float
    credit: float


@dataclass(frozen=True)
class MatchTrace:
    """Result of a matcher.

    Attributes:
        walk: ``(v, j)`` for every processed step in processing order: the failed step and the
            matched reference position after it, -1 for none.
        credited: The cells that earned credit, in the order they were earned; a failed step appears
            at most once.
    """

    walk: tuple[tuple[int, int], ...]
    credited: tuple[Credited, ...]

    def credit_l(self, length: int) -> FloatArray:
        """Credit of each of the ``length`` failed steps, in [0, 1]: r^SCPO_w of the paper."""
        credit_l = np.zeros(length, dtype=np.float32)
        for cell in self.credited:
            credit_l[cell.v] = cell.credit
        return credit_l

    def distance_credit_l(self, length: int, m: int) -> FloatArray:
        """Credit times the share of the reference that a match advances beyond earlier ones (ours).

        If every match is exact, the sum is the share of the reference's ``m`` positions that the
        trajectory reached, at most 1. Without monotonicity, credit before the frontier counts 0.
        """
        credit_l = np.zeros(length, dtype=np.float32)
        frontier = -1
        for cell in self.credited:
            credit_l[cell.v] = cell.credit * max(0, cell.u - frontier) / m
            frontier = max(frontier, cell.u)
        return credit_l


Matching = Generator[Cell, np.float32, MatchTrace]
"""A walk: yields the cell to read, is sent its score, returns the trace."""


@dataclass(frozen=True)
class MatchRule:
    """Parameters of the matching.

    θ and λ are cast to float32 once, here: a float32 score of 0.7 must reach a θ of 0.7.

    Attributes:
        theta: Match threshold θ, 0 < θ <= 1.
        soft_base: Soft base λ, 0 <= λ < 1.
        monotonic: Credit only positions beyond every credited one.
        matcher: ``kmp`` is algorithm 2; ``forward`` is the prose of sections 3.3 and 3.4.
        after_full_match: Without monotonicity, a match of the last reference position ends the
            walk (``stop``) or the walk goes on (``restart``).
    """

    theta: float
    soft_base: float
    monotonic: bool = True
    matcher: str = "kmp"
    after_full_match: AfterFullMatch = "stop"

    def __post_init__(self) -> None:
        if not 0 < np.float32(self.theta) <= 1 or not 0 <= np.float32(self.soft_base) < 1:
            raise ConfigError(
                f"theta = {self.theta}, soft_base = {self.soft_base}: allowed are 0 < theta <= 1 "
                "and 0 <= soft_base < 1"
            )
        known_matcher(self.matcher)
        object.__setattr__(self, "theta", np.float32(self.theta))
        object.__setattr__(self, "soft_base", np.float32(self.soft_base))

    @property
    def stops(self) -> bool:
        """True if a full match ends the walk: monotonic credit cannot grow after it."""
        return self.monotonic or self.after_full_match == "stop"

    def credit(self, similarity: np.float32) -> np.float32:
        """Soft credit max(0, M - λ) / (1 - λ)."""
        soft_base = np.float32(self.soft_base)
        return np.float32(max(np.float32(0), similarity - soft_base) / (np.float32(1) - soft_base))


def known_matcher(name: T) -> T:
    """Check that a matcher of this name is registered, and return the name.

    Raises:
        ConfigError: There is no such matcher; the message explains how to add one.
    """
    load_installed()
    # A tuple, so that a value that cannot be hashed is refused too.
    if name not in tuple(MATCHERS):
        raise ConfigError(
            f"matcher {name!r} is unknown; allowed: {', '.join(MATCHERS)}, or one of your own in "
            "MATCHERS of scpo.shaping.matcher: `python -m scpo.new matcher NAME` writes and "
            f"registers it; of an installed package: entry point {ENTRY_POINTS}"
        )
    return name


def match(rule: MatchRule, m: int, order: Sequence[int]) -> Matching:
    """Match one failed trajectory, processed in ``order``, with a reference of length ``m``.

    Checks what the matcher asks for and what it returns: NumPy would read a negative position from
    the end of the array, and a driver would fail far from the matcher.

    Raises:
        ContractError: The matcher is not a generator, asks for a cell that does not exist or more
            often than there are cells, or returns a trace with an invalid step, position or
            credit; names the matcher and the value.
    """
    if not m:
        # An empty reference has no position to ask for: the walk ends at once, without credit.
        return MatchTrace((), ())
    walk: object = MATCHERS[rule.matcher](rule, m, order)
    if not isinstance(walk, Generator):
        raise ContractError(
            f"matcher {rule.matcher!r} is not a generator: its call returned a "
            f"{type(walk).__name__}. "
            'Ask for a similarity at least once, `score = yield Cell("failed", u, v)`, then '
            "return MatchTrace(walk, credited)"
        )

    failed = frozenset(order)
    score = None
    cells = m * len(failed) + m * (m - 1) // 2
    asked = 0
    while True:
        try:
            cell = walk.send(score)
        except StopIteration as stop:
            return _checked_trace(rule, stop.value, m, failed)
        _check_cell(rule.matcher, cell, m, failed)
        # The driver answers known pairs without a call, so a walk that repeats itself never ends.
        if asked == cells:
            raise ContractError(
                f"matcher {rule.matcher!r} asked for {asked + 1} similarities, now {cell!r}, of "
                f"{m} reference and {len(failed)} failed steps, which have {cells} cells: keep a "
                "score that is needed again, and make sure that its loop ends"
            )
        asked += 1
        score = yield cell


def _check_cell(matcher: str, cell: object, m: int, failed: AbstractSet[int]) -> None:
    """Check that a matcher asks for a similarity that exists.

    Raises:
        ContractError: The matcher yielded something else than a cell of M or a cell of M* above
            the diagonal.
    """
    if isinstance(cell, Cell) and _is_position(cell.u, m):
        if cell.matrix == "failed" and _is_step(cell.v, failed):
            return
        if cell.matrix == "self" and _is_position(cell.v, m) and cell.u < cell.v:
            return
    raise ContractError(
        f"matcher {matcher!r} asked for {cell!r}; allowed, with a reference of {m} steps: "
        f'Cell("failed", u, v) with 0 <= u < {m} and v of order, and Cell("self", u, v) with '
        f"0 <= u < v < {m}, in integers"
    )


def _checked_trace(rule: MatchRule, trace: object, m: int, failed: AbstractSet[int]) -> MatchTrace:
    """Check the result of a matcher, which credit and diagnostics depend on, and return it.

    Raises:
        ContractError: The result is not a trace, or has an invalid step, position or credit.
    """
    matcher = rule.matcher
    if not isinstance(trace, MatchTrace):
        raise ContractError(
            f"matcher {matcher!r} returned {trace!r}; expected MatchTrace(walk, credited)"
        )

    for place in trace.walk:
        pair = place if isinstance(place, tuple) and len(place) == 2 else (None, None)
        if not (_is_step(pair[0], failed) and (pair[1] == -1 or _is_position(pair[1], m))):
            raise ContractError(
                f"matcher {matcher!r} returned {place!r} in the walk; allowed: (v, j) with v of "
                f"order and -1 <= j < {m}, in integers"
            )

    earned: set[int] = set()
    frontier = -1
    for cell in trace.credited:
        if not (
            isinstance(cell, Credited)
            and _is_position(cell.u, m)
            and _is_step(cell.v, failed)
            and _is_share(cell.similarity)
            and _is_share(cell.credit)
        ):
            raise ContractError(
                f"matcher {matcher!r} credited {cell!r}; allowed: Credited(u, v, similarity, "
                f"credit) with 0 <= u < {m} and v of order, in integers, and numbers in [0, 1], "
                "which method.shaper.alpha scales"
            )
        if cell.v in earned:
            raise ContractError(
                f"matcher {matcher!r} credited failed step {cell.v} twice, now with {cell!r}; "
                "allowed: once, because the credit of a step is not summed"
            )
        if rule.monotonic and cell.u <= frontier:
            raise ContractError(
                f"matcher {matcher!r} credited reference position {cell.u} after {frontier}, with "
                f"{cell!r}; allowed with monotonic credit: positions beyond those before"
            )
        earned.add(cell.v)
        frontier = max(frontier, cell.u)
    return trace


def _is_position(value: Any, m: int) -> bool:
    return isinstance(value, int | np.integer) and bool(0 <= value < m)


def _is_step(value: object, failed: AbstractSet[int]) -> bool:
    # The type is checked, because 1.0 is in a set that has 1 but cannot be an index.
    return isinstance(value, int | np.integer) and value in failed


def _is_share(value: Any) -> bool:
    # NaN is refused, since every comparison with it is false. Slightly more than 1 is allowed,
    # because cosines that a caller passes to ``match_dense`` may exceed 1 by rounding.
    return isinstance(value, int | float | np.number) and bool(0 <= value <= 1 + 1e-5)


def progress_match(rule: MatchRule, m: int, order: Sequence[int]) -> Matching:
    """Algorithm 2: the matched position j advances by one or falls back through the KMP table.

    A step earns credit when it moves j beyond the frontier. No position is skipped, so credit needs
    contiguous runs. For equal characters, falling back to next(j) implies that the shorter prefix
    matches; similarity is not transitive, so here it does not, and the walk is not exact as KMP is.

    Without monotonicity every advance of j earns credit, also before the frontier. After a full
    match the paper is silent (ledger 11): ``stop`` ends the walk, ``restart`` falls back to
    next(m-1).

    Args:
        rule: θ, λ and the variants.
        m: Reference length, at least 1.
        order: Failed steps in processing order.

    Yields:
        The cell to read; expects its score as float32.

    Returns:
        The trace.
    """
    # A table for each walk, grown on demand. Siblings ask for the same cells of M*, but the driver
    # scores each pair only once.
    table = [-1]
    j = frontier = -1
    walk = []
    credited = []
    for v in order:
        score = yield Cell("failed", j + 1, v)
        # Mismatch: fall back to shorter prefixes until one continues with this step.
        while j >= 0 and score < rule.theta:
            j = yield from _fall_back(table, j, rule)
            score = yield Cell("failed", j + 1, v)
        # ≥ as in algorithm 2; in section 3.3 the score must exceed θ (ledger 31).
        if score >= rule.theta:
            j += 1
            if j > frontier or not rule.monotonic:
                credited.append(Credited(j, v, float(score), float(rule.credit(score))))
            frontier = max(frontier, j)
        walk.append((v, j))
        # A full match: the paper leaves open what follows (ledger 11).
        if j == m - 1:
            if rule.stops:
                break
            j = yield from _fall_back(table, j, rule)
    return MatchTrace(tuple(walk), tuple(credited))


def _fall_back(table: list[int], j: int, rule: MatchRule) -> Generator[Cell, np.float32, int]:
    """next(j) of the semantic KMP table over M*, which is built only as far as a walk needs it.

    Most walks never get far. The whole table would take at least m - 1 self-similarities of every
    reference before its first failed step is read.

    next(0) = -1; next(i) = k + 1 for the first k of next(i-1), next(next(i-1)), ..., -1 with
    M*[k+1, i] >= θ, else -1.
    """
    while len(table) <= j:
        # The earlier step is the first text of the pair, which matters to a reranker; the paper is
        # silent (ledger 32).
        i = len(table)
        k = table[-1]
        score = yield Cell("self", k + 1, i)
        while k >= 0 and score < rule.theta:
            k = table[k]
            score = yield Cell("self", k + 1, i)
        table.append(k + 1 if score >= rule.theta else k)
    return table[j]


def forward_match(rule: MatchRule, m: int, order: Sequence[int]) -> Matching:
    """Rule of the paper's prose: credit the first similar position beyond the frontier.

    A control: the default is algorithm 2, :func:`progress_match` (ledger 8), with the same
    arguments, yields and result. Positions may be skipped, so credit needs no contiguous run.
    Without monotonicity, where the paper is silent, a step is credited at the first similar
    position of the whole reference; a match of the last position ends the walk unless
    ``after_full_match`` is ``restart``.
    """
    frontier = -1
    walk = []
    credited = []
    for v in order:
        # From left to right up to the first match, so that later positions are not scored.
        first = frontier + 1 if rule.monotonic else 0
        for u in range(first, m):
            score = yield Cell("failed", u, v)
            if score >= rule.theta:
                credited.append(Credited(u, v, float(score), float(rule.credit(score))))
                frontier = u
                break
        walk.append((v, frontier))
        if frontier == m - 1 and rule.stops:
            break
    return MatchTrace(tuple(walk), tuple(credited))


MATCHERS: dict[str, Callable[[MatchRule, int, Sequence[int]], Matching]] = {
    "kmp": progress_match,
    "forward": forward_match,
}

ENTRY_POINTS = "scpo.matchers"
"""Entry-point group of other packages' matchers: ``<name> = "<module>:<function>"``."""


# Not at import: a matcher's module imports this file.
@functools.cache
def load_installed() -> tuple[Part, ...]:
    """Load the matchers of installed packages into ``MATCHERS``, in the first call.

    Raises:
        ConfigError: An entry point cannot be used; names the package.
    """
    parts = load_parts(
        ENTRY_POINTS,
        "a function f(rule, m, order) like those of scpo.shaping.matcher",
        inspect.isfunction,
        MATCHERS,
        lambda point, function: point.name,
    )
    MATCHERS.update({part.name: part.value for part in parts})
    return parts


def kmp_table(self_similarity: NDArray[Any], theta: float) -> list[int]:
    """The whole table next(0..m-1) from a full M*, for inspection.

    Args:
        self_similarity: M*, ``(m, m)``, m >= 1; only cells above the diagonal are read.
        theta: Match threshold θ.
    """
    # λ plays no part in the table.
    rule = MatchRule(theta, 0.0)
    table = [-1]
    answer(_fall_back(table, len(self_similarity) - 1, rule), {"self": self_similarity})
    return table


def answer(asking: Generator[Cell, np.float32, T], matrices: dict[str, NDArray[Any]]) -> T:
    """Run a matcher to its end with scores from full matrices.

    Args:
        asking: The walk, or only the part that builds its table.
        matrices: M as ``failed`` and M* as ``self``.

    Returns:
        What the generator returns.
    """
    try:
        cell = next(asking)
        while True:
            cell = asking.send(np.float32(matrices[cell.matrix][cell.u, cell.v]))
    except StopIteration as stop:
        result: T = stop.value
        return result


def match_dense(  # noqa: PLR0917 - the public signature, as in algorithm 2
    similarity: NDArray[Any],
    self_similarity: NDArray[Any],
    theta: float,
    soft_base: float,
    order: Sequence[int],
    monotonic: bool = True,
    *,
    matcher: str = "kmp",
    after_full_match: AfterFullMatch = "stop",
) -> FloatArray:
    """Credit of every failed step from full matrices (paper, algorithm 2).

    Args:
        similarity: M, ``(m, l)``: reference step u against failed step v, in [0, 1].
        self_similarity: M*, ``(m, m)``: only cells above the diagonal are read, and none by
            ``forward``.
        theta: Match threshold θ, 0 < θ <= 1.
        soft_base: Soft base λ, 0 <= λ < 1.
        order: Processing order: failed steps ``0..l-1``, each at most once.
        monotonic: Credit only positions beyond every credited one.
        matcher: ``kmp`` (algorithm 2) or ``forward`` (the prose).
        after_full_match: ``stop`` or ``restart``, for credit without monotonicity.

    Returns:
        ``credit_l`` in [0, 1], float32, in the order of the columns of M.

    Raises:
        ConfigError: θ, λ or the matcher's name is not allowed.
    """
    rule = MatchRule(theta, soft_base, monotonic, matcher, after_full_match)
    m, length = np.shape(similarity)
    trace = answer(match(rule, m, order), {"failed": similarity, "self": self_similarity})
    return trace.credit_l(length)
