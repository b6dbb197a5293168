"""House style of figures: sizes of a two-column paper, a colour-blind safe palette, and files without a date."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.rendering.deterministic_canvas import DeterministicCanvas
from analysis.rendering.table import Table

COLUMN_WIDTH = 3.25  # inches, one column of the paper
PAGE_WIDTH = 6.75  # inches, both columns
PNG_DPI = 300

ACCENT = "#D55E00"  # what SCPO credits; its lines have this colour too (analysis/naming/line_styles.py)
SUCCESS, CREDITED, FAILED = "#009E73", ACCENT, "#7F7F7F"  # steps of successes, of failures with and without credit
REMARK = "#444444"  # lines that say what the numbers are
SEQUENTIAL = "Blues"  # one hue, monotone in lightness; the accent stands out on every shade

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs on every machine
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.2,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # TrueType: text stays text
    "svg.hashsalt": "scpo",
    "path.simplify": True,
}


@dataclass(frozen=True)
class Drawing:
    """A figure with the numbers that belong into its caption; they are written beside it as a table."""

    figure: Figure
    numbers: Table

    def files(self) -> dict[str, bytes]:
        """The content for each file ending, of the picture and of the table."""
        return figure_files(self.figure) | self.numbers.files()


@contextmanager
def house_style() -> Iterator[None]:
    """The style inside a ``with``; settings of the user's matplotlibrc do not leak in."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def figure_files(figure: Figure) -> dict[str, bytes]:
    """PDF and PNG of a figure, without dates or versions, so that equal figures give equal bytes."""
    DeterministicCanvas(figure)
    return {
        "pdf": _saved(figure, "pdf", {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None}),
        "png": _saved(figure, "png", {"Software": None}),
    }


def _saved(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    buffer = io.BytesIO()
    with house_style():
        figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=metadata)
    return buffer.getvalue()
