"""One line style for each method: its colour, marker and dashes in every figure and on the report page.

SCPO alone has vermilion, solid lines and discs; its ablations are shades of it with markers of their own. Styles whose
colours are alike to some reader (with any colour vision, or in grey print) differ in marker and in dashes. A method
that is not listed gets one of the spare styles, in the registry's order: the same in every figure.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.naming.methods import ABLATION, CONTROLS, METHODS
from analysis.sources.rows import DEFAULT, Row

VERMILION = "#D55E00"  # this one and blue, green, pink, amber, sky: Okabe and Ito's palette
BLUE, GREEN, PINK, AMBER, SKY = "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
BLACK, GREY, PURPLE, BROWN, TEAL = "#000000", "#7F7F7F", "#5D3A9B", "#6B3A1E", "#004D40"
SHADES = ("#7A3300", VERMILION, "#F2A65A")

DASHED, DOTTED, DASH_DOT = (4, 1.2), (1, 1), (4, 1, 1, 1)
LONG, DASH_DOT_DOT, SHORT = (8, 1.5), (4, 1, 1, 1, 1, 1), (2, 1)
DASHES: tuple[tuple[float, ...], ...] = (DASHED, DOTTED, DASH_DOT, LONG, DASH_DOT_DOT, SHORT)
MARKERS = "s^DvPX<>p*"
BOLD, PLAIN = 1.8, 1.2  # points: widths of SCPO's line and of the others'
SCREEN = 2.0  # of a dash on the report page
DARK, PALER = 190, 0.55  # colours without a channel above the first are mixed with so much white for dark paper


@dataclass(frozen=True)
class LineStyle:
    """A colour, a marker, and the lengths of dashes and gaps in line widths (none: a solid line)."""

    color: str
    marker: str
    dashes: tuple[float, ...] = ()
    width: float = PLAIN

    def line(self) -> dict[str, Any]:
        """As matplotlib's ``plot`` takes it."""
        style = (0, self.dashes) if self.dashes else "-"
        return {"color": self.color, "marker": self.marker, "linestyle": style, "linewidth": self.width}

    def screen(self) -> dict[str, str]:
        """As the report page takes it: a colour for light paper, one for dark paper, and an SVG dash array."""
        channels = [int(self.color[at : at + 2], 16) for at in (1, 3, 5)]
        pale = [round(one + (255 - one) * PALER) if max(channels) < DARK else one for one in channels]
        dash = " ".join(f"{SCREEN * length:g}" for length in self.dashes)
        return {"colour": self.color, "dark": "#" + "".join(f"{one:02X}" for one in pale), "dash": dash}


SCPO = LineStyle(VERMILION, "o", width=BOLD)
STYLES: Mapping[str, LineStyle] = {
    DEFAULT: SCPO,
    "gigpo": LineStyle(BLUE, "s", DASHED),
    "graphgpo": LineStyle(BLUE, "^", DOTTED),
    "gagpo": LineStyle(BLUE, "v", LONG),
    "grpo": LineStyle(GREEN, "P", DASHED),
    "hcapo": LineStyle(PINK, "X", DOTTED),
    "empg": LineStyle(GREY, "<", DASH_DOT),
    "dapo": LineStyle(GREEN, ">", LONG),
    "rewardflow": LineStyle(PINK, "p", DASH_DOT_DOT),
    "hgpo": LineStyle(PURPLE, "^", DASHED),
    "g2po": LineStyle(TEAL, "D", DOTTED),
    "crbc": LineStyle(BROWN, "v", DASH_DOT),
    "rloo": LineStyle(SKY, ">", DASHED),
    "ppo": LineStyle(AMBER, "p", DOTTED),
    "plain": LineStyle(BLACK, "^", DASH_DOT),
    "react": LineStyle(BLACK, "P", SHORT),
    "reflexion": LineStyle(SKY, "*", DASH_DOT),
    "gpt_4o": LineStyle(AMBER, "s", LONG),
    "gemini_2_5_pro": LineStyle(SKY, "^", DASH_DOT_DOT),
}
SPARE = (
    *(LineStyle(PURPLE, "P", LONG), LineStyle(TEAL, "X", DASH_DOT_DOT)),
    *(LineStyle(BROWN, "<", SHORT), LineStyle(AMBER, "D", SHORT)),
)
VARIANTS = (*ABLATION[1:], *(name for name in CONTROLS if name not in METHODS))


def line_style(name: str, method: str = "") -> LineStyle:
    """The style of a row: of a method, or of a variant of one (``method`` is that of its runs)."""
    if name in STYLES:
        return STYLES[name]
    newcomers = [known for known in METHODS if known not in STYLES]
    if name in newcomers or name == method:
        at = newcomers.index(name) if name in newcomers else _hash(name)
        return SPARE[at % len(SPARE)]
    at = VARIANTS.index(name) if name in VARIANTS else _hash(name)
    return _variant(line_style(method, method) if method else SCPO, at)


def line_styles(rows: Iterable[Row]) -> dict[str, LineStyle]:
    """The styles of all rows of a figure; of two unlisted ones that would have the same, the later gets another."""
    found: dict[str, LineStyle] = {}
    for row in rows:
        if row.name not in found:
            own = line_style(row.name, row.method)
            others = (_variant(own, at) for at in range(len(_KINDS)))
            found[row.name] = next((one for one in (own, *others, *SPARE) if one not in found.values()), own)
    return found


def plot_styles(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """The same as matplotlib's ``plot`` takes them."""
    return {name: one.line() for name, one in line_styles(rows).items()}


_KINDS = tuple(
    (shade, MARKERS[(3 * at + shade) % len(MARKERS)], dashes) for at, dashes in enumerate(DASHES) for shade in range(3)
)


def _variant(method: LineStyle, at: int) -> LineStyle:
    shade, marker, dashes = _KINDS[at % len(_KINDS)]
    return LineStyle(SHADES[shade] if method.color in SHADES else method.color, marker, dashes)


def _hash(name: str) -> int:
    return zlib.crc32(name.encode())
