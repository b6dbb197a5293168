"""House style of figures: sizes, colours, the user's choices, and reproducible files.

A ``Look`` holds the user's choices: size, font size, file formats and a matplotlib style file.
Builders draw inside ``house_style()`` and get the width of the figure from ``canvas_width()``. Text
sizes are relative to the font size, so that one setting changes them all.
"""

import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np

# Imported explicitly, because `import matplotlib` need not load this submodule.
from matplotlib import style as mpl_style
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

from analysis.rendering.table import Table
from scpo.errors import ConfigError, first_line

# Widths and a height in inches.
COLUMN_WIDTH = 3.25  # one column of the paper
PAGE_WIDTH = 6.75  # both columns
PAGE_HEIGHT = 9.0
NARROW = 4.5  # narrower figures have their panels one below the other
PNG_DPI = 300
FORMATS = ("pdf", "png", "svg")
POINTS_PER_INCH = 72

# The box of a text, which is larger than its letters, may extend this far beyond the figure.
CUT_POINTS = 1.0

# Mean width of a character of DejaVu Sans, in multiples of the font size.
CHARACTER = 0.56

# In characters: the width of a legend's sample with its gaps, and how much wider than an average
# character a capital is.
LEGEND_SAMPLE = 8
CAPITAL = 0.25

# Colour of credited steps, and of SCPO's lines (analysis/line_styles.py).
ACCENT = "#D55E00"

# Colours of the steps of successes, and of the credited and the other steps of failures.
SUCCESS, CREDITED, FAILED = "#009E73", ACCENT, "#7F7F7F"

# Colour of remarks about the numbers, such as scale and seeds.
REMARK = "#444444"

# A colour map of one hue, monotone in lightness: the accent is visible on every shade.
SEQUENTIAL = "Blues"

# Least contrast of coloured text with white paper.
CONTRAST = 4.5

# Size of remarks and legends: 0.83 of the font size, 6.7 points unless the user changes it.
SMALL = "small"

# Height of a line of a remark, in inches.
REMARK_LINE = 0.115

STYLE: dict[str, Any] = {
    # Part of matplotlib, so every machine draws the same glyphs.
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": "medium",
    "axes.labelsize": "medium",
    "xtick.labelsize": "small",
    "ytick.labelsize": "small",
    "legend.fontsize": "small",
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
    "lines.linewidth": 1.2,
    "lines.markersize": 3.4,
    "figure.constrained_layout.use": True,
    # TrueType: text remains text that can be searched.
    "pdf.fonttype": 42,
    # Outlines, because a reader's machine may lack the font.
    "svg.fonttype": "path",
    "svg.hashsalt": "scpo",
    "path.simplify": True,
}

# Ends of the names of matplotlib's settings of text sizes. The house style gives these sizes
# relative to the font size.
TEXT_SIZES = ("titlesize", "labelsize", "fontsize")

# Settings of a style file that configure matplotlib itself, not the look of a figure.
IGNORED_SETTINGS = (
    "backend",
    "backend_fallback",
    "interactive",
    "toolbar",
    "timezone",
    "webagg.port",
)
METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True)
class Look:
    """A user's choices about all figures of a build.

    Attributes:
        width: Width in inches; None: the width that each figure is designed for.
        height: Height in inches; None: as high as its rows need.
        font_size: Font size in points; None: that of the style.
        formats: File formats, of ``FORMATS``, in the order in which they are written.
        style: Settings of a style file, as (key, value) pairs.
    """

    width: float | None = None
    height: float | None = None
    font_size: float | None = None
    formats: tuple[str, ...] = ("pdf", "png")
    style: tuple[tuple[str, Any], ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """Matplotlib's settings: the house style, then the style file, then the font size."""
        chosen = STYLE | dict(self.style)
        if self.font_size is not None:
            # A style may give titles, labels or legends sizes of their own, in points or relative.
            for key in chosen:
                if key.endswith(TEXT_SIZES):
                    chosen[key] = STYLE.get(key, mpl.rcParamsDefault[key])
            chosen["font.size"] = self.font_size
        return chosen


_look: ContextVar[Look] = ContextVar("look", default=Look())  # noqa: B039 (a frozen dataclass)


@contextmanager
def drawn_as(look: Look) -> Iterator[None]:
    """Draw and save every figure inside the ``with`` block with the user's choices."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the house style and the user's choices inside a ``with`` block."""
    with mpl.rc_context():
        # Otherwise a user's matplotlibrc would determine what the house style does not set.
        mpl.rcdefaults()
        mpl.rcParams.update(_look.get().settings)
        yield


def read_size(text: str) -> tuple[float, float | None]:
    """Width and height in inches of ``column``, ``page`` or ``WxH``.

    Raises:
        ConfigError: Neither a name nor two numbers between 1 and 40 inches.
    """
    named: dict[str, tuple[float, float | None]] = {
        "column": (COLUMN_WIDTH, None),
        "page": (PAGE_WIDTH, None),
    }
    if text in named:
        return named[text]
    try:
        width, height = (float(part) for part in text.lower().split("x"))
    except ValueError:
        width = height = 0.0

    if not (1 <= width <= 40 and 1 <= height <= 40):
        raise ConfigError(
            f"--size {text} is not a size of a figure; allowed are column ({COLUMN_WIDTH:g} "
            f"inches wide), page ({PAGE_WIDTH:g}), or WIDTHxHEIGHT in inches, each from 1 to 40, "
            "e.g. 5x3"
        )

    return width, height


def read_style(name: str) -> tuple[tuple[str, Any], ...]:
    """Settings of a ``.mplstyle`` file, or of a style that matplotlib ships.

    Raises:
        ConfigError: The file or style does not exist, or a line of it is not a setting.
    """
    if name in mpl_style.library:
        settings = mpl_style.library[name]
    elif Path(name).is_file():
        try:
            settings = mpl.rc_params_from_file(name, fail_on_error=True, use_default_template=False)
        except (ValueError, KeyError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--style {name} cannot be read: {first_line(error)}") from error
    else:
        raise ConfigError(
            f"--style {name}: there is no such file, and matplotlib ships no style of this name. "
            "Give the path of a .mplstyle file, or a name of `matplotlib.style.available`"
        )
    return tuple((key, settings[key]) for key in settings if key not in IGNORED_SETTINGS)


def palette() -> tuple[str, ...]:
    """Colours of the user's style file, in the order of its ``axes.prop_cycle``."""
    cycle = dict(_look.get().style).get("axes.prop_cycle")
    if cycle is None:
        return ()
    return tuple(cycle.by_key().get("color", ()))


class FigureSizeError(ConfigError):
    """A figure does not fit the size that the user chose."""


def canvas_width(usual: float, least: float = 0.0) -> float:
    """Width of the next figure in inches: the user's choice, else ``usual``.

    Raises:
        FigureSizeError: The width is less than ``least``, at which labels cover each other.
    """
    width = _look.get().width or usual
    if width < least:
        raise FigureSizeError(
            f"it is {width:g} inches wide, and below {least:.3g} its labels cover each other"
        )
    return width


def new_figure(width: float, height: float) -> Figure:
    """Create an empty figure, in inches.

    ``height`` is for the house style's font size; it is scaled with another one, unless the user
    chose a height.
    """
    look = _look.get()
    return Figure(figsize=(look.width or width, look.height or height * text_scale()))


def text_scale() -> float:
    """The present font size divided by that of the house style."""
    return float(mpl.rcParams["font.size"] / STYLE["font.size"])


def points(size: float) -> float:
    """Size of text that has ``size`` points in the house style, at the present font size."""
    return size * text_scale()


def legible(color: str) -> tuple[float, float, float]:
    """The colour, darkened as far as text on white needs: a contrast of 4.5 (WCAG 2.2, AA)."""
    rgb = np.array(to_rgb(color))
    # In small steps, so that the colour is not darker than it needs to be.
    while 1.05 / (_luminance(rgb) + 0.05) < CONTRAST:
        rgb *= 0.97
    red, green, blue = rgb
    return float(red), float(green), float(blue)


def _luminance(rgb: np.ndarray) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def characters(width: float, share: float = 1.0) -> int:
    """Number of characters of small text that fit into a share of ``width`` inches."""
    # 0.833 is matplotlib's factor for "small".
    size = 0.833 * mpl.rcParams["font.size"]
    # At least one word, so that text in a very narrow figure is not folded within words.
    return max(8, int(share * width * POINTS_PER_INCH / (CHARACTER * size)))


def remark(figure: Figure, text: str) -> None:
    """Write a remark about the numbers above the panels, in lines that fit the figure."""
    width = float(figure.get_figwidth())
    lines = [fill(line, characters(width, 0.96)) for line in text.splitlines()]
    figure.suptitle("\n".join(lines), fontsize=SMALL, color=REMARK)


def remark_lines(text: str, width: float) -> int:
    """Number of lines that ``remark`` needs in a figure of this width."""
    count = 0
    for line in text.splitlines():
        folded = fill(line, characters(width, 0.96)).splitlines()
        # An empty line is a line, too.
        count += max(1, len(folded))
    return count


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Number of columns of a legend with these labels that fit into ``width`` inches."""
    # Names of methods are mostly capitals, which are wider than other letters.
    longest = max((len(text) + CAPITAL * sum(map(str.isupper, text)) for text in labels), default=1)
    return max(1, min(len(labels), int(characters(width) / (longest + LEGEND_SAMPLE))))


def legend_lines(labels: Sequence[str], width: float) -> int:
    """Number of lines that ``legend_below`` needs."""
    return math.ceil(len(labels) / legend_columns(labels, width))


def legend_below(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], **options: Any
) -> None:
    """Add a legend of all panels below the figure, in as many columns as fit."""
    columns = legend_columns(labels, float(figure.get_figwidth()))
    settings = {"handlelength": 2.6, "columnspacing": 1.2, "handletextpad": 0.5, **options}
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **settings)


@dataclass(frozen=True)
class Drawing:
    """A figure, with its numbers as a table if it has any."""

    figure: Figure
    numbers: Table | None = None

    def files(self) -> dict[str, bytes]:
        """Content of the files of the picture and of the table, by file ending."""
        numbers = self.numbers.files() if self.numbers else {}
        return figure_files(self.figure) | numbers


def figure_files(figure: Figure) -> dict[str, bytes]:
    """Content of the figure's files by format, for every format that the user chose.

    Dates and versions are left out, so that equal figures give equal bytes.

    Raises:
        FigureSizeError: Its labels leave no room for its panels at the chosen size, or the edge of
            the figure would cut a text.
    """
    DeterministicCanvas(figure)
    with house_style(), _refusing_collapsed_panels(figure):
        _refuse_cut_texts(figure)
    files = {}
    for kind in _look.get().formats:
        buffer = io.BytesIO()
        with house_style(), _refusing_collapsed_panels(figure):
            figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=METADATA[kind])
        files[kind] = buffer.getvalue()
    return files


@contextmanager
def _refusing_collapsed_panels(figure: Figure) -> Iterator[None]:
    """Turn matplotlib's warning into an error, because it then draws labels over each other."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="constrained_layout not applied")
        try:
            yield
        except UserWarning:
            width, height = figure.get_size_inches()
            raise FigureSizeError(
                f"its labels leave no room for its panels at {width:g} x {height:g} inches"
            ) from None


def _refuse_cut_texts(figure: Figure) -> None:
    """Refuse a figure whose edge cuts off a text, which savefig does without a warning.

    Without a layout engine, which a style file may turn off, texts are where its user wants them.

    Raises:
        FigureSizeError: A text extends beyond the figure; names the one that is cut most.
    """
    if figure.get_layout_engine() is None:
        return
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    page = figure.bbox
    hidden = _hidden_tick_labels(figure)
    cut: dict[str, float] = {}
    for drawn in figure.findobj(Text):
        # A panel's edge may hide text on purpose.
        clipped = drawn.get_clip_on() and drawn.get_clip_box() is not None
        if clipped or not drawn.get_visible() or not drawn.get_text().strip() or drawn in hidden:
            continue
        box = drawn.get_window_extent(renderer)
        beyond = max(page.x0 - box.x0, box.x1 - page.x1, page.y0 - box.y0, box.y1 - page.y1)
        if beyond > CUT_POINTS * figure.dpi / POINTS_PER_INCH:
            cut[drawn.get_text()] = beyond
    if cut:
        width, height = figure.get_size_inches()
        worst = " ".join(max(cut, key=cut.__getitem__).split())
        raise FigureSizeError(
            f"at {width:g} x {height:g} inches its edge cuts off the text {worst!r}"
        )


def _hidden_tick_labels(figure: Figure) -> set[Text]:
    """Labels of ticks beyond the limits of their axis, which matplotlib keeps but does not draw."""
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    hidden |= {tick.label1, tick.label2}
    return hidden


# Matplotlib multiplies its transforms with BLAS, whose last bit depends on the matrices' place in
# memory. A vertex on the edge of a subpixel then falls on either side, and the shades of a few
# pixels of a PNG differ from run to run. So matrices are rounded before anything is drawn, to this
# number of decimals of a pixel: far finer than visible, far coarser than the last bit. Vector
# formats round to 6 decimals themselves.
DIGITS = 6

# Methods of a renderer -> positions of the transforms among their arguments.
TRANSFORMS = {"draw_path": (2,), "draw_markers": (2, 4), "draw_path_collection": (1, 5)}


class DeterministicCanvas(FigureCanvasAgg):  # type: ignore[misc]  # see pyproject.toml
    """Agg canvas that draws with rounded transforms, so that PNG files have the same bytes."""

    def get_renderer(self) -> RendererAgg:
        """Create a renderer for the figure's present size."""
        width, height = self.figure.bbox.size
        # Not cached: the methods of a cached renderer would be wrapped twice.
        self.renderer = RendererAgg(width, height, self.figure.dpi)
        for name, positions in TRANSFORMS.items():
            setattr(self.renderer, name, _rounding(getattr(self.renderer, name), positions))
        return self.renderer


def _rounding(draw: Callable[..., None], positions: tuple[int, ...]) -> Callable[..., None]:
    """Wrap a renderer's method to round the transforms at these positions of its arguments."""

    def rounded_draw(*arguments: Any, **named: Any) -> None:
        rounded = list(arguments)
        for position in positions:
            if position < len(rounded):
                rounded[position] = Affine2D(np.round(rounded[position].get_matrix(), DIGITS))
        draw(*rounded, **named)

    return rounded_draw
