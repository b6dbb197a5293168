import shlex

import pytest

from analysis.sources.run_records import ExperimentRecord
from scpo.errors import ConfigError
from sweeps.compose.matrix import expand

ONE_SEED = "seeds=[0]"


def thetas(matrix):
    return [cell.config.method.shaper.theta for cell in matrix.cells]


@pytest.mark.parametrize("word", ["method.shaper.theta=0.4,0.5", "method.shaper.theta=[0.4,0.5]"])
def test_several_values_of_a_key_are_an_axis_named_in_the_table(word):
    matrix = expand("ablation_monotonicity", [ONE_SEED, word])
    assert thetas(matrix) == [0.4, 0.5, 0.4, 0.5]
    assert [cell.row.label for cell in matrix.cells][:2] == [
        "SCPO (default), theta = 0.4",
        "SCPO (default), theta = 0.5",
    ]
    assert [cell.row.name for cell in matrix.cells][:2] == ["scpo_theta_0_4", "scpo_theta_0_5"]
    assert "theta0.4" in matrix.cells[0].run_id


def test_its_records_are_its_own_and_replace_none_of_the_experiments():
    matrix = expand("ablation_monotonicity", [ONE_SEED, "method.shaper.theta=0.4,0.5"])
    assert matrix.experiment.name == "ablation_monotonicity_by_theta"
    assert matrix.experiment.title.endswith(", by theta")


def test_its_runs_are_those_that_other_experiments_have():
    matrix = expand("one", [ONE_SEED, "method.shaper.theta=0.4,0.6"])
    sweep = expand("sweep_theta", [ONE_SEED])
    assert set(matrix.runs) <= set(sweep.runs)


def test_choices_and_two_axes_at_once():
    matrix = expand("one", [ONE_SEED, "scorer=exact,lexical", "method.shaper.alpha=0.5,1.0"])
    assert [cell.row.label for cell in matrix.cells] == [
        "exact, alpha = 0.5",
        "exact, alpha = 1.0",
        "lexical, alpha = 0.5",
        "lexical, alpha = 1.0",
    ]


def test_axes_with_one_last_key_are_told_apart_by_as_much_of_their_keys_as_it_takes():
    states = [f"method.{section}.states=exact,effects" for section in ("shaper", "estimator")]
    fixed = [ONE_SEED, "method=scpo", "scorer=exact"]
    matrix = expand("one", [*fixed, *states, "method.shaper.alpha=0.5,1.0"])
    first = matrix.cells[0].row
    assert first.label == "shaper.states = exact, estimator.states = exact, alpha = 0.5"
    assert first.name == "shaper_states_exact_estimator_states_exact_alpha_0_5"
    assert matrix.experiment.title.endswith(", by shaper.states and estimator.states and alpha")
    assert matrix.experiment.name == "one_by_shaper_states_estimator_states_alpha"


def test_methods_are_called_by_their_names_and_share_the_rows_of_other_experiments():
    matrix = expand("one", [ONE_SEED, "method=gigpo,scpo"])
    assert [(cell.row.name, cell.row.label) for cell in matrix.cells] == [
        ("gigpo", "GiGPO"),
        ("scpo", "SCPO"),
    ]
    assert set(matrix.runs) <= set(expand("main_table", [ONE_SEED, "env=alfworld"]).runs)


def test_a_host_keeps_its_key_since_its_name_is_a_method_too():
    matrix = expand("one", [ONE_SEED, "method.host=gigpo,hgpo"])
    assert [cell.row.label for cell in matrix.cells] == ["host = gigpo", "host = hgpo"]
    assert [cell.row.name for cell in matrix.cells] == ["host_gigpo", "host_hgpo"]


def test_the_method_is_named_with_an_axis_of_its_settings():
    matrix = expand("one", ["method=scpo", "method.shaper.theta=0.4,0.5", ONE_SEED])
    assert [(cell.row.name, cell.config.method.shaper.theta) for cell in matrix.cells] == [
        ("theta_0_4", 0.4),
        ("theta_0_5", 0.5),
    ]


def test_axes_that_the_experiment_has_take_values_in_the_same_way():
    assert [cell.config.seed for cell in expand("one", ["seeds=0,1"]).cells] == [0, 1]


def test_a_key_that_takes_a_list_gets_its_list():
    matrix = expand("one", [ONE_SEED, "env.step_filter.no_op_observations=[Nothing happens.,Huh]"])
    assert len(matrix.cells) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method.shaper.theta=0.4,2"], "method.shaper.theta: got 2"),
        (["method.shaper.monotonic=true,false"], "row no_monotonicity sets method.shaper.monotonic=false itself"),
        (["method.shaper.theta=[]"], "an axis needs at least one value"),
        (["scorer=exact,exat"], "no scorer is called 'exat'; did you mean exact"),
    ],
)
def test_what_no_axis_can_be_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        expand("ablation_monotonicity", [ONE_SEED, *words])


@pytest.mark.parametrize(
    ("given", "name", "label"),
    [
        ([], "default", "as configured"),
        (["trainer.steps=3"], "default", "as configured"),
        (["method=gigpo"], "gigpo", "GiGPO"),
        (["method.shaper.states=facts", "method=scpo", "scorer=exact"], "scpo", "SCPO, states = facts, exact"),
        (
            ["method=scpo", "scorer=exact", "method.shaper.states=facts", "method.estimator.states=entities"],
            "scpo",
            "SCPO, estimator.states = entities, shaper.states = facts, exact",
        ),
        (["scorer=lexical", "method.host=hgpo"], "default", "host = hgpo, lexical"),
    ],
)
def test_a_lone_row_is_named_by_its_method_and_labelled_by_what_is_given_of_it(given, name, label):
    matrix = expand("one", [ONE_SEED, *given])
    assert [(row.name, row.label) for row in matrix.experiment.rows] == [(name, label)]
    assert [row.label for row in matrix.manifest.rows] == [label]


@pytest.mark.parametrize(
    "words",
    [
        ["method=gigpo,scpo"],
        ["method=[gigpo]"],
        ["scorer=exact,lexical", "method.shaper.theta=[0.4,0.6]", "trainer.steps=5"],
        ["env=webshop", "method=gigpo,scpo"],
    ],
)
def test_the_command_that_finishes_it_asks_for_the_same_table(words):
    """It was `+experiment=one_by_method`, an experiment that there is not."""
    planned = expand("one", [ONE_SEED, *words]).manifest
    command = ExperimentRecord.model_validate(planned.model_dump()).command([0])
    script, named, *others = shlex.split(command)[1:]
    assert (script, named) == ("sweep.py", "+experiment=one")
    assert expand("one", others).manifest == planned


def test_an_experiment_in_a_file_of_ones_own_is_asked_for_by_that_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("experiment: {name: mine, title: Mine, axes: {env: [alfworld], model: [tiny], seeds: 1}, "
                    "rows: [{name: scpo, overrides: [method=scpo]}]}")  # fmt: skip
    planned = expand(str(file)).manifest
    assert ExperimentRecord.model_validate(planned.model_dump()).command([0]) == (
        f"python sweep.py +experiment={file} 'seeds=[0]'"
    )


def test_one_that_its_name_asks_for_is_recorded_as_before():
    """Manifests of archives keep their bytes."""
    assert "asked_as" not in expand("ablation", [ONE_SEED]).manifest.model_dump()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["scorer=minilm", "scorer.path=/m/v1.0/mini,/m/v1-0/mini"], ["path_m_v1_0_mini", "path_m_v1_0_mini_2"]),
        (["scorer=minilm", "scorer.path=/m/x/mini,/m/x-mini"], ["path_m_x_mini", "path_m_x_mini_2"]),
        # A name that is not repeated stays, and no number makes a second row of that name.
        (["scorer=minilm", "scorer.path=/m/a,/m/a/,/m/a_2"], ["path_m_a", "path_m_a_3", "path_m_a_2"]),
    ],
)
def test_values_that_differ_only_in_characters_that_names_lack_are_numbered(words, names):
    """Such an axis ended with a traceback of pydantic."""
    matrix = expand("one", [ONE_SEED, "scale=study", *words])
    assert [cell.row.name for cell in matrix.cells] == names
    assert len(matrix.runs) == len(names)


def test_a_wrong_value_is_named_where_its_row_has_the_name_of_another():
    with pytest.raises(ConfigError, match=r"row seed_1: env\.generated\.seed: got -1; a seed is a whole number"):
        expand("one", [ONE_SEED, "env.generated.seed=-1,1"])
    with pytest.raises(ConfigError, match=r"row alpha_1_2: .*got -1"):
        expand("one", [ONE_SEED, "method.shaper.alpha=1,-1"])


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["/x/models/a/lm", "/x/models/b/lm"], ["path = a/lm", "path = b/lm"]),
        (["/m/a", "/m/a/b"], ["path = a", "path = a/b"]),
        (["/m/a", "/n/a"], ["path = m/a", "path = n/a"]),
        # Written in another way than the folder, or with a name on the hub, whose label it would have.
        (["/m//x/a", "/m/x/b"], ["path = /m//x/a", "path = /m/x/b"]),
        (["/m/a/lm", "/m/b/lm", "a/lm"], ["path = /m/a/lm", "path = /m/b/lm", "path = a/lm"]),
    ],
)
def test_rows_by_path_are_labelled_by_the_parts_that_differ(values, labels):
    """Full paths filled the legends."""
    words = [ONE_SEED, "scale=study", "scorer=minilm", f"scorer.path={','.join(values)}"]
    matrix = expand("one", words)
    assert [cell.row.label for cell in matrix.cells] == labels
    assert [cell.config.scorer.path for cell in matrix.cells] == values
    assert f"scorer.path={','.join(values)}" in matrix.manifest.asked_as
