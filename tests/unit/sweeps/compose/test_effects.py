import pytest

from scpo.errors import ConfigError
from sweeps.compose.effects import unread_in_space
from sweeps.compose.matrix import expand
from sweeps.search.plan import make_plan

STUDY = ("scale=study", "seeds=[0]")
THETA, BASE = "method.shaper.theta", "method.shaper.soft_base"


def about_scorer(lines):
    return [line for line in lines if "no effect" in line]


def test_a_search_names_what_the_exact_scorer_does_not_read_and_how_to_go_on():
    (line,) = make_plan("scpo", ["scale=study"]).remarks()
    assert line == (
        f"{THETA} and {BASE} have no effect with scorer=exact, whose similarity is 0 or 1; "
        "write scorer=lexical to vary them, or leave out: '~search.space.theta' '~search.space.soft_base'"
    )
    assert make_plan("scpo", ["scale=study", "scorer=lexical"]).remarks() == []


def test_a_search_over_scorers_has_one_that_reads_them():
    exact, lexical = (make_plan("scpo", ["scale=study", f"scorer={name}"]).base for name in ("exact", "lexical"))
    space = {"limit": THETA, "scorer": "scorer"}
    assert unread_in_space([exact, lexical], space) == []
    assert THETA in unread_in_space([exact], space)[0]


def test_an_axis_names_what_its_runs_do_not_read():
    matrix = expand("one", [*STUDY, f"{THETA}=0.4,0.6"])
    (line,) = about_scorer(matrix.notes)
    assert line.startswith(f"{THETA} has no effect with scorer=exact")
    assert "write scorer=lexical to vary it" in line


@pytest.mark.parametrize(
    "words", [[f"{THETA}=0.4,0.6", "scorer=lexical"], ["method.shaper.alpha=0.5,1.0"], [f"{THETA}=0.7"]]
)
def test_nothing_is_noted_where_the_axis_is_read_or_the_value_is_the_same_everywhere(words):
    assert about_scorer(expand("one", [*STUDY, *words]).notes) == []


@pytest.mark.parametrize(
    "words", [["method=gigpo", f"{THETA}=0.4,0.6"], ["method=scpo", "method.shaper.reference_max_age=3,5"]]
)
def test_axes_over_a_missing_shaper_or_buffer_are_refused(words):
    with pytest.raises(ConfigError, match=r"method\.shaper|reference_max_age=3 is only read"):
        expand("one", [*STUDY, *words])


def test_searches_over_a_missing_shaper_or_buffer_are_refused():
    with pytest.raises(ConfigError, match=r"space\.theta: 0\.3 cannot run: method\.shaper\.theta .* method=gigpo"):
        make_plan("scpo", ["scale=study", "method=gigpo"])
    age = "+search.space.age={kind: choice, key: method.shaper.reference_max_age, values: [3, 5]}"
    with pytest.raises(ConfigError, match=r"space\.age: 3 cannot run: .*reference_max_age=3 is only read"):
        make_plan("scpo", ["scale=study", age])
