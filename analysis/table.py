"""A table of blocks, written as LaTeX (booktabs), Markdown and CSV with the same bytes for the same content."""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from analysis.stats import Summary

_ESCAPES = {
    "“": "``",
    "”": "''",
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "−": "$-$",
    "±": r"$\pm$",
    "–": "--",
    "→": r"$\to$",
}


@dataclass(frozen=True)
class Number:
    """A mean and its standard deviation, with the digits to print; an empty ``std`` prints none."""

    mean: str
    std: str = ""

    @property
    def text(self) -> str:
        """Plain text, e.g. ``93.7 ± 4.1``."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


NONE = Number("–")


def percent(summary: Summary) -> Number:
    """A share as a percentage with one decimal; a dash without seeds, no deviation for one seed."""
    if summary.n == 0:
        return NONE
    return Number(f"{100 * summary.mean:.1f}", f"{100 * summary.std:.1f}" if summary.n > 1 else "")


@dataclass(frozen=True)
class Block:
    """Rows under one heading: words for the first columns, then numbers."""

    title: str
    rows: tuple[tuple[str | Number, ...], ...]


@dataclass(frozen=True)
class Table:
    """Words in the columns ``words``, numbers in the columns ``numbers``."""

    words: tuple[str, ...]
    numbers: tuple[str, ...]
    blocks: tuple[Block, ...]
    caption: str
    label: str

    def tex(self) -> str:
        """A ``table*`` float that needs only the package booktabs."""
        columns = (*self.words, *self.numbers)
        layout = "l" * len(self.words) + "c" * len(self.numbers)
        lines = [r"\begin{table*}[t]", r"\centering", r"\footnotesize", r"\setlength{\tabcolsep}{3pt}"]
        lines += [rf"\begin{{tabular}}{{@{{}}{layout}@{{}}}}", r"\toprule", _tex_row(columns)]
        for block in self.blocks:
            title = _escape(block.title)
            lines += [r"\midrule", rf"\multicolumn{{{len(columns)}}}{{@{{}}l}}{{\textit{{{title}}}}} \\"]
            lines += [_tex_row(row) for row in block.rows]
        lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_escape(self.caption)}}}"]
        return _joined([*lines, rf"\label{{{self.label}}}", r"\end{table*}"])

    def md(self) -> str:
        """A Markdown table for each block, the caption last."""
        columns = (*self.words, *self.numbers)
        lines = []
        for block in self.blocks:
            lines += [f"**{block.title}**", "", _md_row(columns), _md_row(["---"] * len(columns))]
            lines += [*map(_md_row, block.rows), ""]
        return _joined([*lines, self.caption])

    def csv(self) -> str:
        """One line a row; mean and standard deviation in columns of their own."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["block", *self.words, *(f"{name} {part}" for name in self.numbers for part in ("mean", "std"))]
        )
        for block in self.blocks:
            for row in block.rows:
                writer.writerow([block.title, *_flat(row)])
        return text.getvalue()

    def files(self) -> dict[str, bytes]:
        """The content for each file ending."""
        writers: dict[str, Callable[[], str]] = {"tex": self.tex, "md": self.md, "csv": self.csv}
        return {ending: write().encode() for ending, write in writers.items()}


def _tex_row(cells: Iterable[str | Number]) -> str:
    return " & ".join(_tex_number(cell) if isinstance(cell, Number) else _escape(cell) for cell in cells) + r" \\"


def _tex_number(number: Number) -> str:
    return rf"{number.mean}$_{{\pm {number.std}}}$" if number.std else _escape(number.mean)


def _md_row(cells: Iterable[str | Number]) -> str:
    return "| " + " | ".join(cell.text if isinstance(cell, Number) else cell for cell in cells) + " |"


def _flat(row: Iterable[str | Number]) -> list[str]:
    cells: list[str] = []
    for cell in row:
        cells += [cell.mean if cell != NONE else "", cell.std] if isinstance(cell, Number) else [cell]
    return cells


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
