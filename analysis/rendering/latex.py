"""LaTeX of tables: floats for ``booktabs`` and ``graphicx`` that fit onto a page."""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pylatexenc.latexencode import RULE_DICT, UnicodeToLatexConversionRule, UnicodeToLatexEncoder

# Places without a space, within names and paths, where a line may end.
BREAKABLE = re.compile(r"(?<=\w)(\\_|/|\.(?=[a-z]))(?=\w)")

# Lines here are lines of \footnotesize. A page of nine inches has room for PAGE_LINES; a table gets
# at most MOST_LINES of them and at least LEAST_LINES, however long its caption is.
PAGE_LINES = 64
MOST_LINES = 54
LEAST_LINES = 12

# Number of characters that count as one line. LETTERS, for cells and titles (\footnotesize): as
# many as fit into the text's width. CAPTION_LETTERS (\normalsize), NOTE_LETTERS (\scriptsize): as
# many as take the height of a line of \footnotesize.
LETTERS = 100
CAPTION_LETTERS = 66
NOTE_LETTERS = 120


@dataclass(frozen=True)
class Part:
    """Rows under one title, each as LaTeX with its number of printed lines."""

    title: str
    rows: tuple[tuple[str, int], ...]

    @property
    def title_lines(self) -> int:
        """Number of printed lines of the title with its rule."""
        return 1 + max(1, math.ceil(len(self.title) / LETTERS))


@dataclass(frozen=True)
class Grid:
    """Columns of a table: LaTeX's column layout, headline, number of columns, and rows.

    The headline is LaTeX with its number of printed lines, as the rows are.
    """

    layout: str
    head: tuple[str, int]
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


def floats(grids: Iterable[Grid], caption: str, label: str, notes: str = "") -> str:
    """One ``table*``, or several if the rows do not fit on a page.

    The first has the caption, and the others refer to it. The notes are in smaller print at the end
    of the last one.

    Args:
        grids: Columns and rows, as LaTeX.
        caption: Caption, as plain text.
        label: Label that other floats and the text refer to.
        notes: Notes on the data, as plain text.
    """
    grids = list(grids)
    room = PAGE_LINES - math.ceil(len(caption) / CAPTION_LETTERS)
    pages = _split(grids, room)
    if len(pages) == 1:
        pages = _split(grids, room - math.ceil(len(notes) / NOTE_LETTERS))
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
            lines += [rf"\caption{{{escape(caption)}}}", rf"\label{{{label}}}"]
        else:
            lines += [r"\par\medskip", rf"Table~\ref{{{label}}}, continued."]
        if notes and page == len(pages) - 1:
            text = rf"\scriptsize {escape(notes)}"
            lines += [r"\par\smallskip", rf"\parbox{{\textwidth}}{{{text}}}"]
        lines.append(r"\end{table*}")
    return "\n".join(lines) + "\n"


def _split(grids: Iterable[Grid], room: int) -> list[tuple[Grid, list[Part]]]:
    """Parts of each page; the first page has room for ``room`` lines.

    LaTeX cannot break a float, so long tables are split here.
    """
    pages: list[tuple[Grid, list[Part]]] = []
    for grid in grids:
        # The usual headline has one line, which is not among the lines of a page.
        _, head = grid.head
        most = MOST_LINES - (head - 1)
        first = most if pages else max(LEAST_LINES, min(most, room - (head - 1)))
        pages += [(grid, parts) for parts in _pages(grid.parts, first, most)]
    return pages


def _pages(parts: Iterable[Part], first: int, most: int) -> Iterator[list[Part]]:
    """Yield the parts of each page: ``first`` lines on the first one, ``most`` on the others.

    A part that does not fit on the rest of a page begins on the next one. A part that is longer
    than a page is split.
    """
    page: list[Part] = []
    left = first
    for part in parts:
        needed = part.title_lines + sum(lines for _, lines in part.rows)
        if page and needed > left:
            yield page
            page, left = [], most
        *whole, last = _pieces(part, left, most)
        for piece in whole:
            yield [piece]
            left = most
        page.append(last)
        left -= last.title_lines + sum(lines for _, lines in last.rows)
    if page:
        yield page


def _pieces(part: Part, first: int, most: int) -> list[Part]:
    pieces: list[list[tuple[str, int]]] = [[]]
    left = first - part.title_lines
    for text, lines in part.rows:
        if pieces[-1] and lines > left:
            pieces.append([])
            left = most - part.title_lines
        pieces[-1].append((text, lines))
        left -= lines
    titles = [part.title, *[f"{part.title} (continued)"] * (len(pieces) - 1)]
    return [Part(title, tuple(rows)) for title, rows in zip(titles, pieces, strict=True)]


def _tabular(grid: Grid, parts: Iterable[Part]) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{@{{}}{grid.layout}@{{}}}}"
    yield from (r"\toprule", grid.head[0])
    for part in parts:
        layout = r"@{}p{\textwidth}@{}" if len(part.title) > LETTERS else "@{}l"
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
