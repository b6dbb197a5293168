"""``python -m analysis animate``: an experiment as its terminal showed it, from its records, as an animated SVG.

Bars, step numbers and success follow the wall times and metrics that the runs recorded, faster; the
table is the one that the sweep ended with. Without animation (print, reduced motion) the end is
shown.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console
from scpo.errors import RecordError
from scpo.progress import counted
from scpo.records import State
from scpo.records.files import write_bytes

from analysis.naming.line_styles import line_style
from analysis.show import experiment_table
from analysis.sources.logged_lines import read_lines
from analysis.sources.rows import benchmarks, record_rows
from analysis.sources.run_records import ExperimentRecord, Run, read_experiments, read_runs

TRAINING_S, TABLE_S = (
    12,
    8,
)  # of the animation: training takes so long, and the table stands so long
TRAINING = 100 * TRAINING_S / (TRAINING_S + TABLE_S)  # percent
WIDTH, LINE, LEFT, TOP = 900, 20, 20, 26  # pixels
BAR_LEFT, BAR_WIDTH, STATE_LEFT = 190, 220, 425
CLOCKS = 60  # times that the clock shows
STYLE = """
text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e8ebee;white-space:pre}
.dim{fill:#a0a9b4}.track{fill:#2a3038}.bar{transform-origin:0 0}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
""".strip()
_TABLE = (
    f".table{{animation:table {TRAINING_S + TABLE_S}s linear infinite}}@keyframes "
    f"table{{0%{{opacity:0}}{TRAINING:.2f}%{{opacity:0}}{TRAINING + 2:.2f}%{{opacity:1}}100%{{opacity:1}}}}"
)


@dataclass(frozen=True)
class Progress:
    """A run over time.

    Attributes:
        label: Its row and seed.
        colour: Of its bar: its method's.
        at_T: Seconds after the experiment's start at which each step was recorded.
        success_T: Training success of each step; None at step 0, before training.
    """

    label: str
    colour: str
    at_T: Sequence[float]
    success_T: Sequence[float | None]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "experiment", nargs="?", default="demo", help="a finished experiment (default: demo)"
    )
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="folder of run folders (default: runs)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("docs/demo.svg"), help="file (default: docs/demo.svg)"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the picture; 0 when it is there."""
    record, progress = experiment_progress(options.runs_dir, options.experiment)
    table = experiment_table(options.runs_dir, options.experiment) or ""
    command = (
        "make demo"
        if options.experiment == "demo"
        else record.command(_seeds(record)) or options.experiment
    )
    write_bytes(
        options.out, animation(command, progress, success_lines(table)).encode(), readable=True
    )
    console.print(f"[green]wrote[/] {options.out}, {options.out.stat().st_size / 1000:.0f} kB")
    return 0


def experiment_progress(runs_dir: Path, experiment: str) -> tuple[ExperimentRecord, list[Progress]]:
    """The experiment's runs in the order of its rows.

    Raises:
        RecordError: There is no such experiment, or not all of its runs are finished.
    """
    known, _ = read_experiments(runs_dir)
    record = next((one for one in known if one.experiment == experiment), None)
    if record is None:
        there = ", ".join(sorted({one.experiment for one in known})) or "none"
        raise RecordError(
            f"{runs_dir} has no experiment {experiment}; it has {there}; --runs-dir names another "
            f"folder"
        )
    runs, _ = read_runs(runs_dir)
    planned = [
        (row.label, row.name, run)
        for env, model in benchmarks(record)
        for row in record_rows(record, runs, env, model)
        for run in row.runs
    ]
    left = [
        one.id for _, _, one in planned if one.id not in runs or runs[one.id].state != State.DONE
    ]
    if left:
        command = record.command(_seeds(record))
        raise RecordError(
            f"not finished of {experiment}: {counted(len(left), 'run')} ({left[0]}); finish them: "
            f"{command}"
        )
    clocks = {one.id: _clock(runs[one.id]) for _, _, one in planned}
    start = min(times[0] for times in clocks.values())
    return record, [
        Progress(
            f"{label}, seed {one.seed}",
            line_style(name, runs[one.id].head.method.name).screen()["dark"],
            [time - start for time in clocks[one.id][1:]],
            [
                line.get("train/success_rate")
                for line in read_lines(runs[one.id], ("metrics.jsonl",))
            ],
        )
        for label, name, one in planned
    ]


def _seeds(record: ExperimentRecord) -> list[int]:
    return sorted({run.seed for row in record.rows for run in row.runs})


def _clock(run: Run) -> list[float]:
    """When the first validation began, and when each step was recorded; seconds since the epoch."""
    lines = list(read_lines(run, ("timing.jsonl",)))
    times = [datetime.fromisoformat(line["at"]).timestamp() for line in lines]
    return [times[0] - float(lines[0].get("timing_s/validation", 0.0)), *times]


def success_lines(table: str) -> list[str]:
    """Of the table that a sweep ends with the first part, success before and after training."""
    first = takewhile(
        lambda line: not line.startswith(("Credit:", "Published:", "missing:")), table.splitlines()
    )
    return [line for line in first if line.strip()]


def animation(command: str, progress: Sequence[Progress], table: Sequence[str]) -> str:
    """The SVG; the same input gives the same text."""
    end = max(one.at_T[-1] for one in progress)
    rows = [_row(k, one, end) for k, one in enumerate(progress)]
    below = TOP + LINE * (len(progress) + 3)
    height = below + LINE * len(table) + 14
    told = f"Terminal: {command}; {len(progress)} runs, then the table of success before and after training"
    clock = [_minutes(end * k / CLOCKS) for k in range(CLOCKS + 1)]
    ticks = [(end * k / CLOCKS, f"translateY({-LINE * k}px)") for k in range(CLOCKS + 1)]
    frames = "".join(frame for _, frame in rows) + _frames("clock", end, ticks) + _TABLE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(told)}</title><style>{STYLE}{frames}</style>"
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#14171b"/>'
        f'<text x="{LEFT}" y="{TOP}">$ {escape(command)}</text>'
        f"{_strip('clock', WIDTH - 110, TOP - 15, clock)}"
        f"{''.join(drawn for drawn, _ in rows)}"
        f'<g class="table">{_lines(table, below)}</g></svg>\n'
    )


def _frames(
    name: str, end: float, moves: Sequence[tuple[float, str]], timing: str = "step-end"
) -> str:
    """A class ``name`` whose transform is each of ``moves`` from its time on; the last one holds unanimated too.

    ``end``: seconds of the experiment, which training takes in the animation.
    """
    scale, last = TRAINING / max(end, 1e-9), moves[-1][1]
    frames = "".join(f"{scale * at:.2f}%{{transform:{move}}}" for at, move in moves)
    still = f"transform:{last};animation:{name} {TRAINING_S + TABLE_S}s {timing} infinite"
    return f".{name}{{{still}}}@keyframes {name}{{{frames}100%{{transform:{last}}}}}"


def _row(k: int, one: Progress, end: float) -> tuple[str, str]:
    """A run's line, and the frames that move it."""
    y, last = TOP + LINE * (k + 1), len(one.at_T) - 1
    texts = [
        "waiting",
        *(_state(step, last, success) for step, success in enumerate(one.success_T)),
    ]
    strip = [
        (0.0, "translateY(0)"),
        *((at, f"translateY({-LINE * (step + 1)}px)") for step, at in enumerate(one.at_T)),
    ]
    bar = [
        (0.0, "scaleX(0)"),
        *((at, f"scaleX({step / last:.3f})") for step, at in enumerate(one.at_T)),
    ]
    drawn = (
        f'<text x="{LEFT}" y="{y + 8}">{escape(one.label)}</text>'
        f'<svg x="{BAR_LEFT}" y="{y - 3}" width="{BAR_WIDTH}" height="12">'
        f'<rect class="track" width="{BAR_WIDTH}" height="12" rx="2"/>'
        f'<rect class="bar b{k}" width="{BAR_WIDTH}" height="12" rx="2" fill="{one.colour}"/></svg>'
        f"{_strip(f's{k}', STATE_LEFT, y - 7, texts)}"
    )
    return drawn, _frames(f"s{k}", end, strip) + _frames(f"b{k}", end, bar, "linear")


def _state(step: int, last: int, success: float | None) -> str:
    return f"{step:>3}/{last}" + (
        "" if success is None else f"  training success {100 * success:.0f} %"
    )


def _strip(name: str, x: float, y: float, texts: Sequence[str]) -> str:
    """A window one line high onto texts below each other, which the frames of ``name`` move."""
    lines = "".join(
        f'<text class="dim" x="0" y="{LINE * k + 15}">{escape(text)}</text>'
        for k, text in enumerate(texts)
    )
    return f'<svg x="{x}" y="{y}" width="{WIDTH - x}" height="{LINE}"><g class="{name}">{lines}</g></svg>'


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:>2}:{int(seconds) % 60:02} min"


def _lines(texts: Sequence[str], top: float) -> str:
    return "".join(
        f'<text x="{LEFT}" y="{top + LINE * k}">{escape(text)}</text>'
        for k, text in enumerate(texts)
    )
