"""Whether what `make demo` and `make report` left behind is what the README promises: nothing to say, exit status 0.

python .ci/check_demo.py ablation_monotonicity-mini [--runs runs] [--figures paper_figures]
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES = (
    *("tab_ablation_mini.md", "tab_shaper_mini.tex", "tab_cost_mini.csv", "fig_learning_mini.png"),
    *("fig_credit_heatmap_mini.png", "fig_credit_trend_mini.pdf", "fig_credit_tsne_mini.md"),
)
SMALLEST = 500  # bytes: less is an empty table or figure
HELD_OUT = ("valid_seen", "valid_unseen")


def problems(experiment: str, runs: Path, figures: Path) -> Iterator[str]:
    """What is wrong, each as one sentence.

    Raises:
        OSError: A record is not there.
        ValueError: A record is no JSON.
    """
    rows = {row["name"]: row["runs"] for row in _json(runs / "experiments" / f"{experiment}.json")["rows"]}
    if len(rows) < 2:
        yield f"{experiment} compares nothing: its rows are {', '.join(rows) or 'none'}"
    for name, members in rows.items():
        folders = [runs / run["id"] for run in members]
        yield from (
            f"{folder} is {state}, not DONE"
            for folder in folders
            if (state := _json(folder / "status.json")["state"]) != "DONE"
        )
        yield from _of_row(name, [_metrics(folder) for folder in folders])
    yield from (
        f"{figures / name} is not there or nearly empty"
        for name in FILES
        if not (figures / name).is_file() or (figures / name).stat().st_size < SMALLEST
    )
    yield from _of_report(figures / "report.html", [run["id"] for members in rows.values() for run in members])


def _of_row(name: str, logs: list[list[dict[str, Any]]]) -> Iterator[str]:
    """The mean over a row's seeds rises on the games trained on; the panels held out are beside it; credit is given."""
    first, last = (_mean([log[end]["val/train_games/success_rate"] for log in logs]) for end in (0, -1))
    if last <= first:
        yield f"{name}: success on the games trained on went from {first:.3f} to {last:.3f}, and should rise"
    missing = [panel for panel in HELD_OUT if not all(f"val/{panel}/success_rate" in log[-1] for log in logs)]
    if missing:
        yield f"{name}: the last step was not validated on {', '.join(missing)}"
    for key, meaning in (("credit/active_groups", "no group was active"), ("credit/aux_mean", "no credit was given")):
        if not all(any(line.get(key, 0) > 0 for line in log) for log in logs):
            yield f"{name}: {meaning} in one of its runs"


def _of_report(path: Path, ids: list[str]) -> Iterator[str]:
    """The page shows every run, and for each at least one step that got credit."""
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    shown = json.loads(found[1]) if found else {"runs": [], "groups": {"runs": {}}}
    listed = {run["id"] for run in shown["runs"]}
    for run in ids:
        if run not in listed:
            yield f"{path} does not show {run}"
        groups = [group for step in shown["groups"]["runs"].get(run, []) for group in step["groups"]]
        if not any(match["credited"] for group in groups for match in group["matches"]):
            yield f"{path} shows no step of {run} that got credit"


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main(arguments: list[str] | None = None) -> int | str:
    """Parse the command line; a text is an error to ``sys.exit``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="name of a record in runs/experiments, without .json")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--figures", type=Path, default=Path("paper_figures"))
    options = parser.parse_args(arguments)
    try:
        return "\n".join(problems(options.experiment, options.runs, options.figures)) or 0
    except (OSError, ValueError) as error:
        return f"the demo's records cannot be read: {error}"


if __name__ == "__main__":
    sys.exit(main())
