from itertools import combinations

import pytest

from analysis.naming import line_styles as module
from analysis.naming.line_styles import SCPO, SPARE, STYLES, VARIANTS, LineStyle, line_style, line_styles
from analysis.naming.methods import METHODS
from analysis.sources.rows import Row
from tests.support.colour_vision import distances

ALIKE = 8.0  # in CIELAB: two lines so near may be taken for one another
PAIRS = list(combinations([*STYLES.items(), *((f"spare {at}", one) for at, one in enumerate(SPARE))], 2))


def rows(*names, method=""):
    return [Row(name, name, (), method) for name in names]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda item: item[0])
def test_looks_that_a_reader_may_confuse_differ_in_marker_and_dashes(one, other):
    (_, first), (_, second) = one, other
    if min(distances(first.color, second.color).values()) < ALIKE:
        assert first.marker != second.marker
        assert first.dashes != second.dashes
    assert (first.marker, first.dashes) != (second.marker, second.dashes)  # grey print of a coarse printer


def test_scpo_has_a_colour_of_its_own_for_every_colour_vision():
    for name, other in STYLES.items():
        if name != "scpo":
            seen = distances(SCPO.color, other.color)
            assert min(seen[vision] for vision in seen if vision != "grey") > 15, name
    assert not SCPO.dashes
    assert all(other.dashes for name, other in STYLES.items() if name != "scpo")


def test_every_method_that_there_is_looks_different():
    found = line_styles(rows(*METHODS))
    assert len(set(found.values())) == len(METHODS) >= 14
    assert found == {name: line_style(name) for name in METHODS}


def test_a_method_looks_the_same_in_every_figure():
    alone, among = line_styles(rows("hgpo"))["hgpo"], line_styles(rows("ppo", "scpo", "hgpo", "gigpo"))["hgpo"]
    assert alone == among == STYLES["hgpo"]


def test_ablations_are_shades_of_scpo_that_differ():
    found = line_styles([Row(name, name, (), "scpo") for name in ("scpo", *VARIANTS)])
    assert {one.color for name, one in found.items() if name != "scpo"} <= set(module.SHADES)
    assert len(set(found.values())) == len(found)
    for one, other in combinations([found[name] for name in VARIANTS], 2):
        assert one.dashes != other.dashes or min(distances(one.color, other.color).values()) > ALIKE


def test_unknown_methods_get_different_looks_that_stay():
    names = [f"newcomer_{at}" for at in range(3)]
    found = line_styles([Row(name, name, (), name) for name in ("scpo", *names)])
    assert len(set(found.values())) == 4
    assert found[names[0]] == line_style(names[0], names[0]) in SPARE


def test_a_variant_of_another_method_keeps_its_colour():
    found = line_styles([*rows("gigpo", method="gigpo"), *rows("gigpo_4", "gigpo_16", method="gigpo")])
    assert {one.color for one in found.values()} == {STYLES["gigpo"].color}
    assert len(set(found.values())) == 3


def test_a_dark_colour_is_paler_on_dark_paper():
    assert LineStyle("#000000", "o").screen() == {"colour": "#000000", "dark": "#8C8C8C", "dash": ""}
    assert SCPO.screen()["dark"] == SCPO.color
