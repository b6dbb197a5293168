"""LaTeX of tables: floats for ``booktabs`` and ``graphicx`` that fit onto a page."""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pylatexenc.latexencode import RULE_DICT, UnicodeToLatexConversionRule, UnicodeToLatexEncoder

# Places without a space, within names and paths, where a line may end.
BREAKABLE = re.compile(r"(?<=\w)(\\_|/)(?=\w)")

# Number of lines of \footnotesize that fit above a long caption on a page of nine inches.
MOST_LINES = 54

# Number of lines of a title with its rule.
TITLE_LINES = 2

# Number of characters of \footnotesize in the text's width. Longer titles need several lines.
LETTERS = 100
LONG_TITLE = 100


@dataclass(frozen=True)
class Part:
    """Rows under one title, each as LaTeX with its number of printed lines."""

    title: str
    rows: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Grid:
    """Columns of a table: LaTeX's column layout, headline, number of columns, and rows."""

    layout: str
    head: str
    columns: int
    parts: tuple[Part, ...]


def escape(text: str) -> str:
    """Plain text as ASCII that pdflatex prints unchanged, without packages (kernel of 2020 on)."""
    characters = []
    for character in " ".join(text.split()):
        # Control characters and surrogates are dropped.
        if unicodedata.category(character) not in ("Cc", "Cs"):
            characters.append(character)
    printable = "".join(characters)
    latex: str = _ENCODER.unicode_to_latex(unicodedata.normalize("NFC", printable))
    return latex


def text_cell(text: str) -> str:
    """Text for a column of a given width: left-aligned, with breaks within names and paths."""
    return r"\raggedright " + BREAKABLE.sub(r"\1\\penalty500 ", escape(text))


def _nearest(character: str) -> str:
    """Substitute for a character without a LaTeX form: its ASCII letters, or a question mark."""
    decomposed = unicodedata.normalize("NFKD", character)
    letters = [letter for letter in decomposed if letter.isascii()]
    return "".join(_ENCODER.unicode_to_latex(letter) for letter in letters) or "?"


_SPECIAL = {
    # At the start of a row, LaTeX would read [ as the optional argument of the row's end before it.
    "[": "{[}",
    # At the start of a row, LaTeX would read * as part of the row's end before it (\\*).
    "*": "{*}",
    # In the default encoding of fonts, a plain bar prints a dash.
    "|": r"\textbar",
    # The library's form needs amssymb.
    "∅": r"\ensuremath{\emptyset}",
    # An ogonek needs other fonts, so these letters are printed without it.
    **{letter: unicodedata.normalize("NFD", letter)[0] for letter in "ĄąĘęĮįŲų"},
}
_ENCODER = UnicodeToLatexEncoder(
    conversion_rules=[
        UnicodeToLatexConversionRule(
            RULE_DICT, {ord(letter): form for letter, form in _SPECIAL.items()}
        ),
        "defaults",
    ],
    unknown_char_policy=_nearest,
    unknown_char_warning=False,
)


def row_of(cells: Iterable[str]) -> str:
    """One line of a table."""
    return " & ".join(cells) + r" \tabularnewline"


def lines_of(texts: Sequence[str], widths: Sequence[float]) -> int:
    """Number of printed lines of a row.

    Args:
        texts: Texts of the row's cells.
        widths: Widths of the first columns, as shares of the text's width.
    """
    # Not strict: the columns of numbers, which come last, have no width and do not wrap.
    wrapped = (len(text) / (LETTERS * width) for text, width in zip(texts, widths, strict=False))
    return max((math.ceil(lines) for lines in wrapped), default=1) or 1


def floats(grids: Iterable[Grid], caption: str, label: str) -> str:
    """One ``table*``, or several if the rows do not fit on a page.

    The first has the caption; the others refer to it.
    """
    # LaTeX cannot break a float, so long tables are split here.
    pages = [(grid, parts) for grid in grids for parts in _pages(grid.parts)]
    lines: list[str] = []
    for page, (grid, parts) in enumerate(pages):
        lines += [
            r"\begin{table*}[tp]",
            r"\centering",
            r"\footnotesize",
            r"\setlength{\tabcolsep}{3pt}",
        ]
        lines += _shrunk(_tabular(grid, parts))
        if page == 0:
            lines += [rf"\caption{{{caption}}}", rf"\label{{{label}}}"]
        else:
            lines += [r"\par\medskip", rf"Table~\ref{{{label}}}, continued."]
        lines.append(r"\end{table*}")
    return "\n".join(lines) + "\n"


def _pages(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the parts of each page.

    A part that does not fit on the rest of a page begins on the next one. A part that is longer
    than a page is split.
    """
    page: list[Part] = []
    left = MOST_LINES
    for part in parts:
        needed = TITLE_LINES + sum(lines for _, lines in part.rows)
        if page and needed > left:
            yield page
            page, left = [], MOST_LINES
        *whole, last = _pieces(part)
        for piece in whole:
            yield [piece]
        page.append(last)
        left -= TITLE_LINES + sum(lines for _, lines in last.rows)
    if page:
        yield page


def _pieces(part: Part) -> list[Part]:
    pieces: list[list[tuple[str, int]]] = [[]]
    left = MOST_LINES - TITLE_LINES
    for text, lines in part.rows:
        if pieces[-1] and lines > left:
            pieces.append([])
            left = MOST_LINES - TITLE_LINES
        pieces[-1].append((text, lines))
        left -= lines
    titles = [part.title, *[f"{part.title} (continued)"] * (len(pieces) - 1)]
    return [Part(title, tuple(rows)) for title, rows in zip(titles, pieces, strict=True)]


def _tabular(grid: Grid, parts: Iterable[Part]) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{@{{}}{grid.layout}@{{}}}}"
    yield from (r"\toprule", grid.head)
    for part in parts:
        layout = r"@{}p{\textwidth}@{}" if len(part.title) > LONG_TITLE else "@{}l"
        title = rf"\raggedright\textit{{{part.title}}}"
        yield from (
            r"\midrule",
            rf"\multicolumn{{{grid.columns}}}{{{layout}}}{{{title}}} \tabularnewline",
        )
        yield from (text for text, _ in part.rows)
    yield from (r"\bottomrule", r"\end{tabular}")


def _shrunk(lines: Iterable[str]) -> list[str]:
    """LaTeX lines in a box that is scaled down if it is wider than the text."""
    first, *rest = lines
    fit = r"\ifdim\wd0>\textwidth\resizebox{\textwidth}{!}{\usebox0}\else\usebox0\fi"
    # The condition is needed because \resizebox would also enlarge narrow tables.
    return [rf"\sbox0{{{first}", *rest[:-1], f"{rest[-1]}}}", fit]
