"""Folder of a search: its plan, and the summary, winner and plots made from the trials.

The winner is an experiment that compares the best setting with the one that the search started
from, on seeds that no trial has used. The summary lists the best trials and explains why the best
mean is optimistic.
"""

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from scpo.errors import RecordError
from scpo.intervals import summarise
from scpo.progress import counted
from scpo.records.files import read_json, write_bytes, write_json
from scpo.schema.search import Search
from sweeps.compose.overrides import parse, parse_all
from sweeps.search.plan import SEARCHES, Plan
from sweeps.search.plots import write_plots
from sweeps.search.space import override_texts
from sweeps.search.study import REASON, RETRY_OF, Result, counts, default_result, ranked
from sweeps.search.trial_code import runs_of, version_notes

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

PLAN, SUMMARY, WINNER = "search.json", "summary.md", "best.yaml"
# Keys that the winner's file sets in its axes and scales, and so not in the overrides of its rows.
NOT_IN_ROWS = ("scale", "env", "model")

# Number of complete trials that the summary shows.
SHOWN = 10


def write_plan(plan: Plan) -> None:
    """Record the plan, so that a summary can be made from the folder."""
    words = [override.text for override in plan.overrides]
    record = {"scale": plan.scale, "words": words, "search": plan.search.model_dump(mode="json")}
    write_json(plan.folder / PLAN, record)


def read_plan(folder: Path) -> Plan:
    """Read the plan from a search's folder, which may have been moved with its runs folder.

    Raises:
        ConfigError: The present configuration files cannot compose its runs.
        RecordError: The plan is missing or damaged.
    """
    record = read_json(folder / PLAN, "Start the search again: it writes the file anew")
    try:
        plan = Plan(
            Search.model_validate(record["search"]), record["scale"], parse_all(record["words"])
        )
    except (ValidationError, LookupError, TypeError) as error:
        raise RecordError(f"{folder / PLAN} describes no search: {error}") from error
    return _with_runs_in(folder.parent.parent, plan)


def _with_runs_in(runs_dir: Path, plan: Plan) -> Plan:
    """The plan with its runs in ``runs_dir``, which may have moved since it was written."""
    if Path(plan.base.machine.runs_dir).resolve() == runs_dir.resolve():
        return plan
    key = "machine.runs_dir"
    kept = [override for override in plan.overrides if override.key != key]
    # In quotes, because a folder's name may have commas or brackets in it.
    here = parse(f"{key}={json.dumps(str(runs_dir), ensure_ascii=False)}")
    return Plan(plan.search, plan.scale, (*kept, here))


def search_folders(runs_dir: Path) -> list[Path]:
    """The folders of all searches, by name."""
    return sorted(path.parent for path in (runs_dir / SEARCHES).glob(f"*/{PLAN}"))


def write_results(plan: Plan, trials: "Sequence[FrozenTrial]") -> list[Path]:
    """Write summary, winner and plots into the search's folder; returns the files."""
    results = ranked(trials)
    winner = []
    if results:
        winner.append(write_winner(plan, results[0], default_result(plan, results)))
    plots = write_plots(plan, trials)
    return [write_summary(plan, trials, plots), *winner, *plots]


def write_winner(plan: Plan, best: Result, default: Result | None) -> Path:
    """Write ``best.yaml`` into the search's folder."""
    path = plan.folder / WINNER
    write_bytes(path, _winner_text(plan, best, default).encode())
    return path


def winner_command(plan: Plan) -> str:
    """Command that runs the winner, with the machine settings, which its file leaves out."""
    machine = [override.text for override in plan.overrides if override.of_machine]
    overrides = [f"+experiment={plan.folder / WINNER}", f"scale={plan.scale}", *machine]
    return " ".join(["python sweep.py", *map(shlex.quote, overrides)])


def _winner_text(plan: Plan, best: Result, default: Result | None) -> str:
    seeds = ", ".join(map(str, plan.seeds))
    reported = "# Chosen on those seeds, it is reported on others"
    if _differ(best, default):
        reported += ", together with the setting that the search started from."
    elif default is not None:
        reported += ". The search started from this setting."
    else:
        reported += "."
    head = (
        f"# @package _global_\n# The best of {plan.study_id}: trial {best.number}, mean "
        f"{best.summary.mean:.4f} of {plan.metric} over seeds {seeds}.\n{reported}\n"
    )
    return head + yaml.safe_dump(
        {"experiment": _experiment(plan, best, default)}, sort_keys=False, width=120
    )


def _differ(best: Result, default: Result | None) -> bool:
    """True if the setting that the search started from has a result and is not the best one."""
    return default is not None and default.number != best.number


def _experiment(plan: Plan, best: Result, default: Result | None) -> dict[str, Any]:
    tuned = override_texts(plan.search.space, best.params)
    rows = [_experiment_row(plan, "tuned", f"tuned (trial {best.number})", tuned)]
    if _differ(best, default):
        rows.insert(0, _experiment_row(plan, "untuned", "as configured", []))
    # Names of experiments consist of letters, digits and underscores.
    study = "".join(letter if letter.isalnum() else "_" for letter in plan.study_id.lower())
    return {
        "name": f"best_of_{study}",
        "title": f"The best of a search over {plan.search.title}, on fresh seeds",
        "axes": {
            "env": [_choice(plan, "env")],
            "model": [_choice(plan, "model")],
            "seeds": list(plan.search.fresh_seeds),
        },
        "rows": rows,
    }


def _experiment_row(plan: Plan, name: str, label: str, values: list[str]) -> dict[str, Any]:
    kept = []
    for override in plan.overrides:
        if not override.of_machine and override.key not in NOT_IN_ROWS:
            kept.append(override.text)
    return {"name": name, "label": label, "overrides": [*kept, *values], "scales": [plan.scale]}


def _choice(plan: Plan, key: str) -> str:
    """The choice of a config group; the last override wins, as in Hydra."""
    values = [str(override.value) for override in plan.overrides if override.key == key]
    return values[-1]


def write_summary(plan: Plan, trials: "Sequence[FrozenTrial]", plots: Sequence[Path]) -> Path:
    """Write the summary into the search's folder."""
    path = plan.folder / SUMMARY
    write_bytes(path, ("\n".join(_summary_lines(plan, trials, plots)) + "\n").encode())
    return path


def _summary_lines(plan: Plan, trials: "Sequence[FrozenTrial]", plots: Sequence[Path]) -> list[str]:
    results = ranked(trials)
    lines = [f"# {plan.search.title}: search `{plan.study_id}`", "", _objective(plan, trials), ""]
    for note in version_notes(plan, runs_of(plan, trials)):
        lines += [f"Note: {note}.", ""]
    if results:
        pruned = sum(trial.state.name == "PRUNED" for trial in trials)
        lines += [*_best(plan, results, pruned), "", *_table(results, list(plan.search.space)), ""]
    else:
        lines += ["No trial is complete: there is no best setting yet.", ""]
    lines += _failures(trials)
    for plot in plots:
        lines += [f"![{plot.stem}]({plot.name})", ""]
    return lines


def _objective(plan: Plan, trials: "Sequence[FrozenTrial]") -> str:
    seeds = ", ".join(map(str, plan.seeds))
    return (
        f"Maximised: mean of `{plan.metric}` at the last step over seeds {seeds}; scale "
        f"{plan.scale}, {plan.base.env.name}, {plan.base.model.name}; sampler "
        f"{plan.search.sampler.name}, at most {plan.settings} settings. Trials: {counts(trials)}."
    )


def _best(plan: Plan, results: Sequence[Result], pruned: int) -> list[str]:
    best = results[0]
    default = default_result(plan, results)
    fresh = ", ".join(map(str, plan.search.fresh_seeds))
    setting = ", ".join(f"{name} = {value}" for name, value in best.params.items())
    tied = []
    for result in results:
        # Not ==, because means of equal values can differ in the last bit.
        if math.isclose(result.summary.mean, best.summary.mean):
            tied.append(str(result.number))
    together = (
        ", together with the setting that the search started from,"
        if _differ(best, default)
        else ""
    )
    lines = [f"**Best: trial {best.number}, {_mean(best)}.** {setting}", ""]
    if len(tied) > 1:
        lines += [
            f"Tied: the trials {', '.join(tied)} have this mean, and nothing tells them apart; "
            f"trial {best.number} is the first of them.",
            "",
        ]
    lines += [
        f"The highest of {len(results)} noisy means is optimistic: part of it is luck on these "
        "seeds. A search's winner is never reported on the seeds it was chosen on "
        f"({', '.join(map(str, plan.seeds))}). Run it on fresh "
        f"ones ({fresh}){together} and report that:",
        "",
        "```bash",
        winner_command(plan),
        "```",
    ]
    if default is None:
        return lines
    return [*lines, "", _gain_over(best, default, pruned)]


def _gain_over(best: Result, default: Result, pruned: int) -> str:
    if best.number == default.number:
        if not pruned:
            return "No setting was better than the one the search started from."
        were = "was" if pruned == 1 else "were"
        return (
            "No setting of a completed trial was better than the one the search started from; "
            f"{counted(pruned, 'trial')} {were} pruned."
        )
    # Paired: both settings ran on the same seeds.
    gain = summarise(best.by_seed[seed] - default.by_seed[seed] for seed in best.by_seed)
    text = (
        f"The setting the search started from (trial {default.number}): {_mean(default)}. "
        f"The best is {gain.mean:+.3f}"
    )
    low, high = gain.interval()
    if math.isnan(low):
        return f"{text} above it."
    # Differences between few games take few values, and two of them may be equal.
    if math.isclose(low, high, abs_tol=1e-9):
        return f"{text} above it on each seed, and equal differences have no interval."
    # The best has the highest mean, so only the lower bound can separate the interval from 0.
    where = "outside of" if low > 0 else "within"
    return (
        f"{text} above it, paired by seed; 0 is {where} that difference's interval "
        f"({low:+.3f} to {high:+.3f})."
    )


def _table(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    seeds = list(results[0].by_seed)
    head = ["rank", "trial", "mean", "95% interval", *(f"seed {seed}" for seed in seeds), *names]
    rows = []
    for rank, result in enumerate(results[:SHOWN], start=1):
        mean = f"{result.summary.mean:.3f}"
        by_seed = [f"{value:.3f}" for value in result.by_seed.values()]
        setting = [str(result.params[name]) for name in names]
        rows.append([str(rank), str(result.number), mean, _interval(result), *by_seed, *setting])
    title = (
        f"The best {len(rows)} of {len(results)} complete trials (Student-t intervals over the "
        "seeds):"
    )
    rule = ["---"] * len(head)
    lines = [f"| {' | '.join(row)} |" for row in [head, rule, *rows]]
    return [title, "", *lines]


def _failures(trials: "Sequence[FrozenTrial]") -> list[str]:
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    retried = {trial.user_attrs.get(RETRY_OF) for trial in trials}
    lines = []
    for trial in failed:
        again = ", tried again" if trial.number in retried else ""
        lines.append(f"- trial {trial.number}{again}: {trial.user_attrs[REASON]}")
    if not lines:
        return []
    return ["Failed trials:", "", *lines, ""]


def _mean(result: Result) -> str:
    return f"mean {result.summary.mean:.3f} ({_interval(result)})"


def _interval(result: Result) -> str:
    low, high = result.summary.interval()
    if math.isnan(low):
        return "one seed: no interval"
    return f"{low:.3f} to {high:.3f}"
