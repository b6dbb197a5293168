"""Thresholds of the acceptance script: what each part must have found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Findings = dict[str, Any]


class Verdict(StrEnum):
    """Whether a threshold was met; NOT_RUN: its part was not run, or logged no such figure."""

    PASS = "PASS"  # noqa: S105 (no password)
    FAIL = "FAIL"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Threshold:
    """One expectation. ``read`` returns None where the part has no such figure."""

    part: str
    name: str
    expected: str
    read: Callable[[Findings], Any]
    holds: Callable[[Any, Findings], bool]


def verdicts(report: dict[str, Any]) -> list[tuple[Threshold, Verdict, Any]]:
    """Every threshold with its verdict and what was found; ``holds`` gets the report as well."""
    return [_judged(one, report) for one in THRESHOLDS]


def _judged(threshold: Threshold, report: dict[str, Any]) -> tuple[Threshold, Verdict, Any]:
    entry = report["parts"][threshold.part]
    if entry["status"] == "broken":
        return threshold, Verdict.FAIL, entry["reason"]
    if entry["status"] != "ended":
        return threshold, Verdict.NOT_RUN, None
    findings = entry["findings"]
    try:
        found = threshold.read(findings)
    except (KeyError, IndexError):
        found = None
    if found is None:
        # A part that did not end well has no figures because of that: no figure is then a failure.
        failed = findings.get("timed_out") or findings.get("exit", 0) not in STATUSES_THAT_REPORT
        return threshold, Verdict.FAIL if failed else Verdict.NOT_RUN, None
    return threshold, Verdict.PASS if threshold.holds(found, report) else Verdict.FAIL, found


STOPPED = 130  # train.py after SIGTERM: INTERRUPTED, with a checkpoint
STATUSES_THAT_REPORT = (0, STOPPED)


def _metric(*names: str, of: str = "first_update") -> Callable[[Findings], Any]:
    """The first of these metrics that was logged: verl's name, then that of trainer=local."""

    def read(findings: Findings) -> Any:
        logged = findings.get(of, {})
        return next((logged[name] for name in names if name in logged), None)

    return read


def _found(name: str) -> Callable[[Findings], Any]:
    return lambda findings: findings.get(name)


def _below(limit: float) -> Callable[[Any, Findings], bool]:
    return lambda found, _: math.isfinite(found) and abs(found) < limit


def _above(limit: float) -> Callable[[Any, Findings], bool]:
    return lambda found, _: math.isfinite(found) and found > limit


def _is(expected: Any) -> Callable[[Any, Findings], bool]:
    return lambda found, _: found == expected


def _full(found: float, report: Findings) -> bool:
    return report["gpu_gib"] is None or found < report["gpu_gib"]


def _largest_gib(findings: Findings) -> float | None:
    return max(findings.get("peak_gib") or [], default=None)


def _steps_go_on(findings: Findings) -> list[int] | None:
    before, steps = findings.get("step_before"), findings.get("steps")
    if before is None or steps is None:
        return None
    return [step for step in steps if step >= before][:2]


def _with_the_longest_rows(findings: Findings) -> float | None:
    if not findings.get("gpu_gib"):
        return None
    return float(findings["measured_gib"] + findings["rest_of_table_gib"])


RATE = ("actor/lr", "actor/learning_rate")
PROBABILITIES = "training/rollout_probs_diff_mean"
PEARSON = "training/rollout_actor_probs_pearson_corr"

THRESHOLDS: tuple[Threshold, ...] = (
    Threshold("doctor", "errors", "0", lambda found: len(found["errors"]), _is(0)),
    Threshold("smoke", "exit status after SIGTERM", "130", _found("exit"), _is(STOPPED)),
    Threshold("smoke", "steps recorded", "1 or more", _found("step"), _above(0)),
    Threshold(
        "smoke", "KL of the first update", "below 0.01",
        _metric("actor/ppo_kl", "actor/kl_old"), _below(0.01),
    ),
    Threshold(
        "smoke", "clip fraction of the first update", "below 0.05",
        _metric("actor/pg_clipfrac", "actor/clip_fraction"), _below(0.05),
    ),
    Threshold(
        "smoke", "entropy", "finite, above 0",
        _metric("actor/entropy", "actor/entropy_loss"), _above(0),
    ),
    Threshold("smoke", "gradient norm", "finite, above 0", _metric("actor/grad_norm"), _above(0)),
    Threshold("smoke", "learning rate", "finite, above 0", _metric(*RATE), _above(0)),
    Threshold("smoke", "invalid rate", "below 0.95", _metric("train/invalid_rate"), _below(0.95)),
    Threshold(
        "smoke", "response length", "above 5 tokens",
        _metric("response_length/mean"), _above(5),
    ),
    Threshold(
        "smoke", "share of responses at the limit", "below 0.5",
        _metric("response_length/clip_ratio"), _below(0.5),
    ),
    Threshold(
        "smoke", "mean difference of rollout and update probabilities", "below 0.02",
        _metric(PROBABILITIES), _below(0.02),
    ),
    Threshold("smoke", "their Pearson correlation", "above 0.99", _metric(PEARSON), _above(0.99)),
    Threshold("resume", "exit status after SIGTERM", "130", _found("exit"), _is(STOPPED)),
    Threshold(
        "resume", "steps from the stop on", "the next one",
        _steps_go_on, lambda found, _: len(found) == 2 and found[1] == found[0] + 1,
    ),
    Threshold("left_over", "processes", "none", lambda found: len(found["processes"]), _is(0)),
    Threshold(
        "left_over", "GiB more on a GPU than before", "below 1",
        _found("gpu_gib_more"), _below(1.0),
    ),
    Threshold("sleep", "GiB of a sleeping engine", "below 2", _found("asleep_gib"), _below(2.0)),
    Threshold("sleep", "same answer after waking", "True", _found("same_answer"), _is(True)),
    Threshold(
        "attention", "mean difference of probabilities", "below 0.02",
        _found("mean_difference"), _below(0.02),
    ),
    Threshold(
        "attention", "their Pearson correlation", "above 0.99",
        _found("pearson"), _above(0.99),
    ),
    Threshold("longest", "exit status", "0", _found("exit"), _is(0)),
    Threshold(
        "longest", "GiB with the longest rows", "below the GPU's",
        _with_the_longest_rows, _full,
    ),
    Threshold(
        "scorer", "share of flips of theta in float16", "at most 0.001",
        _found("share_of_flips"), _below(0.00101),
    ),
    Threshold("tensor_parallel", "exit status", "0", _found("exit"), _is(0)),
    Threshold(
        "tensor_parallel", "mean difference of rollout and update probabilities", "below 0.02",
        _metric(PROBABILITIES), _below(0.02),
    ),
    Threshold("step", "exit status", "0", _found("exit"), _is(0)),
    Threshold(
        "step", "episodes", "groups x siblings",
        _metric("train/episodes"),
        lambda found, report: report["dry"] or found == report["episodes"],
    ),
    Threshold(
        "step", "mean difference of rollout and update probabilities", "below 0.02",
        _metric(PROBABILITIES), _below(0.02),
    ),
    Threshold("step", "their Pearson correlation", "above 0.99", _metric(PEARSON), _above(0.99)),
    Threshold(
        "step", "descents", "0 to 3",
        _metric("credit/descents"), lambda found, _: 0 <= found <= 3,
    ),
    Threshold(
        "step", "smallest mini-batch", "1 or more rows",
        _metric("train/smallest_mini_batch"), _above(0),
    ),
    Threshold("step", "peak GiB of the fullest GPU", "below the GPU's", _largest_gib, _full),
    Threshold(
        "step", "MFU of the update", "above 0.1",
        _metric("perf/mfu/actor", of="timing"), _above(0.1),
    ),
)  # fmt: skip
