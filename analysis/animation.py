"""``python -m analysis animate``: a finished experiment as an animated SVG of its terminal.

Bars, step numbers and success follow the recorded wall times and metrics, sped up; the table is the
one that the sweep ended with. Without animation (print, reduced motion) the final state is shown.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console

from analysis.line_styles import line_style
from analysis.show import experiment_table
from analysis.sources.rows import Row, RowRun
from analysis.sources.run_records import (
    LOGS,
    ExperimentRecord,
    Run,
    read_experiments,
    read_lines,
    read_runs,
)
from analysis.sources.sections import benchmarks, record_rows
from scpo.errors import RecordError
from scpo.progress import counted
from scpo.records.files import write_bytes
from scpo.records.status import State

# Folder of tables and figures. The tracked docs/demo.svg is written only where --out names it.
FOLDER = Path("paper_figures")

# Seconds of the animation for training and for the table.
TRAINING_S, TABLE_S = 12, 8
TOTAL_S = TRAINING_S + TABLE_S
TRAINING = 100 * TRAINING_S / TOTAL_S  # percent
WIDTH, LINE, LEFT, TOP = 900, 20, 20, 26  # pixels
BAR_LEFT, BAR_WIDTH, STATE_LEFT = 190, 220, 425

# Number of times that the text of the clock changes.
CLOCKS = 60
STYLE = """
text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
fill:#e8ebee;white-space:pre}
.dim{fill:#a0a9b4}.track{fill:#2a3038}.bar{transform-origin:0 0}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
""".strip()
_TABLE = (
    f".table{{animation:table {TOTAL_S}s linear infinite}}"
    f"@keyframes table{{0%{{opacity:0}}{TRAINING:.2f}%{{opacity:0}}"
    f"{TRAINING + 2:.2f}%{{opacity:1}}100%{{opacity:1}}}}"
)


@dataclass(frozen=True)
class Progress:
    """A run over time.

    Attributes:
        label: Its row and seed.
        colour: Colour of its bar, which is its method's.
        at_T: Seconds after the experiment's start at which each step was recorded.
        success_T: Training success of each step; None at step 0, before training.
    """

    label: str
    colour: str
    at_T: Sequence[float]
    success_T: Sequence[float | None]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``animate``."""
    parser.add_argument(
        "experiment", nargs="?", default="demo", help="a finished experiment (default: demo)"
    )
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="folder of run folders (default: runs)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="file (default: paper_figures/<experiment>.svg)",
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the animation; returns the exit code 0."""
    record, progress = experiment_progress(options.runs_dir, options.experiment)
    table = experiment_table(options.runs_dir, options.experiment) or ""
    if options.experiment == "demo":
        command = "make demo"
    else:
        command = record.command(_seeds(record)) or options.experiment
    out = options.out or FOLDER / f"{options.experiment}.svg"
    write_bytes(out, animation(command, progress, success_lines(table)).encode(), readable=True)
    console.print(f"[green]wrote[/] {out}, {out.stat().st_size / 1000:.0f} kB")
    return 0


def experiment_progress(runs_dir: Path, experiment: str) -> tuple[ExperimentRecord, list[Progress]]:
    """The experiment's runs in the order of its rows.

    Raises:
        RecordError: The experiment does not exist, or not all of its runs are finished.
    """
    known, _ = read_experiments(runs_dir)
    # An experiment may exist at several scales; reversed, so that the first one wins.
    records = {record.experiment: record for record in reversed(known)}
    record = records.get(experiment)
    if record is None:
        names = ", ".join(sorted(records)) or "none"
        raise RecordError(
            f"{runs_dir} has no experiment {experiment}; it has {names}; "
            "--runs-dir names another folder"
        )

    runs, _ = read_runs(runs_dir)
    planned: list[tuple[Row, RowRun]] = []
    for env, model in benchmarks(record):
        for row in record_rows(record, runs, env, model):
            planned += [(row, run) for run in row.runs]
    left = [run.id for _, run in planned if run.state != State.DONE]
    if left:
        command = record.command(_seeds(record))
        raise RecordError(
            f"{experiment} is not finished: {counted(len(left), 'run')} left, such as {left[0]}; "
            f"finish it with {command}"
        )
    clocks = {run.id: _clock(runs[run.id]) for _, run in planned}
    start = min(times[0] for times in clocks.values())
    progress = []
    for row, planned_run in planned:
        run = runs[planned_run.id]
        lines = read_lines(run, LOGS[:1])
        progress.append(
            Progress(
                label=f"{row.label}, seed {planned_run.seed}",
                colour=line_style(row.name, run.head.method.name).screen()["dark"],
                at_T=[time - start for time in clocks[run.id][1:]],
                success_T=[line.get("train/success_rate") for line in lines],
            )
        )

    return record, progress


def _seeds(record: ExperimentRecord) -> list[int]:
    return sorted({run.seed for row in record.rows for run in row.runs})


def _clock(run: Run) -> list[float]:
    """Seconds since the epoch at the start of the first validation and at each recorded step."""
    lines = list(read_lines(run, ("timing.jsonl",)))
    times = [datetime.fromisoformat(line["at"]).timestamp() for line in lines]
    # The first line, of step 0, is written after the validation before training.
    return [times[0] - float(lines[0].get("timing_s/validation", 0.0)), *times]


def success_lines(table: str) -> list[str]:
    """Lines of the first part of a sweep's table: success before and after training."""
    lines = []
    for line in table.splitlines():
        if line.startswith(("Credit:", "Published:", "missing:")):
            break
        if line.strip():
            lines.append(line)
    return lines


def animation(command: str, progress: Sequence[Progress], table: Sequence[str]) -> str:
    """The SVG as text; equal input gives equal text.

    Args:
        command: The command shown in the first line.
        progress: The runs, one line each.
        table: Lines of the final table.
    """
    end = max(run.at_T[-1] for run in progress)
    rows = [_row(k, run, end) for k, run in enumerate(progress)]
    below = TOP + LINE * (len(progress) + 3)
    height = below + LINE * len(table) + 14
    title = (
        f"Terminal: {command}; {len(progress)} runs, then the table of success before and after "
        "training"
    )
    clock = [_minutes(end * k / CLOCKS) for k in range(CLOCKS + 1)]
    ticks = [(end * k / CLOCKS, f"translateY({-LINE * k}px)") for k in range(CLOCKS + 1)]
    frames = "".join(frame for _, frame in rows) + _frames("clock", end, ticks) + _TABLE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}{frames}</style>"
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#14171b"/>'
        f'<text x="{LEFT}" y="{TOP}">$ {escape(command)}</text>'
        f"{_strip('clock', WIDTH - 110, TOP - 15, clock)}"
        f"{''.join(drawn for drawn, _ in rows)}"
        f'<g class="table">{_lines(table, below)}</g></svg>\n'
    )


def _frames(
    name: str,
    end: float,
    moves: Sequence[tuple[float, str]],
    timing: str = "step-end",
) -> str:
    """CSS class whose transform changes at given times.

    Args:
        name: Name of the class.
        end: Seconds of the experiment.
        moves: (seconds, transform) pairs.
        timing: Timing function.
    """
    scale = TRAINING / max(end, 1e-9)
    last = moves[-1][1]
    frames = "".join(f"{scale * at:.2f}%{{transform:{move}}}" for at, move in moves)
    # Outside of the animation (print, reduced motion) the last transform applies.
    still = f"transform:{last};animation:{name} {TOTAL_S}s {timing} infinite"
    return f".{name}{{{still}}}@keyframes {name}{{{frames}100%{{transform:{last}}}}}"


def _row(k: int, run: Progress, end: float) -> tuple[str, str]:
    """SVG of a run's line, and the CSS frames that move it."""
    y = TOP + LINE * (k + 1)
    last = len(run.at_T) - 1
    texts = ["waiting"]
    texts += [_state(step, last, success) for step, success in enumerate(run.success_T)]
    strip = [(0.0, "translateY(0)")]
    bar = [(0.0, "scaleX(0)")]
    for step, at in enumerate(run.at_T):
        strip.append((at, f"translateY({-LINE * (step + 1)}px)"))
        bar.append((at, f"scaleX({step / last:.3f})"))
    drawn = (
        f'<text x="{LEFT}" y="{y + 8}">{escape(run.label)}</text>'
        f'<svg x="{BAR_LEFT}" y="{y - 3}" width="{BAR_WIDTH}" height="12">'
        f'<rect class="track" width="{BAR_WIDTH}" height="12" rx="2"/>'
        f'<rect class="bar b{k}" width="{BAR_WIDTH}" height="12" rx="2" fill="{run.colour}"/></svg>'
        f"{_strip(f's{k}', STATE_LEFT, y - 7, texts)}"
    )
    return drawn, _frames(f"s{k}", end, strip) + _frames(f"b{k}", end, bar, "linear")


def _state(step: int, last: int, success: float | None) -> str:
    text = f"{step:>3}/{last}"
    if success is None:
        return text
    return f"{text}  training success {100 * success:.0f} %"


def _strip(name: str, x: float, y: float, texts: Sequence[str]) -> str:
    """A column of texts, of which one line is visible; the frames of ``name`` move the column."""
    lines = []
    for k, text in enumerate(texts):
        lines.append(f'<text class="dim" x="0" y="{LINE * k + 15}">{escape(text)}</text>')
    return (
        f'<svg x="{x}" y="{y}" width="{WIDTH - x}" height="{LINE}">'
        f'<g class="{name}">{"".join(lines)}</g></svg>'
    )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:>2}:{int(seconds) % 60:02} min"


def _lines(texts: Sequence[str], top: float) -> str:
    return "".join(
        f'<text x="{LEFT}" y="{top + LINE * k}">{escape(text)}</text>'
        for k, text in enumerate(texts)
    )
