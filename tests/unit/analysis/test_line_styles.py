from itertools import combinations

import pytest

from analysis.line_styles import (
    RESERVE,
    SCPO,
    SHADES,
    STYLES,
    VARIANTS,
    LineStyle,
    line_style,
    line_styles,
    plot_styles,
)
from analysis.names import METHODS
from analysis.sources.rows import Row
from tests.support.colour_vision import distances

APART = 13.0  # in CIELAB: a step of 2.3 is just noticeable between large patches; thin lines need several
STYLED = [*STYLES.items(), *((f"reserve {at}", style) for at, style in enumerate(RESERVE))]
PAIRS = list(combinations(STYLED, 2))


def rows(*names, method=""):
    return [Row(name, name, (), method) for name in names]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda item: item[0])
def test_any_two_methods_differ_in_colour_marker_and_dashes_for_every_colour_vision(first, second):
    (_, style), (_, other) = first, second
    seen = distances(style.color, other.color)
    assert min(distance for vision, distance in seen.items() if vision != "grey") > APART
    assert style.marker != other.marker  # what is left in grey print
    assert style.dashes != other.dashes


def test_only_scpo_has_a_solid_line():
    assert not SCPO.dashes
    assert all(other.dashes for name, other in STYLED if name != "scpo")


def test_every_method_that_there_is_looks_different():
    styles = line_styles(rows(*METHODS))
    assert len(set(styles.values())) == len(METHODS) >= 14
    assert styles == {name: line_style(name) for name in METHODS}


# Names with a space, which no registered method has, a new one of this checkout included.
@pytest.mark.parametrize("count", [1, 2, 40])
def test_new_methods_look_different_and_the_same_in_every_figure(count, monkeypatch):
    names = [f"new method {at}" for at in range(count)]
    monkeypatch.setattr("analysis.line_styles.METHODS", {**METHODS, **dict.fromkeys(names)})
    every = [*METHODS, *names]
    styles = line_styles(rows(*every))
    assert len(set(styles.values())) == len(every)
    for name in names:
        # Alone, after others, and before a variant of its own and a method of another installation.
        others = [*rows("unregistered", method="unregistered"), *rows(f"{name}_4", method=name)]
        among = line_styles([*others, *rows("scpo", name)])
        assert among[name] == styles[name] == line_style(name) == line_style(name, name)
        assert len(set(among.values())) == 4


def test_a_method_looks_the_same_in_every_figure():
    alone, among = line_styles(rows("hgpo"))["hgpo"], line_styles(rows("ppo", "scpo", "hgpo", "gigpo"))["hgpo"]
    assert alone == among == STYLES["hgpo"]


def test_shades_of_scpo_differ_for_every_colour_vision():
    for shade, other in combinations((SCPO.color, *SHADES), 2):
        seen = distances(shade, other)
        assert min(distance for vision, distance in seen.items() if vision != "grey") > APART


@pytest.mark.parametrize(
    "names", [VARIANTS[:3], VARIANTS[3:], ("exact_scorer", "lexical", "minilm"), ("theta_0.4", "theta_0.5", "x", "y")]
)
def test_variants_in_one_figure_differ_in_shade_marker_and_dashes(names):
    styles = line_styles([Row(name, name, (), "scpo") for name in ("scpo", *names)])
    assert len({style.color for style in styles.values()}) == len(names) + 1
    assert {styles[name].color for name in names} <= set(SHADES)
    assert len({(style.marker, style.dashes) for style in styles.values()}) == len(names) + 1


def test_more_variants_than_shades_are_still_told_apart():
    names = [f"theta_{at}" for at in range(20)]
    styles = line_styles([Row(name, name, (), "scpo") for name in ("scpo", *names)])
    assert len(set(styles.values())) == 21


def test_a_variant_looks_the_same_whichever_rows_are_drawn_beside_it():
    names = [f"theta_{at}" for at in range(6)]
    every = rows("scpo", *names, method="scpo")
    among = line_styles(every, [every])
    for name in names:
        alone = line_styles(rows(name, method="scpo"), [every])
        assert alone[name] == among[name]
    assert len(set(among.values())) == len(every)


def test_variants_of_an_experiment_differ_in_shade_and_those_of_two_experiments_in_style():
    experiments = [rows("scpo", *(f"{kind}_{at}" for at in range(4)), method="scpo") for kind in "abcdefgh"]
    styles = line_styles([row for group in experiments for row in group], experiments)
    assert len(set(styles.values())) == 33
    for group in experiments:
        assert len({styles[row.name].color for row in group}) == 5


def test_unknown_methods_get_different_looks_that_stay():
    names = [f"newcomer_{at}" for at in range(3)]
    styles = line_styles([Row(name, name, (), name) for name in ("scpo", *names)])
    assert len(set(styles.values())) == 4
    assert styles[names[0]] == line_style(names[0], names[0])
    assert styles[names[0]].color in {style.color for style in RESERVE}


def test_variants_of_another_method_have_markers_and_dashes_of_their_own():
    for host in ("gigpo", "hgpo", "crbc"):
        # Of any name, in figures without its experiments and with other rows, too.
        for at in range(100):
            name = f"{host}_{at}"
            for style in (line_style(name, host), line_styles(rows(host, name, method=host))[name]):
                assert style.marker != STYLES[host].marker
                assert style.dashes != STYLES[host].dashes
    # Rows of the study's experiments.
    names = ("gigpo", "gigpo_4e_3", "gigpo_mean", "gigpo_state", "gigpo_group_step")
    styles = line_styles(rows(*names, method="gigpo"))
    assert len({style.marker for style in styles.values()}) == len(names)
    assert len({style.dashes for style in styles.values()}) == len(names)


def test_a_variant_of_another_method_keeps_its_colour():
    styles = line_styles([*rows("gigpo", method="gigpo"), *rows("gigpo_4", "gigpo_16", method="gigpo")])
    assert {style.color for style in styles.values()} == {STYLES["gigpo"].color}
    assert len(set(styles.values())) == 3


def test_a_palette_of_the_user_replaces_colours_and_nothing_else():
    styles = plot_styles(rows("gigpo", "scpo", "grpo"), ("#111111", "#222222"))
    assert [styles[name]["color"] for name in ("scpo", "gigpo", "grpo")] == ["#111111", "#222222", "#111111"]
    assert styles["gigpo"]["marker"] == STYLES["gigpo"].marker


def test_a_row_keeps_its_colour_of_a_palette_from_panel_to_panel_and_shares_none_while_one_is_free():
    palette = ("#111111", "#222222", "#333333")
    earlier = {"grpo": "#333333", "gigpo": "#222222"}
    styles = plot_styles(rows("scpo", "grpo", "x", method="scpo"), palette, earlier)
    assert {name: style["color"] for name, style in styles.items()} == {
        "scpo": "#111111",
        "grpo": "#333333",
        "x": "#222222",
    }


def test_a_dark_colour_is_paler_on_dark_paper():
    assert LineStyle("#000000", "o").screen() == {"colour": "#000000", "dark": "#8C8C8C", "dash": ""}
    assert SCPO.screen()["dark"] == SCPO.color
