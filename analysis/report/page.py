"""The report page: one HTML file with its data, style and script, which needs no network.

``contents`` collects the data for JSON: runs and metrics, built tables and figures, and samples.
``page`` combines them with the files of ``static/`` into one document.
"""

import base64
import csv
import fnmatch
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.build import Output, Report
from analysis.line_styles import LineStyle, line_style, line_styles
from analysis.names import NOTES, PANELS, panel_order, rewording, success_metric
from analysis.rendering.style import PNG_DPI
from analysis.rendering.table import NONE, Number, Table
from analysis.report.samples import (
    EpisodeSample,
    GroupSample,
    most_telling,
    sample_episodes,
    sample_groups,
)
from analysis.sources.collected import Collected
from analysis.sources.configurations import leaves
from analysis.sources.credit_settings import exact_scores, is_exact
from analysis.sources.rows import Row, Section
from analysis.sources.run_records import Problem
from analysis.sources.series import Series
from scpo.errors import RecordError
from scpo.records.health import examine, read_rules
from scpo.records.run_folders import RunFolder
from scpo.records.wandb_mirror import url_of
from scpo.schema.method import method_label
from scpo.strict import MACHINE_SECTIONS

STATIC = Path(__file__).parent / "static"
SCRIPTS = (
    "elements.js",
    "scales.js",
    "runs.js",
    "curves.js",
    "compare.js",
    "episodes.js",
    "outputs.js",
    "overview.js",
    "credit.js",
    "columns.js",
    "heatmap.js",
    "details.js",
    "inspector.js",
    "main.js",
)
MEGABYTE = 1_000_000
CURVE_BYTES = 4 * MEGABYTE

# Significant digits of curves (more would double the page's size) and of the table of runs.
CURVE_DIGITS, SHOWN_DIGITS = 4, 6

# Numbers of points per curve, tried in this order until all curves fit into CURVE_BYTES.
POINTS = (400, 200, 100, 50, 25)
CREDIT_COLUMNS = {
    "credit/steps": ("credited steps", "credited steps per failed trajectory of active groups"),
    "credit/aux_mean": ("auxiliary reward", "mean α·credit over all steps"),
    "credit/shift_rms": ("change of advantages", "root mean square over all rows"),
    "credit/turned_positive": ("turned positive", "share of credited rows that turn positive"),
}

# Resolution of figures on the page; it makes them about 1.5 times as large as printed.
SCREEN_DPI = 150

# Bytes of a PNG file that hold its width in pixels.
PNG_WIDTH = slice(16, 20)

# Settings that the credit inspector explains.
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


# The document


def page(contents: dict[str, Any]) -> str:
    r"""The whole document as HTML.

    A Content-Security-Policy allows only the page's own style and script, and no requests. The
    data is in a script element of type ``application/json``, with ``<`` written as ``\u003c``, so
    that no text in it can end the element. The script inserts texts as text nodes only.
    """
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    scripts = [(STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = "".join(["'use strict';\n", *scripts])
    parts = {
        "policy": _policy(style, script),
        "style": style,
        "data": embedded(contents),
        "script": script,
    }
    markup = (STATIC / "page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda placeholder: parts[placeholder[1]], markup)


def embedded(contents: dict[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")
    # A folder's name may hold bytes that are not UTF-8, which Python reads as lone surrogates.
    text = text.encode(errors="backslashreplace").decode()
    # These end a line in JavaScript, but not in JSON.
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(style: str, script: str) -> str:
    directives = (
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(directives)


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# The data


def contents(data: Collected, built: Report, *, group_bytes: int) -> dict[str, Any]:
    """Data of the page, with one key per part that the scripts of ``static/`` show.

    Args:
        data: The runs.
        built: The built tables and figures.
        group_bytes: Room for sampled groups, in bytes of the page.
    """
    groups = sample_groups(data, group_bytes)
    episodes = sample_episodes(data)
    points, curves = _curves(data)
    tables = []
    figures = []
    for output in built.outputs:
        if isinstance(output.made, Table):
            tables.append(_table(output, output.made))
        else:
            figures.append(_figure(output))

    missing = []
    for failure in built.failures:
        missing.append({"name": failure.name, "reason": failure.reason, "remedy": failure.remedy})
    problems = []
    for problem in _problems(data, built, groups, episodes):
        problems.append({"path": problem.path, "reason": problem.reason})
    return {
        "notes": _notes(data, built),
        "runs": _runs(data),
        "columns": _columns(data),
        "curves": curves,
        "points": points,
        "tables": tables,
        "figures": figures,
        "missing": missing,
        "problems": problems,
        "unfinished": list(built.unfinished),
        "groups": _groups(data, groups),
        "telling": most_telling(groups),
        "episodes": episodes.content(),
        "configurations": configurations(data),
        "health": list(health_of(data)),
    }


def _notes(data: Collected, built: Report) -> list[str]:
    """Notes on all numbers of the page: on the scales, and on the versions of the code."""
    scales = [NOTES[scale] for scale in sorted(set(data.runs["scale"])) if NOTES[scale]]
    return [*scales, *(f"Note: {note}." for note in built.notes)]


def _problems(
    data: Collected,
    built: Report,
    groups: GroupSample,
    episodes: EpisodeSample,
) -> list[Problem]:
    """All problems without repetitions, in order of appearance."""
    problems = (*built.problems, *data.sample_problems, *groups.problems, *episodes.problems)
    return list(dict.fromkeys(problems))


def health_of(data: Collected) -> Iterator[dict[str, str]]:
    """Yield the remarks of the rules of conf/health.yaml on each run."""
    rules = read_rules()
    patterns = [rule.metric for rule in rules.values() if hasattr(rule, "metric")]
    for run in data.by_id:
        lines: dict[int, dict[str, Any]] = {}
        for name in data.metric_names(run):
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                continue
            series = data.series(run, name)
            for step, value in zip(series.steps, series.values, strict=True):
                line = lines.setdefault(int(step), {"step": int(step)})
                line[name] = value
        for finding in examine([lines[step] for step in sorted(lines)], rules):
            yield {"run": run, "text": str(finding)}


# Runs


def _runs(data: Collected) -> list[dict[str, Any]]:
    """Runs in the order of the tables' rows; runs of no row come last."""
    members = _rows(data.sections)
    places = {run: place for place, run in enumerate(members)}
    styles = line_styles((row for _, row in members.values()), data.experiment_rows)
    lines = data.runs.to_dict("records")
    # The sort is stable, so that runs in no row keep the order of the data.
    lines.sort(key=lambda line: places.get(line["id"], len(places)))
    return [_run(data, line, members.get(line["id"]), styles) for line in lines]


def _run(
    data: Collected,
    line: dict[str, Any],
    place: tuple[Section, Row] | None,
    styles: Mapping[str, LineStyle],
) -> dict[str, Any]:
    run = line["id"]
    step = line["last_step"]
    row = place[1] if place else None
    style = styles[row.name] if row else line_style(line["method"], line["method"])
    values: dict[str, float] = {}
    for metric in _validations(data, [run]):
        _set(values, metric, data.series(run, metric).last)
    for metric in CREDIT_COLUMNS:
        _set(values, metric, data.series(run, metric).mean)
    return {
        "id": run,
        "env": line["env"],
        "model": line["model"],
        "method": line["method"],
        "state": line["state"],
        "scale": line["scale"],
        "label": row.label if row else line["method"],
        "row": _averaged_as(place, run, line["method"]),
        "style": style.screen(),
        "url": _address(data, run),
        "seed": int(line["seed"]),
        "step": None if step is None or math.isnan(step) else int(step),
        "values": values,
    }


def _set(values: dict[str, float], metric: str, value: float | None) -> None:
    # The page rounds for print. Four digits would be rounded twice: 20.149 to 20.15 to 20.2.
    short = _short(value, SHOWN_DIGITS)
    if short is not None:
        values[metric] = short


def _address(data: Collected, run: str) -> str | None:
    """Address of the run in W&B, if recorded; only http(s), because the page links to it."""
    try:
        url = url_of(RunFolder(data.by_id[run].folder))
    except RecordError:
        return None
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return url
    return None


def _rows(sections: Iterable[Section]) -> dict[str, tuple[Section, Row]]:
    """Run id -> the first row that the run belongs to, with its section."""
    members: dict[str, tuple[Section, Row]] = {}
    for section in sections:
        for row in section.all_rows():
            for run in row.runs:
                members.setdefault(run.id, (section, row))
    return members


def _averaged_as(place: tuple[Section, Row] | None, run: str, method: str) -> str:
    """Name of the set of runs whose mean the page may show: the runs of one row of a table."""
    if place is None:
        return f"{method}, in no table"
    section, row = place
    differences = (rewording(section), section.differs, row.differs)
    apart = "".join(f"; {differs}" for differs in differences if differs)
    state = "" if run in row.finished else ", not finished"
    return f"{row.label}{apart}{state}"


def _validations(data: Collected, runs: Iterable[str]) -> list[str]:
    panels = {panel for run in runs for panel in data.panels(run)}
    return [success_metric(panel) for panel in panel_order(panels)]


def _columns(data: Collected) -> list[dict[str, str]]:
    """Columns of the table of runs: success at the last validation, and means of credit."""
    columns = []
    for metric in _validations(data, data.runs["id"]):
        panel = metric.split("/")[1]
        columns.append(
            {
                "metric": metric,
                "title": f"success, {panel}",
                "note": f"{PANELS.get(panel, panel)}; last validation, %",
            }
        )

    for metric, (title, note) in CREDIT_COLUMNS.items():
        columns.append(
            {
                "metric": metric,
                "title": title,
                "note": f"{metric}: {note}; mean over the training steps that have a value",
            }
        )
    return columns


# Curves


def _curves(data: Collected) -> tuple[int, dict[str, Any]]:
    """Number of points per curve, and the curves of every metric of every run."""
    series: dict[tuple[str, str], Series] = {}
    for run in data.by_id:
        for name in data.metric_names(run):
            series[run, name] = data.series(run, name)
    for points in POINTS:
        curves = _thinned(series, points)
        # The smallest number is used even if it does not fit: better a large page than no curves.
        if len(json.dumps(curves)) <= CURVE_BYTES:
            break
    return points, curves


def _thinned(series: Mapping[tuple[str, str], Series], points: int) -> dict[str, Any]:
    """Curves with at most ``points`` points.

    Most curves share their steps, so each list of steps is stored once and referred to by number.
    """
    numbers: dict[tuple[int, ...], int] = {}
    runs: dict[str, dict[str, Any]] = {}
    for (run, metric), curve in series.items():
        chosen = _evenly(len(curve.steps), points)
        steps = tuple(curve.steps[place] for place in chosen)
        values = [_short(curve.values[place], CURVE_DIGITS) for place in chosen]
        number = numbers.setdefault(steps, len(numbers))
        runs.setdefault(run, {})[metric] = [number, values]
    return {"steps": [list(steps) for steps in numbers], "runs": runs}


def _evenly(count: int, points: int) -> list[int]:
    """At most ``points`` evenly spaced places of ``0..count-1``, with both ends."""
    if count <= points:
        return list(range(count))
    return [round(k * (count - 1) / (points - 1)) for k in range(points)]


def _short(value: float | None, digits: int) -> float | None:
    """Round to significant digits; None if not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


# Tables and figures


def _table(output: Output, table: Table) -> dict[str, Any]:
    latex = next((path for path in output.files if path.suffix == ".tex"), None)
    blocks = []
    for block in table.blocks:
        rows = [[_cell(cell) for cell in row] for row in block.rows]
        blocks.append({"title": block.title, "rows": rows})
    return {
        "name": output.name,
        "latex": latex and latex.read_text(encoding="utf-8"),
        "caption": table.full_caption,
        "words": list(table.words),
        "numbers": list(table.numbers),
        "blocks": blocks,
    }


def _cell(cell: str | Number) -> Any:
    """A cell's text; None without a number; ``{"best": text}`` for the best of its column."""
    if isinstance(cell, str):
        return cell
    if cell == NONE:
        return None
    return {"best": cell.text} if cell.bold else cell.text


def _figure(output: Output) -> dict[str, Any]:
    """A figure with its caption and numbers.

    All are read from its files, because a figure that was not drawn again exists only there.
    """
    files = {path.suffix: path for path in output.files}
    caption = numbers = None
    if ".md" in files:
        text = files[".md"].read_text(encoding="utf-8")
        caption = text.rstrip().rpartition("\n")[2]
    if ".csv" in files:
        numbers = _numbers(files[".csv"])
    picture = files[".png"].read_bytes()
    pixels = int.from_bytes(picture[PNG_WIDTH], "big")
    return {
        "name": output.name,
        "runs": len(output.runs),
        "source": f"data:image/png;base64,{base64.b64encode(picture).decode()}",
        "width": round(pixels * SCREEN_DPI / PNG_DPI),
        "caption": caption,
        "numbers": numbers,
    }


def _numbers(path: Path) -> dict[str, Any]:
    """Rows of a table's CSV, with mean and deviation joined in one column."""
    head, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines())
    # ``_joined`` adds the columns left out here to the cell of the mean.
    kept = [name for name in head if not name.endswith((" std", " low", " high", " source"))]
    rows = []
    for line in lines:
        values = dict(zip(head, line, strict=True))
        rows.append([_joined(values, name) for name in kept])
    return {"head": [name.removesuffix(" mean") for name in kept], "rows": rows}


def _joined(values: Mapping[str, str], column: str) -> str:
    text = values[column]
    name = column.removesuffix(" mean")
    if values.get(f"{name} low"):
        text = f"{text} [{values[f'{name} low']}, {values[f'{name} high']}]"
    elif std := values.get(f"{name} std"):
        text = f"{text} ± {std}"
    # For programs, the CSV writes minus signs as hyphens. Columns of words keep their hyphens.
    return text if name == column else text.replace("-", "−")


# Configurations


def configurations(data: Collected) -> dict[str, Any]:
    """Differences between the runs' configurations, commits and processors.

    Returns:
        ``keys`` that differ, the distinct ``values`` of each key, and ``runs``: run id -> index of
        its value of each key. The value is None if a configuration lacks the key. Settings of the
        machine are left out.
    """
    flat = {run: _flat(data, run) for run in data.runs["id"]}
    keys = []
    values = []
    for key in sorted({key for config in flat.values() for key in config}):
        distinct = list(dict.fromkeys(config.get(key) for config in flat.values()))
        if len(distinct) > 1:
            keys.append(key)
            values.append(distinct)
    runs = {}
    for run, config in flat.items():
        runs[run] = [
            distinct.index(config.get(key)) for key, distinct in zip(keys, values, strict=True)
        ]
    return {"keys": keys, "values": values, "runs": runs}


def _flat(data: Collected, run: str) -> dict[str, str]:
    known = data.by_id[run]
    config = {key: value for key, value in known.config.items() if key not in MACHINE_SECTIONS}
    texts: dict[str, str] = {}
    for key, value in leaves(config):
        texts[key] = value if isinstance(value, str) else json.dumps(value, default=str)
    if known.commit:
        texts["(code) commit"] = str(known.commit)
    if known.processor:
        texts["(machine) processor"] = str(known.processor)
    return texts


# Sampled groups


def _groups(data: Collected, sample: GroupSample) -> dict[str, Any]:
    settings = {run: _settings(data.by_id[run].config) for run in sample.steps}
    return {
        "runs": sample.steps,
        "settings": settings,
        "shown": sample.shown,
        "recorded": sample.recorded,
    }


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """Settings that the inspector's sentences need, of a run with a shaper."""
    shaper = config["method"]["shaper"]
    estimator = config["method"]["estimator"]
    settings = {name: shaper[name] for name in SHAPER_SETTINGS}
    settings["scorer"] = config["scorer"]["name"]
    # Empty if the scorer is not exact: it gives similarities between 0 and 1.
    settings["exact"] = exact_scores(config) if is_exact(config) else ""
    settings["host"] = method_label(estimator["name"])
    settings["normalisation"] = estimator.get("normalisation")
    return settings
