"""What the page shows, as JSON: the collected runs and metrics, the tables and figures as built, the sampled groups."""

import base64
import csv
import fnmatch
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.records.health import examine, read_rules
from scpo.records.wandb_mirror import url_of
from scpo.schema import MACHINE_SECTIONS, method_label

from analysis.build import Output, Report
from analysis.naming.line_styles import LineStyle, line_style, line_styles
from analysis.naming.names import NOTES, PANELS, panel_order, success_metric
from analysis.rendering.style import PNG_DPI
from analysis.rendering.table import NONE, Number, Table
from analysis.report.episode_browser import sample_episodes
from analysis.report.inspector_groups import most_telling, sample_groups
from analysis.sources.collect import Collected
from analysis.sources.differences import leaves
from analysis.sources.rows import Row, Section
from analysis.sources.series import Series

MEGABYTE = 1_000_000
CURVE_BYTES = 4 * MEGABYTE
POINTS = (400, 200, 100, 50, 25)  # of a curve; the largest number with which all curves fit
CREDIT_COLUMNS = {
    "credit/steps": ("credited steps", "credited steps a failed trajectory of an active group"),
    "credit/aux_mean": ("auxiliary reward", "mean α·credit over all steps"),
    "credit/shift_rms": ("change of advantages", "root mean square over all rows"),
    "credit/turned_positive": ("turned positive", "share of credited rows whose advantage turns"),
}
SCREEN_DPI = 150  # shows figures one and a half times as large as printed
PNG_WIDTH = slice(16, 20)  # where a PNG holds its width in pixels
SHAPER_SETTINGS = (
    "theta",
    "soft_base",
    "alpha",
    "matcher",
    "monotonic",
    "reference",
    "order",
    "allocation",
    "step_text",
)


def contents(data: Collected, built: Report, *, group_bytes: int) -> dict[str, Any]:
    """Everything that the page's script reads; see the script's files for how each part is shown."""
    sample, episodes = sample_groups(data, group_bytes), sample_episodes(data)
    problems = dict.fromkeys(
        (*built.problems, *data.sample_problems, *sample.problems, *episodes.problems)
    )
    points, curves = _curves(data)
    return {
        "notes": [NOTES[scale] for scale in sorted(set(data.runs["scale"])) if NOTES[scale]],
        "runs": _runs(data),
        "columns": _columns(data),
        "curves": curves,
        "points": points,
        "tables": [
            _table(output, output.made)
            for output in built.outputs
            if isinstance(output.made, Table)
        ],
        "figures": [
            _figure(output) for output in built.outputs if not isinstance(output.made, Table)
        ],
        "missing": [
            {"name": one.name, "reason": one.reason, "remedy": one.remedy} for one in built.failures
        ],
        "problems": [{"path": one.path, "reason": one.reason} for one in problems],
        "unfinished": list(built.unfinished),
        "groups": {
            "runs": sample.steps,
            "settings": {run: _settings(data.by_id[run].config["method"]) for run in sample.steps},
            "shown": sample.shown,
            "recorded": sample.recorded,
        },
        "telling": most_telling(sample),
        "episodes": episodes.content(),
        "configurations": configurations(data),
        "health": list(health_of(data)),
    }


def health_of(data: Collected) -> Iterator[dict[str, str]]:
    """What the rules of conf/health.yaml say of each run, from the metrics that they read."""
    rules = read_rules()
    patterns = [rule.metric for rule in rules.values() if hasattr(rule, "metric")]
    for run in data.by_id:
        lines: dict[int, dict[str, Any]] = {}
        for name in data.metric_names(run):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                series = data.series(run, name)
                for step, value in zip(series.steps, series.values, strict=True):
                    lines.setdefault(int(step), {"step": int(step)})[name] = value
        yield from (
            {"run": run, "text": str(one)}
            for one in examine([lines[step] for step in sorted(lines)], rules)
        )


def _runs(data: Collected) -> list[dict[str, Any]]:
    """In the order of the tables' rows; runs of no experiment last."""
    members = _rows(data.sections)
    place = {run: k for k, run in enumerate(members)}
    styles = line_styles(row for _, row in members.values())
    rows = sorted(data.runs.to_dict("records"), key=lambda row: place.get(row["id"], len(place)))
    return [_run(data, row, members.get(row["id"]), styles) for row in rows]


def _run(
    data: Collected,
    row: dict[str, Any],
    place: tuple[Section, Row] | None,
    styles: Mapping[str, LineStyle],
) -> dict[str, Any]:
    run = row["id"]
    member = place[1] if place else None
    style = styles[member.name] if member else line_style(row["method"], row["method"])
    last = {metric: _short(data.series(run, metric).last) for metric in _validations(data, [run])}
    means = {metric: _short(data.series(run, metric).mean) for metric in CREDIT_COLUMNS}
    step = row["last_step"]
    return {
        **{name: row[name] for name in ("id", "env", "model", "method", "state", "scale")},
        "label": member.label if member else row["method"],
        "row": _averaged_as(place, run, row["method"]),
        "style": style.screen(),
        "url": _address(data, run),
        "seed": int(row["seed"]),
        "step": None if step is None or math.isnan(step) else int(step),
        "values": {name: value for name, value in (last | means).items() if value is not None},
    }


def _address(data: Collected, run: str) -> str | None:
    """Where W&B shows the run, as its mirror wrote it down; a page links to the web only."""
    try:
        url = url_of(RunFolder(data.by_id[run].folder))
    except RecordError:
        return None
    return url if isinstance(url, str) and url.startswith(("https://", "http://")) else None


def _rows(sections: Iterable[Section]) -> dict[str, tuple[Section, Row]]:
    """The section and row that each run belongs to; of several, the first."""
    members: dict[str, tuple[Section, Row]] = {}
    for section in sections:
        for row in section.rows:
            for run in row.runs:
                members.setdefault(run.id, (section, row))
    return members


def _averaged_as(member: tuple[Section, Row] | None, run: str, method: str) -> str:
    """Name of the runs that a mean on the page may have together: those that a table's mean has."""
    if member is None:
        return f"{method}, in no table"
    section, row = member
    apart = "".join(f"; {differs}" for differs in (section.differs, row.differs) if differs)
    return f"{row.label}{apart}{'' if run in row.finished else ', not finished'}"


def _validations(data: Collected, runs: Iterable[str]) -> list[str]:
    return [
        success_metric(panel)
        for panel in panel_order({panel for run in runs for panel in data.panels(run)})
    ]


def _columns(data: Collected) -> list[dict[str, str]]:
    """The numbers of the run table: success at the last validation, and the credit's means over the training steps."""
    validations = _validations(data, data.runs["id"])
    names = {metric: metric.split("/")[1] for metric in validations}
    success = [
        {
            "metric": metric,
            "title": f"success, {name}",
            "note": f"{PANELS.get(name, name)}; last validation, %",
        }
        for metric, name in names.items()
    ]
    credit = [
        {
            "metric": metric,
            "title": title,
            "note": f"{metric}: {note}; mean over the training steps",
        }
        for metric, (title, note) in CREDIT_COLUMNS.items()
    ]
    return success + credit


def _curves(data: Collected) -> tuple[int, dict[str, Any]]:
    """Every metric of every run, with as many points as fit; steps are named by index, since most curves share them."""
    series = {
        (run, name): data.series(run, name) for run in data.by_id for name in data.metric_names(run)
    }
    for points in POINTS:
        curves = _thinned(series, points)
        if len(json.dumps(curves)) <= CURVE_BYTES:
            break
    return points, curves


def _thinned(series: dict[tuple[str, str], Series], points: int) -> dict[str, Any]:
    steps: dict[tuple[int, ...], int] = {}
    runs: dict[str, dict[str, Any]] = {}
    for (run, metric), one in series.items():
        chosen = _evenly(len(one.steps), points)
        place = steps.setdefault(tuple(one.steps[k] for k in chosen), len(steps))
        runs.setdefault(run, {})[metric] = [place, [_short(one.values[k]) for k in chosen]]
    return {"steps": [list(line) for line in steps], "runs": runs}


def _evenly(count: int, points: int) -> list[int]:
    """At most ``points`` of ``0..count-1``, both ends among them."""
    if count <= points:
        return list(range(count))
    return [round(k * (count - 1) / (points - 1)) for k in range(points)]


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _table(output: Output, table: Table) -> dict[str, Any]:
    latex = next((path for path in output.files if path.suffix == ".tex"), None)
    return {
        "name": output.name,
        "latex": latex and latex.read_text(encoding="utf-8"),
        "caption": table.caption,
        "words": list(table.words),
        "numbers": list(table.numbers),
        "blocks": [
            {"title": block.title, "rows": [[_cell(cell) for cell in row] for row in block.rows]}
            for block in table.blocks
        ],
    }


def _cell(cell: str | Number) -> Any:
    """A text, None for no number, or ``{"best": text}`` for the best of its column."""
    if isinstance(cell, str) or cell == NONE:
        return cell if isinstance(cell, str) else None
    return {"best": cell.text} if cell.bold else cell.text


def _figure(output: Output) -> dict[str, Any]:
    """With the text and the numbers of its caption, where it has them in files of their own."""
    files = {path.suffix: path for path in output.files}
    caption = (
        files[".md"].read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
        if ".md" in files
        else None
    )
    picture = files[".png"].read_bytes()
    pixels = int.from_bytes(picture[PNG_WIDTH], "big")
    return {
        "name": output.name,
        "runs": len(output.runs),
        "source": f"data:image/png;base64,{base64.b64encode(picture).decode()}",
        "width": round(pixels * SCREEN_DPI / PNG_DPI),
        "caption": caption,
        "numbers": _numbers(files[".csv"]) if ".csv" in files else None,
    }


def _numbers(path: Path) -> dict[str, Any]:
    """The rows of a table's CSV, mean and standard deviation in one column again."""
    head, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    kept = [
        k for k, name in enumerate(head) if not name.endswith((" std", " low", " high", " source"))
    ]

    def cell(row: list[str], k: int) -> str:
        values = dict(zip(head, row, strict=True))
        name = head[k].removesuffix(" mean")
        if values.get(f"{name} low"):
            return f"{row[k]} [{values[f'{name} low']}, {values[f'{name} high']}]"
        std = values.get(f"{name} std")
        return f"{row[k]} ± {std}" if std else row[k]

    return {
        "head": [head[k].removesuffix(" mean") for k in kept],
        "rows": [[cell(row, k) for k in kept] for row in rows],
    }


def configurations(data: Collected) -> dict[str, Any]:
    """What differs between the runs: ``keys``, the distinct ``values`` of each, and by run which of them it has.

    Of the whole configuration without what says where a run runs, and beside it the code and the
    processor. None: the run's configuration has no such key.
    """
    flat = {run: _flat(data, run) for run in data.runs["id"]}
    keys = sorted({key for one in flat.values() for key in one})
    differing = [key for key in keys if len({one.get(key) for one in flat.values()}) > 1]
    values = [list(dict.fromkeys(one.get(key) for one in flat.values())) for key in differing]
    runs = {
        run: [options.index(one.get(key)) for key, options in zip(differing, values, strict=True)]
        for run, one in flat.items()
    }
    return {"keys": differing, "values": values, "runs": runs}


def _flat(data: Collected, run: str) -> dict[str, str]:
    config = {
        name: value
        for name, value in data.by_id[run].config.items()
        if name not in MACHINE_SECTIONS
    }
    known = data.by_id[run]
    beside = {"(code) commit": known.commit, "(machine) processor": known.processor}
    texts = {
        key: one if isinstance(one, str) else json.dumps(one, default=str)
        for key, one in leaves(config)
    }
    return texts | {name: str(value) for name, value in beside.items() if value}


def _settings(method: dict[str, Any]) -> dict[str, Any]:
    """What the inspector's sentences need of a method with a shaper."""
    shaper, estimator = method["shaper"], method["estimator"]
    return {
        **{name: shaper[name] for name in SHAPER_SETTINGS},
        "host": method_label(estimator["name"]),
        "normalisation": estimator.get("normalisation"),
    }
