"""``python -m analysis precision``: the steps of recorded rollouts that get each rule's credit.

All rules are applied to the same rollouts, read from files, so that they can be compared without
training.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from analysis.rendering.table import Block, Table
from scpo.advantages.registry import WITH_STEP_TERM
from scpo.diagnostics.rollout_file import Recorded, read_rollouts
from scpo.diagnostics.step_credit import (
    Rate,
    StepCredit,
    What,
    credited_rows,
    helping_steps,
    judge_of,
    step_credit,
    tally,
    with_states,
)
from scpo.intervals import decimal
from scpo.library import load_environment, load_method, load_scorer
from scpo.records.files import write_bytes
from scpo.schema.method import TrainedMethod, method_label

NAME = "tab_precision_recorded"
MATCHERS = {"kmp": "Algorithm 2", "forward": "forward"}
ORDERS = ("balanced", "chronological", "length", "random")

# State keys of estimators -> what they compare, in print.
KEYS = {"anchor": "observation", "state": "state"}

# The default: scorers that need no download. ``--scorer bge_reranker_v2_m3`` is the paper's.
SCORERS = {"exact": "equal texts", "lexical": "lexical", "minilm": "MiniLM"}
CAPTION = (
    "How often credit falls on a step that helps, one after which a shortest plan to win is "
    "shorter, on the same recorded rollouts for every rule: the {steps} failed steps of the "
    "{clusters} groups with a success and a failure. Precision: of credited steps, the share that "
    "helps; over chance: less the share of all steps that help, {chance}; recall: of steps that "
    "help, the share credited. Percent, with 95 % intervals of a bootstrap that draws whole groups "
    "(2,000 times, the same draws for every rule), for the steps of a group share a game and a "
    "reference. Step term: what of the advantage tells the steps of a trajectory apart, where it "
    "is positive. Raised: steps whose advantage on GiGPO is higher with the credit than without."
)


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes:
        block: Title of its block.
        label: Label in print.
        what: Part of its credit that is judged.
        method: Configuration of the method.
        scorer: Name of its scorer; None for a method without a shaper.
    """

    block: str
    label: str
    what: What
    method: TrainedMethod
    scorer: str | None = None


@dataclass
class CachedScorer:
    """A scorer that computes each pair once for all rules."""

    name: str
    scorer: Any = None
    scores: dict[tuple[str, str], np.float32] = field(default_factory=dict)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs of texts; the first call loads the scorer."""
        self.scorer = self.scorer or load_scorer(self.name)
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.scores]
        if new:
            self.scores.update(zip(new, self.scorer.score(new), strict=True))
        return np.array([self.scores[pair] for pair in pairs], dtype=np.float32)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        help="recorded rollouts (tests/data/rollouts shows their form)",
    )
    parser.add_argument(
        "--games",
        help="folder of the official games that were played (default: generated ones)",
    )
    parser.add_argument(
        "--cache",
        default=".cache/scpo",
        help="translations of games (default: .cache/scpo)",
    )
    parser.add_argument(
        "--scorer",
        action="append",
        help=f"scorer of SCPO's rows, may be repeated (default: {', '.join(SCORERS)})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("paper_figures"),
        help="output folder (default: paper_figures)",
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Evaluate the credit of every rule, write the table and print it; returns the exit code 0.

    Raises:
        ScpoError: A file holds no rollouts, a game or a scorer is missing, or no step can be
            judged.
    """
    chance, results = judge(
        options.files,
        list(rules(options.scorer or tuple(SCORERS))),
        games=options.games,
        cache_dir=options.cache,
        log=lambda line: console.print(escape(line)),
    )
    table = recorded_table(chance, results)
    for ending, content in table.files().items():
        write_bytes(options.out / f"{NAME}.{ending}", content, readable=True)
    console.print(table.md(), markup=False)
    console.print(f"written: {options.out / NAME}.tex, .md, .csv", markup=False)
    return 0


# Rules


def rules(scorers: Sequence[str] = tuple(SCORERS)) -> Iterator[Rule]:
    """Yield all rules, in the order of the table's rows."""
    yield from _credit_rules(scorers)
    block = "Raised by SCPO's credit on GiGPO"
    for matcher, order, scorer in product(MATCHERS, ORDERS[:2], scorers):
        yield _shaped(block, "raised", scorer, matcher=matcher, order=order)
    yield from _step_term_rules(scorers)
    yield from _rules_without_penalty()


def _credit_rules(scorers: Sequence[str]) -> Iterator[Rule]:
    block = "SCPO's credit"
    for matcher, order, scorer in product(MATCHERS, ORDERS, scorers):
        yield _shaped(block, "credit", scorer, matcher=matcher, order=order)
    # To match equal states, the scorer of equal texts reads texts that hold the next state.
    for matcher, order in product(MATCHERS, ORDERS[:2]):
        yield _shaped(
            block,
            "credit",
            "exact",
            matcher=matcher,
            order=order,
            step_text="action_next_state",
        )
    yield _shaped(block, "credit", "exact", matcher="kmp", order="balanced", allocation="graph")


def _step_term_rules(scorers: Sequence[str]) -> Iterator[Rule]:
    block = "Step term of the advantage"
    for name in WITH_STEP_TERM:
        published = load_method(name).estimator.model_dump().get("state_key", "anchor")
        for key, compared in KEYS.items():
            label = f"{method_label(name)}, by {compared}"
            if key == published:
                label += " (published)"
            yield Rule(block, label, "step_term", load_method(name, state_key=key))
        if name == "hgpo":
            label = f"HGPO, K = 4, by {KEYS['anchor']}"
            yield Rule(block, label, "step_term", load_method(name, context=4))
    for matcher, order, scorer in product(MATCHERS, ORDERS[:2], scorers):
        yield _shaped(block, "step_term", scorer, matcher=matcher, order=order)


def _rules_without_penalty() -> Iterator[Rule]:
    """Yield step terms without the penalty of invalid actions.

    The penalty raises valid steps above invalid ones, which hides the effect of the states.
    """
    block = "Step term without the penalty of invalid actions"
    variants: list[tuple[str, str, dict[str, Any]]] = [
        ("gigpo", "", {}),
        ("graphgpo", "", {}),
        ("crbc", "", {}),
        ("gagpo", "", {}),
        ("rewardflow", "", {}),
        ("rewardflow", ", nothing bridged", {"bridge": False}),
    ]
    for name, suffix, settings in variants:
        method = load_method(name, state_key="anchor", invalid_penalty=0.0, **settings)
        label = f"{method_label(name)}, by {KEYS['anchor']}{suffix}"
        yield Rule(block, label, "step_term", method)


def _shaped(block: str, what: What, scorer: str, **settings: Any) -> Rule:
    """The rule of SCPO with these settings of its shaper."""
    compared = SCORERS.get(scorer, scorer)
    if settings.get("step_text") == "action_next_state":
        compared = "equal states"
    label = f"{MATCHERS[settings['matcher']]}, {settings['order']}, {compared}"
    if settings.get("allocation") == "graph":
        label = f"as much on the graph's steps ({label})"
    if what == "step_term":
        label = f"SCPO on GiGPO: {label}"
    return Rule(block, label, what, load_method("scpo", **settings), scorer)


# Judging


def judge(
    files: Sequence[Path],
    chosen: Sequence[Rule],
    *,
    games: str | None,
    cache_dir: str | None,
    log: Callable[[str], None] = lambda line: None,
) -> tuple[StepCredit, list[tuple[Rule, StepCredit]]]:
    """Evaluate the credit of each rule on the failed steps of recorded rollouts.

    Args:
        files: Files in the format of ``scpo.diagnostics.rollout_file``.
        chosen: The rules.
        games: Folder of the official games that were played; None for generated ones.
        cache_dir: Folder of the games' translations.
        log: Called with a line after each batch and each rule.

    Returns:
        The result of crediting every step, which is the precision of chance, and of each rule.

    Raises:
        RecordError: A file holds no rollouts.
        GameError: A game is missing.
    """
    source = "official" if games else "generated"
    environment = load_environment("alfworld", cache_dir=cache_dir, data=games, games=source)
    plans = judge_of(environment)
    # Plans do not depend on the rule and are searched only once.
    judged = []
    for recorded in _distinct(files, log):
        batch = with_states(plans, recorded.batch)
        helping = helping_steps(plans, batch)
        judged.append((replace(recorded, batch=batch), helping))
        log(
            f"step {recorded.step}: {len(helping.row_S)} failed steps in groups with a success, "
            f"{helping.unknown} without a plan"
        )

    scorers = {rule.scorer: CachedScorer(rule.scorer) for rule in chosen if rule.scorer}
    results = []
    for rule in chosen:
        counts = []
        for recorded, helping in judged:
            counts.append(tally(helping, _credited(recorded, rule, scorers)))
        result = step_credit(counts)
        results.append((rule, result))
        log(f"{rule.label}: {result.credited} of {result.steps} steps credited")

    every_step = []
    for recorded, helping in judged:
        every_step.append(tally(helping, np.ones(len(recorded.batch), dtype=np.bool_)))
    return step_credit(every_step), results


def _distinct(files: Sequence[Path], log: Callable[[str], None]) -> Iterator[Recorded]:
    """Yield every batch once: runs of one seed start with the same batches."""
    seen: set[int] = set()
    for path in files:
        for recorded in read_rollouts(path):
            batch = recorded.batch
            played = hash((recorded.step, _texts(batch.task_id_N), _texts(batch.action_N)))
            if played in seen:
                log(f"{path.name}, step {recorded.step}: as in an earlier file, left out")
            else:
                seen.add(played)
                yield recorded


def _texts(column: NDArray[Any] | None) -> tuple[str, ...]:
    return () if column is None else tuple(column.tolist())


def _credited(
    recorded: Recorded,
    rule: Rule,
    scorers: dict[str, CachedScorer],
) -> NDArray[np.bool_]:
    batch = recorded.batch
    shaper = rule.method.shaper
    if shaper:
        # A trainer's random order depends on its seed; use the recorded ranks, not a new draw.
        batch = recorded.ordered(shaper.order, shaper.order_ranks)
    scorer = scorers[rule.scorer] if rule.scorer else None
    return credited_rows(batch, rule.method, scorer, (0, recorded.step), rule.what)


# The table


def recorded_table(chance: StepCredit, results: Sequence[tuple[Rule, StepCredit]]) -> Table:
    """Table of credit rules on recorded rollouts; ``chance``: a rule that credits every step."""
    blocks = []
    for title, entries in groupby(results, key=lambda entry: entry[0].block):
        rows = tuple(_rule_row(rule.label, result) for rule, result in entries)
        blocks.append(Block(title, rows))
    caption = CAPTION.format(
        steps=f"{chance.steps:,}",
        clusters=chance.clusters,
        chance=_interval(chance.precision).replace(" ", " % ", 1),
    )
    return Table(
        words=("Credit rule", "Credited", "Share credited", "Precision", "Over chance", "Recall"),
        numbers=(),
        blocks=tuple(blocks),
        caption=caption,
        label="tab:precision-recorded",
    )


def _rule_row(label: str, result: StepCredit) -> tuple[str, ...]:
    return (
        label,
        f"{result.credited:,}",
        _interval(result.share),
        _interval(result.precision),
        _interval(result.gain, sign=True),
        _interval(result.recall),
    )


def _interval(rate: Rate, *, sign: bool = False) -> str:
    if math.isnan(rate.value):
        return "–"
    value, low, high = (
        decimal(100 * number, 1, sign=sign) for number in (rate.value, rate.low, rate.high)
    )
    return f"{value} [{low}, {high}]"
