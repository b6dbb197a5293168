"""A table of blocks, written as LaTeX (booktabs), Markdown and CSV with the same bytes for the same content."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.stats import Summary

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "…": r"\ldots{}",
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
    "×": r"$\times$",
    "·": r"$\cdot$",
    "‖": r"$\Vert$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "γ": r"$\gamma$",
    "τ": r"$\tau$",
    "π": r"$\pi$",
    "Π": r"$\Pi$",
    "Δ": r"$\Delta$",
    "≥": r"$\geq$",
    "∅": r"$\varnothing$",
}


@dataclass(frozen=True)
class Number:
    """A mean and its standard deviation, with the digits to print; an empty ``std`` prints none."""

    mean: str
    std: str = ""
    bold: bool = False  # the best of its column

    @property
    def text(self) -> str:
        """Plain text, e.g. ``93.7 ± 4.1``."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


NONE = Number("–")


def percent(summary: Summary, *, sign: bool = False) -> Number:
    """A share as a percentage with one decimal; a dash without seeds, no deviation for one seed."""
    return number(summary, 100, 1, sign=sign)


def number(summary: Summary, factor: float = 1, digits: int = 2, *, sign: bool = False) -> Number:
    """A summary with so many digits; ``sign`` shows a plus too, for differences."""
    if summary.n == 0:
        return NONE
    mean = f"{factor * summary.mean:{'+' if sign else ''}.{digits}f}".replace("-", "−" if sign else "-")
    return Number(mean, f"{factor * summary.std:.{digits}f}" if summary.n > 1 else "")


def with_best_in_bold(rows: Sequence[tuple[str | Number, ...]]) -> tuple[tuple[str | Number, ...], ...]:
    """The same rows, the highest number of each column in bold (every one of equals)."""
    columns = [
        [cell for cell in column if isinstance(cell, Number) and cell != NONE] for column in zip(*rows, strict=True)
    ]
    best = [max((float(cell.mean) for cell in column), default=None) for column in columns]
    return tuple(
        tuple(
            replace(cell, bold=True) if isinstance(cell, Number) and cell != NONE and float(cell.mean) == top else cell
            for cell, top in zip(row, best, strict=True)
        )
        for row in rows
    )


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
    widths: tuple[float, ...] = ()  # of the columns ``words`` where they hold whole texts: shares of the page's width

    def tex(self) -> str:
        """A ``table*`` float that needs only the package booktabs."""
        columns = (*self.words, *self.numbers)
        texts = "".join(rf"p{{{width}\textwidth}}" for width in self.widths) or "l" * len(self.words)
        layout = texts + "c" * len(self.numbers)
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
    mean = rf"\textbf{{{_escape(number.mean)}}}" if number.bold else _escape(number.mean)
    return rf"{mean}$_{{\pm {number.std}}}$" if number.std else mean


def _md_row(cells: Iterable[str | Number]) -> str:
    return "| " + " | ".join(_md_cell(cell) for cell in cells) + " |"


def _md_cell(cell: str | Number) -> str:
    if isinstance(cell, str):
        return cell.replace("|", r"\|")
    return f"**{cell.text}**" if cell.bold else cell.text


def _flat(row: Iterable[str | Number]) -> list[str]:
    cells: list[str] = []
    for cell in row:
        cells += [cell.mean if cell != NONE else "", cell.std] if isinstance(cell, Number) else [cell]
    return cells


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
