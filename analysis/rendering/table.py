"""Tables of blocks of rows, written as LaTeX (booktabs), Markdown and CSV.

Equal content gives equal bytes.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeGuard

from analysis.rendering.latex import Grid, Part, escape, floats, lines_of, row_of, text_cell
from scpo.intervals import Summary, bound_texts, decimal
from scpo.progress import counted

# Largest number of columns of texts that are legible next to the repeated ones, in LaTeX.
TEXT_COLUMNS = 3

# Share of the page's text width for columns of texts; the rest is the space between them.
TEXT_SHARE = 0.93

# Sources of a number, in a table with numbers of other papers and of our own runs.
COPIED, RERUN = "copied", "re-run here"
MARKS = {COPIED: "ᶜ", RERUN: "ʳ"}
TEX_MARKS = {COPIED: r"$^{\mathrm{c}}$", RERUN: r"$^{\mathrm{r}}$"}


# Numbers


# What an interval of width 0 means, in notes and warnings.
BY_CHANCE = "which happens by chance with few seeds and coarse rates and is no certainty"


@dataclass(frozen=True)
class Number:
    """A number in print; empty parts are not printed.

    Attributes:
        mean: Mean, from ``decimal`` or as another paper prints it.
        std: Standard deviation.
        bold: True for the best number of its column.
        interval: Bounds of an interval, printed instead of a standard deviation.
        source: COPIED or RERUN, in a table with both.
        csv: Value in CSV, where print has less than the number, e.g. ``<0.001``.
    """

    mean: str
    std: str = ""
    bold: bool = False
    interval: tuple[str, str] | None = None
    source: str = ""
    csv: str = ""

    @property
    def text(self) -> str:
        """Plain text, e.g. ``93.7 ± 4.1``, ``93.7ᶜ`` or ``+2.1 [−0.4, +4.6]``."""
        mark = MARKS.get(self.source, "")
        mean = self.mean.replace("-", "−")
        if self.interval:
            return f"{mean} [{', '.join(self.interval)}]{mark}"
        if self.std:
            return f"{mean} ± {self.std}{mark}"
        return f"{mean}{mark}"

    @property
    def value(self) -> float:
        """The mean as it is printed."""
        return float(self.mean.replace("−", "-"))


NONE = Number("–")
Cell: TypeAlias = str | Number
Cells: TypeAlias = tuple[Cell, ...]


def number(
    summary: Summary,
    factor: float = 1,
    digits: int = 2,
    *,
    sign: bool = False,
) -> Number:
    """Mean ± standard deviation of a summary, times ``factor``; ``sign`` prints a plus, too."""
    if summary.n == 0:
        return NONE
    value = factor * summary.mean
    mean = decimal(value, digits, sign=sign)
    std = f"{factor * summary.std:.{digits}f}" if summary.n > 1 else ""
    return Number(mean, std)


def percent(summary: Summary, *, sign: bool = False, spread: bool = True) -> Number:
    """Mean of shares as a percentage with one decimal, with its deviation if ``spread``."""
    shown = number(summary, 100, 1, sign=sign)
    if spread or shown == NONE:
        return shown
    return replace(shown, std="")


def difference(summary: Summary, factor: float = 100, digits: int = 1) -> Number:
    """Mean difference with its 95 % Student-t interval, in percentage points by default.

    One pair has a difference, but no interval.
    """
    if summary.n == 0:
        return NONE
    mean = decimal(factor * summary.mean, digits, sign=True)
    if summary.n == 1:
        return Number(mean)
    return Number(mean, interval=bound_texts(summary.interval(), factor, digits, sign=True))


def marked(cells: Iterable[Number], source: str) -> tuple[Number, ...]:
    """Mark numbers with their source, except for dashes."""
    return tuple(cell if cell.mean == NONE.mean else replace(cell, source=source) for cell in cells)


def with_best_in_bold(rows: Sequence[Cells]) -> tuple[Cells, ...]:
    """Set the highest number of each column in bold; all of them if several are equal."""
    best: list[float | None] = []
    for column in zip(*rows, strict=True):
        # Compared as printed, so that numbers that look equal are both bold.
        values = [cell.value for cell in column if _is_number(cell)]
        best.append(max(values, default=None))
    shown = []
    for row in rows:
        cells: list[Cell] = []
        for cell, top in zip(row, best, strict=True):
            if _is_number(cell) and cell.value == top:
                cells.append(replace(cell, bold=True))
            else:
                cells.append(cell)
        shown.append(tuple(cells))
    return tuple(shown)


def _is_number(cell: Cell) -> TypeGuard[Number]:
    return isinstance(cell, Number) and cell != NONE


# Tables


@dataclass(frozen=True)
class Block:
    """Rows under one heading: words in the first columns, then numbers."""

    title: str
    rows: tuple[Cells, ...]


def with_columns(blocks: Iterable[Block], indices: Sequence[int]) -> tuple[Block, ...]:
    """Keep the columns with these indices in every row."""
    kept = []
    for block in blocks:
        rows = []
        for row in block.rows:
            rows.append(tuple(row[index] for index in indices))
        kept.append(Block(block.title, tuple(rows)))
    return tuple(kept)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        words: Names of the columns of words, which come first.
        numbers: Names of the columns of numbers.
        blocks: Rows.
        caption: Caption, as plain text.
        label: LaTeX label.
        widths: Widths of the columns of words, as shares of the page's width, if they hold whole
            texts; empty for short words.
        repeated: For a table of texts with many columns: number of leading columns that are
            repeated in each of the several grids that LaTeX needs; 0 for other tables.
        single: Names of the columns of single values (p-values, for example), not of means.
        footnotes: Text of each mark that ends a word, e.g. ``RLOO†``; its caption has them, too.
        notes: Sentences on the data: runs left out, several versions of the code. They follow the
            caption; in LaTeX, in smaller print at the end of the table.
    """

    words: tuple[str, ...]
    numbers: tuple[str, ...]
    blocks: tuple[Block, ...]
    caption: str
    label: str
    widths: tuple[float, ...] = ()
    repeated: int = 0
    single: tuple[str, ...] = ()
    footnotes: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a row with more or fewer cells than columns, with its cells.

        Raises:
            ValueError: There is such a row.
        """
        for block in self.blocks:
            for number, row in enumerate(block.rows, start=1):
                if len(row) != len(self.columns):
                    cells = " | ".join(cell if isinstance(cell, str) else cell.text for cell in row)
                    raise ValueError(
                        f"row {number} of block {block.title!r} has {counted(len(row), 'cell')} "
                        f"({cells}), expected {len(self.columns)}, one for each column: "
                        f"{' | '.join(self.columns)}"
                    )

    @property
    def full_caption(self) -> str:
        """The caption, followed by the notes."""
        return " ".join((self.caption, *self.notes))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return (*self.words, *self.numbers)

    @property
    def no_spread(self) -> tuple[str, ...]:
        """A note on intervals of width 0, which look like certainty; empty without one."""
        cells = [cell for block in self.blocks for row in block.rows for cell in row]
        equal = [
            cell.text
            for cell in cells
            if isinstance(cell, Number) and cell.interval and len(set(cell.interval)) == 1
        ]
        if not equal:
            return ()
        return (no_spread(equal),)

    def without_empty_columns(self) -> "Table":
        """The table without the columns of numbers in which no row has a number."""
        filled = self._filled(self.blocks)
        return replace(
            self,
            numbers=tuple(self.columns[index] for index in filled[len(self.words) :]),
            blocks=with_columns(self.blocks, filled),
        )

    def _filled(self, blocks: Iterable[Block]) -> list[int]:
        """Indices of the columns of words, and of the columns of numbers with any number."""
        rows = [row for block in blocks for row in block.rows]
        filled = list(range(len(self.words)))
        for index in range(len(self.words), len(self.columns)):
            if any(row[index] != NONE for row in rows):
                filled.append(index)
        return filled

    def files(self) -> dict[str, bytes]:
        """Content of its files by file ending."""
        return {
            "tex": self.tex().encode(),
            "md": self.md().encode(),
            "csv": self.csv().encode(),
        }

    def tex(self) -> str:
        """``table*`` floats that need the packages booktabs and graphicx."""
        return floats(self._grids(), self.caption, self.label, " ".join(self.notes))

    def _grids(self) -> Iterator[Grid]:
        count = len(self.columns)
        if not self.repeated:
            yield self._grid(self.widths, range(count))
            return
        # Texts of many runs are too wide for one page, so the columns are spread over grids: the
        # repeated columns, and next to them as many others as are legible.
        step = min(TEXT_COLUMNS, count - self.repeated)
        width = round(TEXT_SHARE / (self.repeated + step), 3)
        for first in range(self.repeated, count, step):
            chosen = (*range(self.repeated), *range(first, min(first + step, count)))
            yield self._grid((width,) * len(chosen), chosen)

    def _grid(self, widths: Sequence[float], chosen: Sequence[int]) -> Grid:
        """Grid of the chosen columns; the first ``len(widths)`` of them hold texts."""
        layout = "l" * len(self.words)
        if widths:
            layout = "".join(rf"p{{{width}\textwidth}}" for width in widths)
        if not self.repeated:
            layout += "c" * len(self.numbers)
        parts = []
        for block in self.blocks:
            rows = []
            for row in block.rows:
                rows.append(_tex_row([row[index] for index in chosen], widths))
            parts.append(Part(escape(block.title), tuple(rows)))
        head = _tex_row([self.columns[index] for index in chosen], widths)
        return Grid(layout, head, len(chosen), tuple(parts))

    def md(self) -> str:
        """One Markdown table per block, without columns that are empty in it; then the caption."""
        lines = []
        for block in self.blocks:
            filled = self._filled([block])
            lines.append(f"**{_md_title(block.title)}**")
            lines.append("")
            lines.append(_md_row([self.columns[index] for index in filled]))
            lines.append(_md_row(["---"] * len(filled)))
            for row in block.rows:
                lines.append(_md_row([row[index] for index in filled]))
            lines.append("")
        lines.append(f"{self.full_caption}\n")
        return "\n".join(lines)

    def csv(self) -> str:
        """One line per row; mean, deviation etc. of a number have columns of their own.

        No two columns have one name: programs rename or overwrite such columns in silence. Marks
        of footnotes are not part of the words, by which programs join tables; their texts are in
        the last column.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        parts = [self._parts(index) for index in range(len(self.columns))]
        head = ["block"]
        for name, own in zip(self.columns, parts, strict=True):
            head += [f"{name} {part}" for part in own] if len(own) > 1 else [name]
        if self.footnotes:
            head.append("notes")
        writer.writerow(_unique(head))
        for block in self.blocks:
            for row in block.rows:
                writer.writerow([_no_formula(cell) for cell in self._line(block, row, parts)])
        return text.getvalue()

    def _line(self, block: Block, row: Cells, parts: Sequence[tuple[str, ...]]) -> list[str]:
        line = [block.title]
        notes: list[str] = []
        for cell, own in zip(row, parts, strict=True):
            if isinstance(cell, str):
                word, texts = self._without_marks(cell)
                line.append(word)
                notes += texts
            else:
                line += _flat(cell, own)
        if self.footnotes:
            line.append("; ".join(dict.fromkeys(notes)))
        return line

    def _without_marks(self, word: str) -> tuple[str, list[str]]:
        """A word without its marks, and the texts of these."""
        if not self.footnotes:
            return word, []
        # The longest first: a mark may be the double of another.
        marks = sorted(self.footnotes, key=len, reverse=True)
        # A line of differences has marks at both of its methods, so not only at its end.
        any_mark = re.compile("|".join(map(re.escape, marks)))
        texts = [self.footnotes[mark] for mark in any_mark.findall(word)]
        return any_mark.sub("", word), texts

    def _parts(self, index: int) -> tuple[str, ...]:
        """Parts of a column in CSV; bounds and sources only if a number of the column has them."""
        if index < len(self.words) or self.columns[index] in self.single:
            return ("mean",)
        cells = [row[index] for block in self.blocks for row in block.rows]
        numbers = [cell for cell in cells if isinstance(cell, Number)]
        # The deviation always has its column, so that a second seed adds none.
        parts = ["mean", "std"]
        if any(number.interval for number in numbers):
            parts += ["low", "high"]
        if any(number.source for number in numbers):
            parts.append("source")
        return tuple(parts)


# LaTeX


def _tex_row(cells: Sequence[Cell], widths: Sequence[float]) -> tuple[str, int]:
    """The row in LaTeX, and its number of printed lines."""
    shown = []
    texts = []
    for place, cell in enumerate(cells):
        if isinstance(cell, Number):
            shown.append(_tex_number(cell))
            texts.append(cell.text)
        else:
            shown.append(text_cell(cell) if place < len(widths) else escape(cell))
            texts.append(cell)
    return row_of(shown), lines_of(texts, widths)


def _tex_number(number: Number) -> str:
    mean = escape(number.mean.replace("-", "−"))
    if number.bold:
        mean = rf"\textbf{{{mean}}}"
    if number.interval:
        bounds = escape(f"[{', '.join(number.interval)}]")
        return rf"{mean} {{\scriptsize {bounds}}}"
    mark = TEX_MARKS.get(number.source, "")
    if number.std:
        return rf"{mean}$_{{\pm {number.std}}}${mark}"
    return f"{mean}{mark}"


# Markdown


def _md_row(cells: Iterable[Cell]) -> str:
    return "| " + " | ".join(_md_cell(cell) for cell in cells) + " |"


def _md_title(text: str) -> str:
    """A title on one line, with markup escaped: it may come from a user's experiment."""
    # Escaped first, because the other replacements insert backslashes.
    title = re.sub(r"([\\*`])", r"\\\1", " ".join(text.split()))
    return title.replace("<", "&lt;").replace("](", r"]\(")


def _md_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return " ".join(cell.split()).replace("|", r"\|").replace("<", "&lt;")
    return f"**{cell.text}**" if cell.bold else cell.text


# CSV


def _flat(number: Number, parts: Iterable[str]) -> list[str]:
    """The number's values of these parts."""
    low, high = number.interval or ("", "")
    values = {
        "mean": "" if number == NONE else number.csv or number.mean,
        "std": number.std,
        "low": low,
        "high": high,
        "source": number.source,
    }
    # With a hyphen, because programs do not read the minus sign as part of a number.
    return [values[part].replace("−", "-") for part in parts]


def no_spread(intervals: Sequence[str]) -> str:
    """Note on printed intervals of width 0, of which there is at least one."""
    others = counted(len(intervals) - 1, "other interval")
    more = f" and {others}" if len(intervals) > 1 else ""
    return (
        f"no spread in {intervals[0]}{more}: the pairs are equal in the digits shown, {BY_CHANCE}"
    )


def _unique(names: Iterable[str]) -> list[str]:
    """The names; a repeated one with its number: ``p``, ``p (2)``."""
    unique: list[str] = []
    for name in names:
        number, shown = 1, name
        while shown in unique:
            number += 1
            shown = f"{name} ({number})"
        unique.append(shown)
    return unique


def _no_formula(cell: str) -> str:
    """Quote text that a spreadsheet would execute as a formula; numbers stay as they are."""
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
