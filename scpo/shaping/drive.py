"""Driver of the matchers: all failed trajectories walk in lockstep, and scoring is batched.

Each round gathers the pairs that the walks ask for, drops known ones, asks the scorer once and
sends the answers back. With ``dense``, as in the paper, every cell is scored before the first step.
Equal scores give equal credit, bit for bit. The two modes group pairs into different calls, so if
the last bits of a score depend on the other pairs of a call, the last bits of the credit differ
too, and a pair whose score is that close to θ may match in one mode only.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError, ScpoError
from scpo.shaping.matcher import Cell, Matching, MatchRule, MatchTrace, match

TextPair = tuple[str, str]


class Scorer(Protocol):
    """Similarity of two step texts, f(x*_u, x^w_v) in the paper.

    ``name`` identifies the scorer with all settings that change its scores. ``score`` returns
    float32 similarities of ordered pairs in [0, 1]; a repeated call returns the same bits. A score
    may depend on the other pairs of the call, as rounding on a GPU does, but not on earlier calls:
    a resumed run repeats only the calls of a step.
    """

    @property
    def name(self) -> str: ...

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class MatchTask:
    """Filtered step texts of a failed trajectory and its reference, and the processing order.

    Attributes:
        group: Rollout group; tasks of the same group share their reference.
        reference: Texts of the reference steps, in reference order.
        failed: Texts of the failed steps, in time order.
        order: Indices into ``failed``, in processing order (π of the paper).
    """

    group: int
    reference: tuple[str, ...]
    failed: tuple[str, ...]
    order: tuple[int, ...]

    def texts(self, cell: Cell) -> TextPair:
        """Ordered text pair of a cell: the reference step first, in M* the earlier step."""
        columns = self.failed if cell.matrix == "failed" else self.reference
        return self.reference[cell.u], columns[cell.v]

    def cells(self, matrix: str) -> Iterator[Cell]:
        """All cells of M, or those of M* above its diagonal.

        Below the diagonal, M* has the same pairs with the later step first, which no matcher reads.
        """
        if matrix == "failed":
            return (
                Cell("failed", u, v)
                for u in range(len(self.reference))
                for v in range(len(self.failed))
            )
        return (Cell("self", u, v) for v in range(len(self.reference)) for u in range(v))


class Pairs(NamedTuple):
    """Numbers of scored pairs of a training step.

    Attributes:
        dense: Cells that the paper scores: those of all M, and of one M* per group above its
            diagonal (of no M* with another matcher than ``kmp``).
        asked: Cells that the walks read, repeated text pairs included.
        scored: Distinct text pairs of the cells read; with ``dense`` of all cells.
        above_theta: Scored pairs >= θ.
        speculated: Further pairs that were scored in advance and that no walk read.
    """

    dense: int
    asked: int
    scored: int
    above_theta: int
    speculated: int


class CreditMatches(NamedTuple):
    """Matches of a training step, as :func:`credit_batch` returns them.

    Attributes:
        traces: The trace of each task, in the order of the tasks.
        pairs: Counts of pairs.
        seconds: Seconds by stage: ``scoring`` (failed against reference), ``self_similarity``,
            ``matching``.
    """

    traces: tuple[MatchTrace, ...]
    pairs: Pairs
    seconds: dict[str, float]


def credit_batch(
    tasks: Sequence[MatchTask],
    scorer: Scorer,
    rule: MatchRule,
    *,
    dense: bool = False,
    speculate: bool = False,
) -> CreditMatches:
    """Match every failed trajectory against its reference.

    Args:
        tasks: The failed trajectories of all groups.
        scorer: Answers text pairs with similarities in [0, 1].
        rule: θ, λ, the matcher and its variants.
        dense: Score every cell before the walks start, as in the paper.
        speculate: Score in advance what a walk is likely to read: this takes fewer, larger calls,
            but some of the pairs are never read.

    Raises:
        ScorerError: The scorer failed or returned another number of scores, or one outside [0, 1];
            names the pair.
    """
    started = time.perf_counter()
    # New for every training step: a resumed run has no older scores, and must group pairs into the
    # same calls to get the same bits (docs/scoring.md).
    book = _ScoreBook(scorer)

    # The forward match never compares the reference with itself.
    matrices = ("failed", "self") if rule.matcher == "kmp" else ("failed",)
    if dense:
        all_pairs = []
        for matrix in matrices:
            for task in tasks:
                all_pairs += [(matrix, task.texts(cell)) for cell in task.cells(matrix)]
        book.learn(all_pairs)

    # If all pairs were scored above, the walks end in one round without a call.
    traces, asked = _run_in_lockstep(
        tasks, rule, book, speculate=speculate and rule.matcher == "kmp"
    )

    # Speculated pairs that no walk read are counted separately, so that neither the number of
    # scored pairs nor the share above θ depends on `speculate`.
    scores = np.array(
        [score for pair, score in book.known.items() if pair not in book.unread], dtype=np.float32
    )
    above_theta = int((scores >= rule.theta).sum())
    pairs = Pairs(_dense_cells(tasks, matrices), asked, len(scores), above_theta, len(book.unread))
    # Matching takes all the time that was not spent in the scorer.
    matching = time.perf_counter() - started - sum(book.seconds.values())
    seconds = {
        "scoring": book.seconds["failed"],
        "self_similarity": book.seconds["self"],
        "matching": matching,
    }
    return CreditMatches(traces, pairs, seconds)


def _dense_cells(tasks: Sequence[MatchTask], matrices: tuple[str, ...]) -> int:
    """Number of cells that the paper's procedure scores, repeated text pairs included."""
    cells = sum(len(task.reference) * len(task.failed) for task in tasks)
    if "self" in matrices:
        # Failures of a group share one reference, and so one M*.
        length_of = {task.group: len(task.reference) for task in tasks}
        cells += sum(m * (m - 1) // 2 for m in length_of.values())
    return cells


def _run_in_lockstep(
    tasks: Sequence[MatchTask], rule: MatchRule, book: "_ScoreBook", *, speculate: bool
) -> tuple[tuple[MatchTrace, ...], int]:
    """Run all walks to their end, and count the cells that they read.

    A walk asks for one pair at a time, so walks that run one after the other would take a call of
    the scorer for each pair. In lockstep, the walks of all groups share one call per round, and
    there are at most as many rounds as the longest walk reads cells.

    Returns:
        The trace of each task, and the number of cells read.
    """
    traces: dict[int, MatchTrace] = {}
    walks = {i: match(rule, len(task.reference), task.order) for i, task in enumerate(tasks)}
    waiting: dict[int, Cell | None] = dict.fromkeys(walks)
    asked = 0

    # One round per iteration: every walk goes as far as known scores carry it, then all unknown
    # pairs are scored in one call.
    while waiting:
        for i, cell in list(waiting.items()):
            advanced = _advance(walks[i], tasks[i], cell, book)
            asked += advanced.answered
            if isinstance(advanced.state, MatchTrace):
                traces[i] = advanced.state
                del waiting[i]
            else:
                waiting[i] = advanced.state

        # Every walk that is still waiting asks for exactly one cell.
        asking = [(tasks[i], cell) for i, cell in waiting.items() if cell]
        ahead: list[TextPair] = []
        if speculate:
            for task, cell in asking:
                ahead += _ahead(task, cell)
        book.learn([(cell.matrix, task.texts(cell)) for task, cell in asking], ahead)
    # Walks end in different rounds; the traces are returned in the order of the tasks.
    return tuple(traces[i] for i in range(len(tasks))), asked


def _ahead(task: MatchTask, cell: Cell) -> Iterator[TextPair]:
    """Pairs that a KMP walk is likely to read next: reference step 0 with the failed steps to come.

    The walk reads these one after the other until a step matches, and most steps match nothing.
    Other pairs, and those of the forward match, are not worth guessing (docs/scoring.md).
    """
    # Before the first match the walk stays at reference step 0.
    if cell.matrix == "failed" and cell.u == 0:
        for v in task.order[task.order.index(cell.v) + 1 :]:
            yield task.texts(Cell("failed", 0, v))


class _Advanced(NamedTuple):
    """Progress of a walk.

    ``state``: the cell that it waits for, or its trace if it has ended; ``answered``: number of
    cells that it has read on the way.
    """

    state: Cell | MatchTrace
    answered: int


def _advance(walk: Matching, task: MatchTask, cell: Cell | None, book: "_ScoreBook") -> _Advanced:
    """Send known scores until the walk asks for an unknown one or ends.

    ``cell`` None starts the walk.
    """
    answered = 0
    try:
        if cell is None:
            cell = next(walk)
        while (score := book.read(task.texts(cell))) is not None:
            answered += 1
            cell = walk.send(score)
    except StopIteration as stop:
        # The return value of a generator.
        return _Advanced(stop.value, answered)
    return _Advanced(cell, answered)


@dataclass
class _ScoreBook:
    """Scores of one batch by ordered text pair.

    By text, not by cell, because siblings share their reference and repeat each other's steps: on
    the recorded rollouts the walks read about three times as many cells as there are pairs.

    Attributes:
        scorer: Scores the unknown pairs.
        known: Scores in float32.
        unread: Pairs that were scored in advance and that no walk has read yet.
        seconds: Seconds in the scorer, by matrix: ``failed`` (M) and ``self`` (M*).
    """

    scorer: Scorer
    known: dict[TextPair, np.float32] = field(default_factory=dict)
    unread: set[TextPair] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=lambda: {"failed": 0.0, "self": 0.0})

    def read(self, texts: TextPair) -> np.float32 | None:
        """The score of a pair that a walk reads; None if it is unknown."""
        self.unread.discard(texts)
        return self.known.get(texts)

    def learn(
        self, questions: Sequence[tuple[str, TextPair]], ahead: Sequence[TextPair] = ()
    ) -> None:
        """Score the unknown pairs in one call.

        Args:
            questions: The matrix and the texts of each cell that a walk waits for.
            ahead: Speculative pairs, all of them of M; scored only if a question needs a call.
        """
        unknown: dict[TextPair, str] = {}
        for matrix, texts in questions:
            if texts not in self.known:
                unknown.setdefault(texts, matrix)

        if not unknown:
            return
        for texts in ahead:
            if texts not in self.known and texts not in unknown:
                unknown[texts] = "failed"
                self.unread.add(texts)

        started = time.perf_counter()
        pairs = list(unknown)
        self.known.update(zip(pairs, checked(self.scorer, pairs), strict=True))
        # One call scores pairs of both matrices, so its time is split by their numbers of pairs.
        elapsed = time.perf_counter() - started
        for matrix in unknown.values():
            self.seconds[matrix] += elapsed / len(unknown)


def checked(scorer: Scorer, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
    """Score pairs, and check that the scores are as the protocol promises.

    Raises:
        ScorerError: The scorer failed, or gave another number of scores than pairs, or one that
            is not a number in [0, 1].
    """
    # A user's scorer may lack a name, which only messages and caches read.
    name = getattr(scorer, "name", type(scorer).__name__)
    # A copy, because a scorer may change the list that it is given.
    try:
        answers: NDArray[Any] = np.asarray(scorer.score(list(pairs)))
    except ScpoError:
        raise
    except Exception as error:
        first, second = (text if len(text) <= 60 else f"{text[:57]}..." for text in pairs[0])
        raise ScorerError(
            f"scorer {name!r} failed on {len(pairs)} pairs, the first of them "
            f"({first!r}, {second!r}), with {type(error).__name__}: {error}"
        ) from error
    if answers.shape != (len(pairs),):
        raise ScorerError(
            f"scorer {name!r} answered {len(pairs)} pairs, the first of them {pairs[0]!r}, "
            f"with an array of shape {answers.shape}: expected ({len(pairs)},)"
        )
    if answers.dtype.kind not in "biuf":
        raise ScorerError(
            f"scorer {name!r} answered {len(pairs)} pairs, the first of them {pairs[0]!r}, "
            f"with {answers.dtype}, the first {answers[:1].tolist()[0]!r}: expected numbers in "
            "[0, 1]"
        )
    # In the precision of θ, so that the check here and the comparison with θ see the same number.
    scores = answers.astype(np.float32)
    # Negated, so that NaN, for which every comparison is false, counts as bad too.
    bad = np.flatnonzero(~((scores >= 0) & (scores <= 1)))
    if len(bad):
        raise ScorerError(
            f"scorer {name!r} gave {answers[bad[0]]} to the pair {pairs[bad[0]]!r}: "
            "expected a number in [0, 1]"
        )
    return scores
