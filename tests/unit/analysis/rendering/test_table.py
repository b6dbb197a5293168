import csv
import io

import pytest

from analysis.rendering.table import NONE, Block, Number, Table, difference, number, percent, with_best_in_bold
from scpo.intervals import Summary, summarise


def test_differences_carry_a_sign():
    assert percent(Summary(-0.031, 0.01, 3), sign=True) == Number("−3.1", "1.0")
    assert percent(Summary(0.031, float("nan"), 1), sign=True) == Number("+3.1")
    assert number(Summary(float("nan"), float("nan"), 0)) == NONE


def test_every_one_of_equal_best_numbers_is_bold():
    rows = with_best_in_bold(
        [("a", Number("1.0"), NONE), ("b", Number("2.0", "0.1"), NONE), ("c", Number("2.0"), NONE)]
    )
    assert [row[1].bold for row in rows] == [False, True, True]
    assert not any(row[2].bold for row in rows)


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (("gigpo", Number("1.0", "0.1")), "2 cells (gigpo | 1.0 ± 0.1)"),
        (("gigpo", NONE, NONE, NONE), "4 cells (gigpo | – | – | –)"),
    ],
)
def test_a_row_with_another_number_of_cells_than_columns_is_named(cells, shown):
    rows = (("scpo", NONE, NONE), cells)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared below
        Table(("Row",), ("area", "last"), (Block("ALFWorld", rows),), "c", "tab:x")
    assert str(error.value) == (
        f"row 2 of block 'ALFWorld' has {shown}, expected 3, one for each column: Row | area | last"
    )


def test_bold_greek_and_bars_come_through_in_every_format():
    made = Table(("θ | λ",), ("Δ",), (Block("α ≥ 1", (("x | y", Number("2.0", "0.1", bold=True)),)),), "τ", "tab:x")
    assert r"\textbf{2.0}$_{\pm 0.1}$" in made.tex()
    assert made.tex().isascii()
    assert r"| x \| y | **2.0 ± 0.1** |" in made.md()
    assert made.csv().splitlines()[1] == "α ≥ 1,x | y,2.0,0.1"


def test_texts_of_an_environment_are_escaped_and_wrapped():
    made = Table(("Step",), (), (Block("b", ((r"buy \{x} for $5 <b>~^_#&%",),)),), "c", "tab:x", widths=(0.4,))
    assert r"buy {\textbackslash}\{x\} for \$5 \ensuremath{<}b\ensuremath{>}" in made.tex()
    assert r"{\textasciitilde}{\textasciicircum}\_\#\&\%" in made.tex()
    assert r"\begin{tabular}{@{}p{0.4\textwidth}@{}}" in made.tex()


def test_a_text_cannot_be_a_formula_of_a_spreadsheet_and_a_number_stays_one():
    texts = ("=1+1", "+cmd", "-x", "@sum", "plain", "-0.5")
    made = Table(("Step",), (), (Block("b", tuple((text,) for text in texts)),), "c", "tab:x")
    cells = [line.partition(",")[2] for line in made.csv().splitlines()[1:]]
    assert cells == ["'=1+1", "'+cmd", "'-x", "'@sum", "plain", "-0.5"]


def test_a_title_with_markup_is_one_line_of_text_in_markdown():
    title = "a\n\n# <script>alert(1)</script> **bold** [link](http://x) `code`"
    block = Block(title, (("<b>cell</b>", number(summarise([1.0]))),))
    text = Table(("row",), ("value",), (block,), "caption", "tab:x").md()
    assert text.startswith("**a # &lt;script>alert(1)&lt;/script> \\*\\*bold\\*\\* [link]\\(http://x) \\`code\\`**\n")
    assert "| &lt;b>cell&lt;/b> |" in text


def test_a_negative_number_has_the_minus_sign_in_print_and_a_hyphen_for_programs():
    cells = (Number("-3.3"), difference(summarise([-0.021, -0.019])), number(summarise([-0.0004]), 1, 3))
    assert [cell.text for cell in cells] == ["−3.3", "−2.0 [−3.3, −0.7]", "0.000"]
    made = Table((), ("printed", "ours", "zero"), (Block("b", (cells,)),), "c", "tab:x")
    assert "| −3.3 | −2.0 [−3.3, −0.7] | 0.000 |" in made.md()
    assert made.csv().splitlines()[1] == "b,-3.3,,-2.0,,-3.3,-0.7,0.000,"
    assert r"\ensuremath{-}3.3 & \ensuremath{-}2.0 {" in made.tex()
    assert cells[0].value == -3.3


def test_the_best_of_negative_numbers_is_bold():
    (worse,), (better,) = with_best_in_bold([(number(summarise([-2.0])),), (number(summarise([-1.0])),)])
    assert (worse.bold, better.bold) == (False, True)


def test_a_column_that_is_empty_everywhere_is_left_out_and_in_markdown_one_that_is_empty_in_its_block():
    one = Number("1.0")
    blocks = (Block("first", (("a", one, NONE, NONE),)), Block("second", (("b", NONE, NONE, one),)))
    made = Table(("row",), ("x", "y", "z"), blocks, "c", "tab:x").without_empty_columns()
    assert made.columns == ("row", "x", "z")
    assert [line for line in made.md().splitlines() if line.startswith(("| r", "| a", "| b"))] == [
        "| row | x |",
        "| a | 1.0 |",
        "| row | z |",
        "| b | 1.0 |",
    ]
    assert made.csv().splitlines()[0] == "block,row,x mean,x std,z mean,z std"


def test_no_two_columns_of_a_csv_have_one_name():
    made = Table(("x mean",), ("x", "p", "p"), (Block("b", (("a", *[Number("1")] * 3),)),), "c", "tab:x")
    head = made.csv().splitlines()[0]
    assert head == "block,x mean,x mean (2),x std,p mean,p std,p mean (2),p std (2)"


def test_a_p_value_is_one_column_of_a_csv_and_is_a_number():
    row = (Number("<0.001", csv="3.2e-05"), Number("1.0", "0.5"))
    made = Table((), ("p", "area"), (Block("b", (row,)),), "c", "tab:x", single=("p",))
    assert made.csv().splitlines() == ["block,p,area mean,area std", "b,3.2e-05,1.0,0.5"]
    assert "| <0.001 | 1.0 ± 0.5 |" in made.md()


def test_marks_of_footnotes_leave_the_words_of_a_csv_for_a_column_of_their_texts():
    footnotes = {"†": "no rate of its own", "§": "other seeds", "††": "games=64"}
    rows = tuple((label, Number("1.0")) for label in ("RLOO††§", "GRPO†", "SCPO"))
    made = Table(("Row",), ("area",), (Block("b", rows),), "c", "tab:x", footnotes=footnotes)
    assert made.csv().splitlines() == [
        "block,Row,area mean,area std,notes",
        "b,RLOO,1.0,,games=64; other seeds",
        "b,GRPO,1.0,,no rate of its own",
        "b,SCPO,1.0,,",
    ]
    assert "| RLOO††§ | 1.0 |" in made.md()


def test_marks_within_a_line_of_differences_leave_its_words_too():
    """The mark of the second method stayed in front of the rates, so no program could join the line."""
    footnotes = {"†": "other seeds", "‡": "games=64"}
    rows = (("SCPO† − DAPO‡ (rates 0.004, 0.001)", Number("1.0")),)
    made = Table(("Row",), ("area",), (Block("b", rows),), "c", "tab:x", footnotes=footnotes)
    (line,) = csv.DictReader(io.StringIO(made.csv()))
    assert line["Row"] == "SCPO − DAPO (rates 0.004, 0.001)"
    assert line["notes"] == "other seeds; games=64"


def test_an_interval_that_excludes_0_shows_no_bound_of_0_in_a_table():
    # t_1 = 12.706: -1.0 ± 0.9988 points
    half = 0.0099882 / 12.7062
    text = difference(summarise([-0.01 - half, -0.01 + half])).text
    assert text == "−1.0 [−2.0, −0.001]"
