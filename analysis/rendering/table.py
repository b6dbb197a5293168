"""A table of blocks, written as LaTeX (booktabs), Markdown and CSV with the same bytes for the same content."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from scpo.intervals import Summary

from analysis.rendering.latex import Grid, Part, escape, floats, lines_of, row_of, text_cell

BESIDE = 3  # columns of texts that are legible beside the repeated ones
COPIED, RERUN = "copied", "re-run here"  # where a number of a table with both comes from
MARKS = {COPIED: "ᶜ", RERUN: "ʳ"}
TEX_MARKS = {COPIED: r"$^{\mathrm{c}}$", RERUN: r"$^{\mathrm{r}}$"}
TEXT_SHARE = 0.93  # of the text's width; the rest lies between the columns


@dataclass(frozen=True)
class Number:
    """A mean with its standard deviation or an interval, with the digits to print; what is empty is not printed."""

    mean: str
    std: str = ""
    bold: bool = False  # the best of its column
    interval: tuple[str, str] | None = None
    source: str = ""  # COPIED or RERUN, in a table that has both

    @property
    def text(self) -> str:
        """Plain text, e.g. ``93.7 ± 4.1``, ``93.7ᶜ`` or ``+2.1 [−0.4, +4.6]``."""
        mark = MARKS.get(self.source, "")
        if self.interval:
            return f"{self.mean} [{', '.join(self.interval)}]{mark}"
        return f"{self.mean} ± {self.std}{mark}" if self.std else f"{self.mean}{mark}"


NONE = Number("–")


def percent(summary: Summary, *, sign: bool = False, spread: bool = True) -> Number:
    """A share as a percentage with one decimal; a dash without seeds, no deviation for one seed or if not asked for."""
    shown = number(summary, 100, 1, sign=sign)
    return shown if spread or shown == NONE else replace(shown, std="")


def marked(cells: Iterable[Number], source: str) -> tuple[Number, ...]:
    """The numbers with the mark of where they come from; what is no number has none."""
    return tuple(cell if cell.mean == NONE.mean else replace(cell, source=source) for cell in cells)


def number(summary: Summary, factor: float = 1, digits: int = 2, *, sign: bool = False) -> Number:
    """A summary with so many digits; ``sign`` shows a plus too, for differences."""
    if summary.n == 0:
        return NONE
    mean = _signed(factor * summary.mean, digits) if sign else f"{factor * summary.mean:.{digits}f}"
    return Number(mean, f"{factor * summary.std:.{digits}f}" if summary.n > 1 else "")


def difference(summary: Summary, factor: float = 100, digits: int = 1) -> Number:
    """A mean difference with its 95 % Student-t interval, in percentage points; of one pair the difference alone."""
    if summary.n == 0:
        return NONE
    low, high = (_signed(factor * bound, digits) for bound in summary.interval())
    return Number(
        _signed(factor * summary.mean, digits), interval=(low, high) if summary.n > 1 else None
    )


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def with_best_in_bold(
    rows: Sequence[tuple[str | Number, ...]],
) -> tuple[tuple[str | Number, ...], ...]:
    """The same rows, the highest number of each column in bold (every one of equals)."""
    columns = [
        [cell for cell in column if isinstance(cell, Number) and cell != NONE]
        for column in zip(*rows, strict=True)
    ]
    best = [max((float(cell.mean) for cell in column), default=None) for column in columns]
    return tuple(
        tuple(
            replace(cell, bold=True)
            if isinstance(cell, Number) and cell != NONE and float(cell.mean) == top
            else cell
            for cell, top in zip(row, best, strict=True)
        )
        for row in rows
    )


@dataclass(frozen=True)
class Block:
    """Rows under one heading: words for the first columns, then numbers."""

    title: str
    rows: tuple[tuple[str | Number, ...], ...]


def with_columns(blocks: Iterable[Block], places: Sequence[int]) -> tuple[Block, ...]:
    """The same blocks with these columns of every row alone."""
    return tuple(
        Block(block.title, tuple(tuple(row[k] for k in places) for row in block.rows))
        for block in blocks
    )


@dataclass(frozen=True)
class Table:
    """Words in the columns ``words``, numbers in the columns ``numbers``."""

    words: tuple[str, ...]
    numbers: tuple[str, ...]
    blocks: tuple[Block, ...]
    caption: str
    label: str
    widths: tuple[
        float, ...
    ] = ()  # of the columns ``words`` where they hold whole texts: shares of the page's width
    repeated: int = 0  # leading columns of a table of texts alone; LaTeX repeats them where it spreads the others

    def tex(self) -> str:
        """``table*`` floats that need the packages booktabs and graphicx."""
        return floats(self._grids(), escape(self.caption), self.label)

    def _grids(self) -> Iterator[Grid]:
        columns = (*self.words, *self.numbers)
        if not self.repeated:
            yield self._grid(columns, self.widths, range(len(columns)))
            return
        beside = min(BESIDE, len(columns) - self.repeated)
        width = round(TEXT_SHARE / (self.repeated + beside), 3)
        for first in range(self.repeated, len(columns), beside):
            chosen = (*range(self.repeated), *range(first, min(first + beside, len(columns))))
            yield self._grid(columns, (width,) * len(chosen), chosen)

    def _grid(self, columns: Sequence[str], widths: Sequence[float], chosen: Sequence[int]) -> Grid:
        """These columns of every row; the first ``len(widths)`` hold texts."""
        texts = "".join(rf"p{{{width}\textwidth}}" for width in widths) or "l" * len(self.words)
        parts = (
            Part(
                escape(block.title),
                tuple(_tex_row([cells[i] for i in chosen], widths) for cells in block.rows),
            )
            for block in self.blocks
        )
        head, _ = _tex_row([columns[i] for i in chosen], widths)
        numbers = 0 if self.repeated else len(self.numbers)
        return Grid(texts + "c" * numbers, head, len(chosen), tuple(parts))

    def md(self) -> str:
        """A Markdown table for each block, the caption last."""
        columns = (*self.words, *self.numbers)
        lines = []
        for block in self.blocks:
            lines += [
                f"**{_md_title(block.title)}**",
                "",
                _md_row(columns),
                _md_row(["---"] * len(columns)),
            ]
            lines += [*map(_md_row, block.rows), ""]
        return "\n".join([*lines, f"{self.caption}\n"])

    def csv(self) -> str:
        """One line a row; mean and standard deviation in columns of their own, and intervals where there are any."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        cells = [cell for block in self.blocks for row in block.rows for cell in row]
        parts = _parts([cell for cell in cells if isinstance(cell, Number)])
        writer.writerow(
            ["block", *self.words, *(f"{name} {part}" for name in self.numbers for part in parts)]
        )
        for block in self.blocks:
            for row in block.rows:
                writer.writerow(map(_no_formula, [block.title, *_flat(row, parts)]))
        return text.getvalue()

    def files(self) -> dict[str, bytes]:
        """The content for each file ending."""
        return {"tex": self.tex().encode(), "md": self.md().encode(), "csv": self.csv().encode()}


def _tex_row(cells: Sequence[str | Number], widths: Sequence[float]) -> tuple[str, int]:
    """The row, and the lines that it takes."""
    texts = [cell.text if isinstance(cell, Number) else cell for cell in cells]
    shown = (
        _tex_number(cell)
        if isinstance(cell, Number)
        else text_cell(cell)
        if i < len(widths)
        else escape(cell)
        for i, cell in enumerate(cells)
    )
    return row_of(shown), lines_of(texts, widths)


def _tex_number(number: Number) -> str:
    mean = escape(number.mean.replace("-", "−"))
    mean = rf"\textbf{{{mean}}}" if number.bold else mean
    if number.interval:
        bounds = escape(f"[{', '.join(number.interval)}]")
        return rf"{mean} {{\scriptsize {bounds}}}"
    mark = TEX_MARKS.get(number.source, "")
    return rf"{mean}$_{{\pm {number.std}}}${mark}" if number.std else f"{mean}{mark}"


def _no_formula(cell: str | float | None) -> str | float | None:
    """A spreadsheet takes a text that begins like a formula for one, and would run it; a number stays a number."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _md_row(cells: Iterable[str | Number]) -> str:
    return "| " + " | ".join(_md_cell(cell) for cell in cells) + " |"


def _md_title(text: str) -> str:
    """A title comes from an experiment's record: it is one line, and none of its characters is markup."""
    title = re.sub(r"([\\*`])", r"\\\1", " ".join(text.split()))
    return title.replace("<", "&lt;").replace("](", r"]\(")


def _md_cell(cell: str | Number) -> str:
    if isinstance(cell, str):
        return " ".join(cell.split()).replace("|", r"\|").replace("<", "&lt;")
    return f"**{cell.text}**" if cell.bold else cell.text


def _parts(numbers: Sequence[Number]) -> tuple[str, ...]:
    """Columns of a CSV file for each number: intervals and sources where there are any."""
    parts = ["mean", "std"]
    if any(number.interval for number in numbers):
        parts += ["low", "high"]
    if any(number.source for number in numbers):
        parts.append("source")
    return tuple(parts)


def _flat(row: Iterable[str | Number], parts: Sequence[str]) -> list[str]:
    cells: list[str] = []
    for cell in row:
        if isinstance(cell, str):
            cells.append(cell)
            continue
        low, high = cell.interval or ("", "")
        mean = "" if cell == NONE else cell.mean
        values = {"mean": mean, "std": cell.std, "low": low, "high": high, "source": cell.source}
        cells += [values[part] for part in parts]
    return cells
