import pytest

from analysis import names
from analysis.names import METHODS, Footnotes, compared
from analysis.paper.published import main_table
from analysis.sources.rows import Row, RowRun


def test_what_records_call_a_thing_is_printed_in_words():
    assert names.place("study", "alfworld", "choice") == "study scale, ALFWorld, choice policy"
    assert names.place("paper", "webshop", "7B") == "paper scale, WebShop, Qwen2.5-7B-Instruct"
    assert names.task("pick_two_obj_and_place") == "pick two and place"
    assert names.task("home_decor") == "home decor"


def test_a_run_is_told_by_method_choices_and_seed():
    assert names.run("alfworld-1.5b-scpo-s2-4c2e8563") == "SCPO, seed 2"
    assert names.run("alfworld-tiny-scpo-on_hgpo-theta0.5-s0-4c541560") == "SCPO, on hgpo, theta0.5, seed 0"
    assert names.run("3kx9f2a1") == "3kx9f2a1"  # a run of W&B that is none of ours


def test_the_same_footnote_has_the_same_mark():
    notes = Footnotes()
    assert [notes.mark(text) for text in ("a", "", "b", "a")] == ["†", "", "‡", "†"]
    assert notes.text == " † a. ‡ b."


def test_marks_do_not_run_out():
    notes = Footnotes()
    assert len({notes.mark(str(number)) for number in range(40)}) == 40


def rows(*names):
    return [Row(name, name, ()) for name in names]


def test_methods_are_compared_without_their_variants():
    assert [row.name for row in compared(rows("scpo", "theta_04", "gigpo"))] == ["gigpo", "scpo"]


@pytest.mark.parametrize("is_planned", [False, True], ids=["of a W&B project", "of an experiment"])
def test_only_an_experiments_row_of_a_methods_name_makes_another_one_a_variant(is_planned):
    run = (RowRun("a", 0, "DONE"),)
    mine = Row("mine", "Mine", run, method="scpo", only_of_experiments=True)
    named = Row("scpo", "SCPO", run, method="scpo", is_planned=is_planned)
    compared_with = compared([*rows("gigpo", "grpo"), mine, named])
    assert ("mine" in {row.name for row in compared_with}) is not is_planned


def test_one_method_is_compared_with_its_variants():
    assert [row.name for row in compared(rows("scpo", "chronological"))] == ["scpo", "chronological"]


def test_every_published_method_is_a_row():
    assert {key[1] for key in main_table()} <= {method.published for method in METHODS.values()}
