"""The credit rules of the precision table, and what each makes of recorded rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scpo.diagnostics.rollout_file import Recorded, read_rollouts
from scpo.diagnostics.step_credit import (
    StepCredit,
    What,
    credited_rows,
    helping_steps,
    judge_of,
    step_credit,
    tally,
    with_states,
)
from scpo.library import load_environment, load_method, load_scorer
from scpo.schema import WITH_STEP_TERM, TrainedMethod, method_label

MATCHERS = {"kmp": "Algorithm 2", "forward": "forward"}
ORDERS = ("balanced", "chronological", "length", "random")
KEYS = {"anchor": "observation", "state": "state"}
SCORERS = {"exact": "equal texts", "lexical": "lexical", "minilm": "MiniLM"}
"""Those that need no download; ``--scorer bge_reranker_v2_m3`` adds the paper's."""


@dataclass(frozen=True)
class Rule:
    """One row: a method, its scorer, and what of its credit is looked at."""

    block: str
    label: str
    what: What
    method: TrainedMethod
    scorer: str | None = None


@dataclass
class Remembering:
    """A scorer that is asked for a pair once, however many rules want it."""

    name: str
    scorer: Any = None
    known: dict[tuple[str, str], np.float32] = field(default_factory=dict)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """As the scorer's, which is loaded when the first pair comes."""
        self.scorer = self.scorer or load_scorer(self.name)
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        if new:
            self.known.update(zip(new, self.scorer.score(new), strict=True))
        return np.array([self.known[pair] for pair in pairs], dtype=np.float32)


def rules(scorers: Sequence[str] = tuple(SCORERS)) -> Iterator[Rule]:
    """Every row, in the order of the table."""
    for matcher, order, scorer in product(MATCHERS, ORDERS, scorers):
        yield _shaped("SCPO's credit", "credit", scorer, matcher=matcher, order=order)
    for matcher, order in product(MATCHERS, ORDERS[:2]):
        yield _shaped(
            "SCPO's credit",
            "credit",
            "exact",
            matcher=matcher,
            order=order,
            step_text="action_next_state",
        )
    yield _shaped(
        "SCPO's credit", "credit", "exact", matcher="kmp", order="balanced", allocation="graph"
    )
    for matcher, order, scorer in product(MATCHERS, ORDERS[:2], scorers):
        yield _shaped(
            "Raised by SCPO's credit on GiGPO", "raised", scorer, matcher=matcher, order=order
        )
    block = "Step term of the advantage"
    for name in WITH_STEP_TERM:
        published = load_method(name).estimator.model_dump().get("state_key", "anchor")
        for key, compared in KEYS.items():
            label = (
                f"{method_label(name)}, by {compared}{' (published)' if key == published else ''}"
            )
            yield Rule(block, label, "step_term", load_method(name, state_key=key))
        if name == "hgpo":
            yield Rule(
                block,
                f"HGPO, K = 4, by {KEYS['anchor']}",
                "step_term",
                load_method(name, context=4),
            )
    for matcher, order, scorer in product(MATCHERS, ORDERS[:2], scorers):
        yield _shaped(block, "step_term", scorer, matcher=matcher, order=order)
    yield from _without_penalty()


def _without_penalty() -> Iterator[Rule]:
    """What the states alone make positive: without the penalty of invalid actions, which raises the rows beside it."""
    rows: list[tuple[str, str, dict[str, Any]]] = [
        *((name, "", {}) for name in ("gigpo", "graphgpo", "crbc", "gagpo", "rewardflow")),
        ("rewardflow", ", nothing bridged", {"bridge": False}),
    ]
    for name, how, settings in rows:
        method = load_method(name, state_key="anchor", invalid_penalty=0.0, **settings)
        label = f"{method_label(name)}, by {KEYS['anchor']}{how}"
        yield Rule("Step term without the penalty of invalid actions", label, "step_term", method)


def _shaped(block: str, what: What, scorer: str, **settings: Any) -> Rule:
    compared = (
        "equal states"
        if settings.get("step_text") == "action_next_state"
        else SCORERS.get(scorer, scorer)
    )
    label = f"{MATCHERS[settings['matcher']]}, {settings['order']}, {compared}"
    if settings.get("allocation") == "graph":
        label = f"as much on the graph's steps ({label})"
    host = "SCPO on GiGPO: " if what == "step_term" else ""
    return Rule(block, host + label, what, load_method("scpo", **settings), scorer)


def judge(
    files: Sequence[Path],
    chosen: Sequence[Rule],
    *,
    games: str | None,
    cache_dir: str | None,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[StepCredit, list[tuple[Rule, StepCredit]]]:
    """How the credit of each rule falls on the failed steps of recorded rollouts.

    Args:
        files: As ``scpo.diagnostics.rollout_file`` describes them.
        chosen: The rules.
        games: Folder of the official games that were played; None: they are generated ones.
        cache_dir: Where the games' translations are kept.
        tell: Is given a line for each batch and rule that is done.

    Returns:
        What crediting every step would give, and each rule's.

    Raises:
        RecordError: A file holds no rollouts.
        GameError: A game is not there.
    """
    source = "official" if games else "generated"
    environment = judge_of(
        load_environment("alfworld", cache_dir=cache_dir, data=games, games=source)
    )
    judged = []
    for recorded in _distinct(files, tell):
        batch = with_states(environment, recorded.batch)
        helping = helping_steps(environment, batch)
        judged.append((replace(recorded, batch=batch), helping))
        known, unknown = len(helping.row_S), helping.unknown
        tell(
            f"step {recorded.step}: {known} failed steps beside a success, {unknown} without a plan"
        )
    scorers = {rule.scorer: Remembering(rule.scorer) for rule in chosen if rule.scorer}
    found = []
    for rule in chosen:
        counts = [
            tally(helping, _credited(recorded, rule, scorers)) for recorded, helping in judged
        ]
        fell = step_credit(counts)
        found.append((rule, fell))
        tell(f"{rule.label}: {fell.credited} of {fell.steps} steps credited")
    everything = [
        tally(helping, np.ones(len(recorded.batch), dtype=np.bool_)) for recorded, helping in judged
    ]
    return step_credit(everything), found


def _distinct(files: Sequence[Path], tell: Callable[[str], None]) -> Iterator[Recorded]:
    """Every batch once: runs of one seed begin alike."""
    seen: set[int] = set()
    for path in files:
        for recorded in read_rollouts(path):
            batch = recorded.batch
            played = hash((recorded.step, _texts(batch.task_id_N), _texts(batch.action_N)))
            if played in seen:
                tell(f"{path.name}, step {recorded.step}: as in an earlier file, left out")
            else:
                seen.add(played)
                yield recorded


def _texts(column: NDArray[Any] | None) -> tuple[str, ...]:
    return () if column is None else tuple(column.tolist())


def _credited(recorded: Recorded, rule: Rule, scorers: dict[str, Remembering]) -> NDArray[np.bool_]:
    shaper = rule.method.shaper
    batch = recorded.ordered(shaper.order, shaper.order_ranks) if shaper else recorded.batch
    scorer = scorers[rule.scorer] if rule.scorer else None
    return credited_rows(batch, rule.method, scorer, (0, recorded.step), rule.what)
