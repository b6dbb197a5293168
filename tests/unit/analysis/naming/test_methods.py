from analysis.naming.methods import METHODS, compared
from analysis.paper.published import main_table
from analysis.sources.rows import Row


def rows(*names):
    return [Row(name, name, ()) for name in names]


def test_methods_are_compared_without_their_variants():
    assert [row.name for row in compared(rows("scpo", "theta_04", "gigpo"))] == ["gigpo", "scpo"]


def test_one_method_is_compared_with_its_variants():
    assert [row.name for row in compared(rows("scpo", "chronological"))] == ["scpo", "chronological"]


def test_every_published_method_is_a_row():
    assert {key[1] for key in main_table()} <= {method.published for method in METHODS.values()}
