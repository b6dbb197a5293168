"""Check the files of `make demo` and `make report` against the README; silent if all is well.

python .ci/check_demo.py demo-study [--runs runs] [--figures paper_figures]
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES = (
    *("tab_main_study.md", "tab_shaper_study.tex", "tab_cost_study.csv", "fig_learning_study.png"),
    *("fig_credit_heatmap_study.png", "fig_credit_trend_study.pdf"),
)
SMALLEST = 500  # bytes: less is an empty table or figure
HELD_OUT = ("valid_seen", "valid_unseen")
SHAPED = "scpo"  # the row that gives credit


def problems(experiment: str, runs: Path, figures: Path) -> Iterator[str]:
    """Describe each problem in one sentence.

    Raises:
        OSError: A record is not there.
        ValueError: A record is no JSON.
    """
    rows = {
        row["name"]: row["runs"]
        for row in _json(runs / "experiments" / f"{experiment}.json")["rows"]
    }
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
    yield from _of_report(
        figures / "report.html", {name: [run["id"] for run in runs] for name, runs in rows.items()}
    )


def _of_row(name: str, logs: list[list[dict[str, Any]]]) -> Iterator[str]:
    """Check that held-out success rises over the seeds, groups are active and SCPO gives credit."""
    for key in (f"val/{panel}/success_rate" for panel in HELD_OUT):
        if not all(key in log[end] for log in logs for end in (0, -1)):
            yield f"{name}: the first or last step has no {key}"
            continue
        first, last = (_mean([log[end][key] for log in logs]) for end in (0, -1))
        if last <= first:
            yield f"{name}: {key} went from {first:.3f} to {last:.3f}, and should rise"
    wanted = {"credit/active_groups": "no group was active"}
    if name == SHAPED:
        wanted["credit/aux_mean"] = "no credit was given"
    for key, meaning in wanted.items():
        if not all(any(line.get(key, 0) > 0 for line in log) for log in logs):
            yield f"{name}: {meaning} in one of its runs"


def _of_report(path: Path, rows: dict[str, list[str]]) -> Iterator[str]:
    """The page shows every run, and for each of SCPO's at least one step that got credit."""
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    shown = json.loads(found[1]) if found else {"runs": [], "groups": {"runs": {}}}
    listed = {run["id"] for run in shown["runs"]}
    yield from (
        f"{path} does not show {run}" for runs in rows.values() for run in runs if run not in listed
    )
    for run in rows.get(SHAPED, ()):
        groups = [
            group for step in shown["groups"]["runs"].get(run, []) for group in step["groups"]
        ]
        if not any(match["credited"] for group in groups for match in group["matches"]):
            yield f"{path} shows no step of {run} that got credit"


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main(arguments: list[str] | None = None) -> int | str:
    """Parse the command line; a text is an error to ``sys.exit``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
