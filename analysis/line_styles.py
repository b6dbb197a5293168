"""Line styles: colour, marker and dashes of each method in every figure and on the report page.

Every method has a colour, a marker and dashes of its own. The colours maximise the smallest
distance in CIELAB under normal vision, protanopia, deuteranopia and tritanopia (13.7 between any
two; a test measures it). Methods with a similar grey in print differ in marker and dashes. Only
SCPO is vermilion with a solid line; its ablations are shades of brown and orange. Methods that are
not listed get the reserve styles, in the registry's order.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import matplotlib as mpl

from analysis.names import ABLATION, CONTROLS, METHODS
from analysis.sources.rows import DEFAULT, Row

# Name of a marker, or (number of sides, 0 for a polygon or 1 for a star, angle).
Marker: TypeAlias = str | tuple[int, int, float]
VERMILION = "#D55E00"

# Colours of SCPO's ablations and controls.
SHADES = ("#933F00", "#F2A65A", "#4A1D00", "#AE8163", "#EBC8A0")

# Widths of SCPO's line and of the others', in line widths of the style.
BOLD, PLAIN = 1.5, 1.0

# Pixels on the report page per unit of a dash.
SCREEN = 2.0

# On a dark page, a colour whose channels (0 to 255) are all below DARK is mixed with the share
# PALER of white.
DARK, PALER = 190, 0.55


@dataclass(frozen=True)
class LineStyle:
    """Style of a line.

    Attributes:
        color: Colour, ``#RRGGBB``.
        marker: Marker.
        dashes: Lengths of dashes and gaps in line widths; empty for a solid line.
        width: Width in line widths of the style.
    """

    color: str
    marker: Marker
    dashes: tuple[float, ...] = ()
    width: float = PLAIN

    def line(self) -> dict[str, Any]:
        """Keyword arguments of matplotlib's ``plot``; the width depends on the active style."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": (0, self.dashes) if self.dashes else "-",
            "linewidth": self.width * mpl.rcParams["lines.linewidth"],
        }

    def screen(self) -> dict[str, str]:
        """Style on the report page: colours for light and dark mode, and an SVG dash array."""
        channels = [int(self.color[at : at + 2], 16) for at in (1, 3, 5)]
        if max(channels) < DARK:
            channels = [round(channel + (255 - channel) * PALER) for channel in channels]
        return {
            "colour": self.color,
            "dark": "#" + "".join(f"{channel:02X}" for channel in channels),
            "dash": " ".join(f"{SCREEN * length:g}" for length in self.dashes),
        }


SCPO = LineStyle(VERMILION, "o", width=BOLD)
STYLES: Mapping[str, LineStyle] = {
    DEFAULT: SCPO,
    "gigpo": LineStyle("#0072B2", "s", (4, 1.2)),
    "grpo": LineStyle("#009E73", "P", (1, 1)),
    "crbc": LineStyle("#9D0927", "v", (4, 1, 1, 1)),
    "graphgpo": LineStyle("#6A61F2", "^", (2, 1)),
    "gagpo": LineStyle("#C019AA", "<", (8, 1.5)),
    "rewardflow": LineStyle("#F497A3", "p", (4, 1, 1, 1, 1, 1)),
    "hgpo": LineStyle("#55069A", "X", (8, 1, 1, 1)),
    "g2po": LineStyle("#22380A", "D", (1, 2.5)),
    "hcapo": LineStyle("#B46399", "*", (8, 1, 3, 1)),
    "empg": LineStyle("#2B5264", ">", (4, 3)),
    "dapo": LineStyle("#57D558", "h", (2, 1, 1, 1)),
    "rloo": LineStyle("#55C5FF", "d", (8, 1, 1, 1, 1, 1)),
    "ppo": LineStyle("#CFBB1A", "8", (2, 2.5)),
    "plain": LineStyle("#000000", (3, 1, 0), (4, 1, 4, 1, 1, 1)),
    "react": LineStyle("#784E51", (4, 1, 0), (8, 3.5)),
    "reflexion": LineStyle("#8D7746", (4, 1, 45), (8, 1, 3, 1, 3, 1)),
    "gpt_4o": LineStyle("#9592FB", (6, 1, 0), (12, 2)),
    "gemini_2_5_pro": LineStyle("#95B873", (8, 1, 0), (12, 1, 1, 1)),
}
RESERVE = (
    LineStyle("#6E1043", "H", (6, 2, 1, 2)),
    LineStyle("#312372", (7, 0, 0), (6, 1, 2, 1, 2, 1)),
    LineStyle("#C5B5D2", (3, 0, 180), (3, 2, 1, 2)),
    LineStyle("#F11743", (5, 0, 180), (5, 2, 5, 1)),
    LineStyle("#7812FC", (5, 1, 180), (10, 1, 2, 1)),
    LineStyle("#30003C", (3, 1, 60), (5, 1)),
    LineStyle("#001EC6", (7, 1, 0), (3, 1, 3, 3)),
    LineStyle("#BA8ACC", (6, 1, 30), (2, 1, 2, 3)),
    LineStyle("#544884", (4, 0, 20), (7, 2, 2, 2)),
    LineStyle("#961EC6", (9, 1, 0), (1, 1, 1, 3)),
)
VARIANTS = (*ABLATION[1:], *(name for name in CONTROLS if name not in METHODS))

# The numbers of shades (5), dashes (7) and markers (12) have no common divisor. So consecutive
# variants differ in all three, and every pair of shade and dashes occurs.
VARIANT_DASHES = tuple(style.dashes for style in STYLES.values() if style.dashes)[:7]
VARIANT_MARKERS: tuple[Marker, ...] = (
    "s",
    "^",
    "D",
    "v",
    "P",
    "X",
    "<",
    "p",
    "*",
    ">",
    "h",
    "d",
)


def line_style(name: str, method: str = "") -> LineStyle:
    """Style of a row: that of a method, or of a variant of ``method``."""
    if name in STYLES:
        return STYLES[name]
    new_methods = [known for known in METHODS if known not in STYLES]
    if name in new_methods:
        return _reserve(new_methods.index(name))
    # A run whose method is not registered in this installation.
    if name == method:
        return _reserve(_hash(name))
    return _variant(_host_style(method), _variant_number(name))


def line_styles(
    rows: Iterable[Row], experiments: Iterable[Iterable[Row]] = ()
) -> dict[str, LineStyle]:
    """Styles of all rows of a figure, no two alike.

    A registered method keeps its style in every figure. A variant that would share a shade with
    another row of its experiment takes the next free shade, so that lines differ only in their
    dashes when the shades have run out.

    Args:
        rows: The rows.
        experiments: All rows of each experiment. They are styled first, so that a row looks the
            same in figures of other rows.
    """
    by_name = {row.name: row for row in rows}
    groups = [list(group) for group in experiments]
    groups.append(list(by_name.values()))
    # First, so that no other row takes the style of a method that comes later.
    names = {row.name: None for group in groups for row in group}
    chosen = {name: line_style(name) for name in names if name in STYLES or name in METHODS}
    for group in groups:
        for row in group:
            if row.name not in chosen:
                of_group = [chosen[other.name] for other in group if other.name in chosen]
                chosen[row.name] = _free_style(row, of_group, list(chosen.values()))
    return {name: chosen[name] for name in by_name}


def plot_styles(
    rows: Iterable[Row],
    colors: Sequence[str] = (),
    earlier: Mapping[str, str] = MappingProxyType({}),
    experiments: Iterable[Iterable[Row]] = (),
) -> dict[str, dict[str, Any]]:
    """Styles of all rows as keyword arguments of ``plot``.

    Args:
        rows: The rows.
        colors: A user's palette; rows get its colours in the order of the registry.
        earlier: Colours of the palette that rows have in other panels of the figure, and keep.
        experiments: All rows of each experiment, as for ``line_styles``.
    """
    styles = line_styles(rows, experiments)
    if colors:
        registered = list(STYLES)

        def order(name: str) -> int:
            if name in STYLES:
                return registered.index(name)
            return len(registered)

        chosen = {name: earlier[name] for name in styles if name in earlier}
        for name in sorted(styles, key=order):
            if name not in chosen:
                used = list(chosen.values())
                # The first colour that is free, or else one that the fewest rows have.
                chosen[name] = min(colors, key=used.count)
        styles = {name: replace(style, color=chosen[name]) for name, style in styles.items()}
    return {name: style.line() for name, style in styles.items()}


def _free_style(row: Row, of_group: Sequence[LineStyle], used: Sequence[LineStyle]) -> LineStyle:
    """A style that no other row has.

    Args:
        row: The row.
        of_group: Styles of the other rows of its experiment.
        used: Styles of all other rows.
    """
    own = line_style(row.name, row.method)
    # A method that is not registered here keeps its style too unless another one has it.
    if row.name == row.method and own not in used:
        return own
    host = _host_style(row.method)
    number = _variant_number(row.name)
    candidates = [own]
    for k in range(len(SHADES) * len(VARIANT_DASHES) * len(VARIANT_MARKERS)):
        candidates.append(_variant(host, number + k))
    # Prefer another shade, because readers distinguish colours faster than dashes.
    used_colors = {style.color for style in of_group}
    for candidate in candidates:
        if candidate.color not in used_colors and candidate not in used:
            return candidate
    # Rows of one colour should differ in both marker and dashes.
    for candidate in candidates:
        alike = [style for style in of_group if style.color == candidate.color]
        markers = {style.marker for style in alike}
        dashes = {style.dashes for style in alike}
        of_its_own = candidate.marker not in markers and candidate.dashes not in dashes
        if of_its_own and candidate not in used:
            return candidate
    for candidate in (*candidates, *RESERVE):
        if candidate not in used:
            return candidate
    return own


def _host_style(method: str) -> LineStyle:
    return line_style(method, method) if method else SCPO


def _reserve(number: int) -> LineStyle:
    """Style of a new method; when the reserve has run out, its colours with other dashes."""
    turn, place = divmod(number, len(RESERVE))
    if not turn:
        return RESERVE[place]
    # The reserve excludes these markers and dashes: the first 840 styles all differ.
    return replace(
        RESERVE[place],
        marker=VARIANT_MARKERS[turn % len(VARIANT_MARKERS)],
        dashes=VARIANT_DASHES[turn % len(VARIANT_DASHES)],
    )


def _variant_number(name: str) -> int:
    if name in VARIANTS:
        return VARIANTS.index(name)
    return _hash(name)


def _variant(host: LineStyle, number: int) -> LineStyle:
    """Style of a variant: another marker and other dashes than the method's.

    The colour is a shade for SCPO's variants, else the method's.
    """
    color = host.color
    if host.color == VERMILION:
        color = SHADES[number % len(SHADES)]
    marker = VARIANT_MARKERS[number % len(VARIANT_MARKERS)]
    if marker == host.marker:
        marker = VARIANT_MARKERS[(number + 1) % len(VARIANT_MARKERS)]
    dashes = VARIANT_DASHES[number % len(VARIANT_DASHES)]
    if dashes == host.dashes:
        dashes = VARIANT_DASHES[(number + 1) % len(VARIANT_DASHES)]
    return LineStyle(color, marker, dashes)


def _hash(name: str) -> int:
    # Python's hash() of a text differs between processes.
    return zlib.crc32(name.encode())
