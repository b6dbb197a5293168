"""``summary.md``: what a search found, and what it does not show."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.intervals import summarise
from scpo.tracking.atomic import write_bytes
from sweeps.search import winner
from sweeps.search.plan import Plan
from sweeps.search.results import Result, default_result, ranked
from sweeps.search.search_messages import counts
from sweeps.search.study import REASON, RETRY_OF

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SUMMARY = "summary.md"
SHOWN = 10


def write_summary(plan: Plan, trials: "Sequence[FrozenTrial]", plots: Sequence[Path]) -> Path:
    """Write the summary into the search's folder."""
    path = plan.folder / SUMMARY
    write_bytes(path, ("\n".join(_lines(plan, trials, plots)) + "\n").encode())
    return path


def _lines(plan: Plan, trials: "Sequence[FrozenTrial]", plots: Sequence[Path]) -> list[str]:
    results = ranked(trials)
    lines = [f"# {plan.search.title}: search `{plan.study_id}`", "", _what(plan, trials), ""]
    if results:
        lines += [*_best(plan, results), "", *_table(results, list(plan.search.space)), ""]
    else:
        lines += ["No trial is complete: there is no best setting yet.", ""]
    lines += _failures(trials)
    return lines + [line for plot in plots for line in (f"![{plot.stem}]({plot.name})", "")]


def _what(plan: Plan, trials: "Sequence[FrozenTrial]") -> str:
    seeds = ", ".join(map(str, plan.seeds))
    return (
        f"Maximised: mean of `{plan.metric}` at the last step over seeds {seeds}; scale {plan.scale}, "
        f"{plan.base.env.name}, {plan.base.model.name}; sampler {plan.search.sampler.name}, at most {plan.trials} "
        f"settings. Trials: {counts(trials)}."
    )


def _best(plan: Plan, results: Sequence[Result]) -> list[str]:
    best, default = results[0], default_result(plan, results)
    fresh = ", ".join(map(str, plan.search.fresh_seeds))
    lines = [
        f"**Best: trial {best.number}, {_mean(best)}.** "
        + ", ".join(f"{name} = {value}" for name, value in best.params.items()),
        "",
        f"The highest of {len(results)} noisy means is optimistic: part of it is luck on these very seeds. A search's "
        f"winner is never reported on the seeds it was chosen on ({', '.join(map(str, plan.seeds))}). Run it on fresh "
        f"ones ({fresh}), beside the setting that the search started from, and report that:",
        "",
        "```bash",
        winner.command(plan),
        "```",
    ]
    return [*lines, "", _against(best, default)] if default is not None else lines


def _against(best: Result, default: Result) -> str:
    if best.number == default.number:
        return "No setting was better than the one the search started from."
    gain = summarise(best.by_seed[seed] - default.by_seed[seed] for seed in best.by_seed)
    text = (
        f"The setting the search started from (trial {default.number}): {_mean(default)}. The best is {gain.mean:+.3f}"
    )
    low, high = gain.interval()
    if math.isnan(low):
        return f"{text} above it."
    where = "outside of" if low > 0 else "within"
    return f"{text} above it, paired by seed; 0 is {where} that difference's interval ({low:+.3f} to {high:+.3f})."


def _table(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    seeds = list(results[0].by_seed)
    head = ["rank", "trial", "mean", "95% interval", *(f"seed {seed}" for seed in seeds), *names]
    rows = [
        [
            str(rank),
            str(one.number),
            f"{one.summary.mean:.3f}",
            _interval(one),
            *(f"{value:.3f}" for value in one.by_seed.values()),
            *(str(one.params[name]) for name in names),
        ]
        for rank, one in enumerate(results[:SHOWN], start=1)
    ]
    title = f"The best {len(rows)} of {len(results)} complete trials (Student-t intervals over the seeds):"
    return [title, "", *(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])]


def _failures(trials: "Sequence[FrozenTrial]") -> list[str]:
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    retried = {trial.user_attrs.get(RETRY_OF) for trial in trials}
    lines = [
        f"- trial {trial.number}{', tried again' if trial.number in retried else ''}: {trial.user_attrs[REASON]}"
        for trial in failed
    ]
    return ["Failed trials:", "", *lines, ""] if lines else []


def _mean(result: Result) -> str:
    return f"mean {result.summary.mean:.3f} ({_interval(result)})"


def _interval(result: Result) -> str:
    low, high = result.summary.interval()
    return "one seed: no interval" if math.isnan(low) else f"{low:.3f} to {high:.3f}"
