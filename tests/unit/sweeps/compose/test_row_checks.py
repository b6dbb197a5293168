"""What rows of an experiment's file may hold, and which of them may be compared."""

import pytest

from scpo.errors import ConfigError
from sweeps.compose.matrix import expand
from sweeps.compose.overrides import options

GRPO = "{name: grpo, overrides: [method=grpo]}"
PAIR = "primary: {measure: validation_area, comparisons: [[scpo, grpo]]}"


@pytest.fixture
def of_rows(tmp_path):
    """Expand an experiment of these rows at the scale mini."""
    path = tmp_path / "mine.yaml"

    def write(*rows, words=(), env="[alfworld]", rest=""):
        axes = f"{{env: {env}, model: {{mini: [tiny], study: [choice]}}, seeds: 2}}"
        lines = "".join(f"  - {row}\n" for row in rows)
        path.write_text(f"experiment:\n  name: mine\n  title: Mine\n  axes: {axes}\n  rows:\n{lines}  {rest}\n")
        return expand(str(path), words)

    return write


def scpo(*overrides, more=""):
    return f"{{name: scpo, overrides: [{', '.join(['method=scpo', *overrides])}]{more}}}"


@pytest.mark.parametrize(
    "override",
    ["machine.runs_dir=there", "machine={threads: 2}", "launcher=slurm_a800x4", "launcher.slots=1", "wandb.project=x"],
)
def test_where_runs_execute_is_not_set_by_a_row(of_rows, override):
    """The dry run looked all rows up in the folder of the first, and the runs of the row went elsewhere."""
    with pytest.raises(ConfigError) as caught:
        of_rows(GRPO, scpo(f"'{override}'"))
    assert str(caught.value) == (
        f"experiment mine: {override} in the overrides of row scpo: machine, launcher and wandb set where and how "
        f"runs execute, for all rows of a call; delete it there and give it on the command line: {override}"
    )
    with pytest.raises(ConfigError, match="in the overrides of row scpo: machine, launcher and wandb"):
        of_rows(GRPO, scpo(more=f", at_scale: {{mini: ['{override}']}}"))


def test_where_runs_execute_may_be_set_for_all_rows(of_rows):
    matrix = of_rows(GRPO, scpo(), rest="overrides: [machine.runs_dir=there]")
    assert {config.machine.runs_dir for config in matrix.runs.values()} == {"there"}
    matrix = of_rows(GRPO, scpo(), words=["machine.runs_dir=here"])
    assert {config.machine.runs_dir for config in matrix.runs.values()} == {"here"}


@pytest.mark.parametrize("word", ["machine.runs_dir=a,b", "launcher=local,slurm_a800x4", "machine.threads=[1,2]"])
def test_where_runs_execute_cannot_be_an_axis(of_rows, word):
    key = word.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{key}: machine, .* cannot be an axis, .*; give one: {key}=\w+ or {key}="):
        of_rows(GRPO, words=[word])


NEVER = {
    "seeds": (
        ["{name: grpo, overrides: [method=grpo], seeds: [0, 1]}", scpo(more=", seeds: [2]")],
        "row scpo has seed 2, row grpo seeds 0, 1",
    ),
    "environments": (
        ["{name: grpo, overrides: [method=grpo, env=alfworld]}", scpo("env=webshop")],
        "row scpo has env webshop, row grpo env alfworld",
    ),
    "seeds of the axis": ([GRPO, scpo(more=", seeds: [2]")], "row scpo has seed 2, row grpo seeds 0, 1"),
    "scales": ([GRPO, scpo(more=", scales: [study]")], None),
    "scales of both": (
        ["{name: grpo, overrides: [method=grpo], scales: [mini]}", scpo(more=", scales: [study, paper]")],
        "row scpo has scales study, paper, row grpo scale mini",
    ),
}


@pytest.mark.parametrize(("rows", "differ"), NEVER.values(), ids=NEVER)
def test_a_comparison_that_can_never_have_a_pair_is_refused(of_rows, rows, differ):
    """It passed the dry run, and the table at the end did not mention it."""
    if differ is None:
        # At another scale it may have pairs.
        assert not of_rows(*rows, rest=PAIR).notes
        return
    with pytest.raises(ConfigError) as caught:
        of_rows(*rows, rest=PAIR)
    assert str(caught.value) == (
        f"experiment mine: primary comparison [scpo, grpo] can never have a pair: {differ}, and runs are paired by "
        "environment, model and seed at one scale; give both rows the same, or take the comparison out of primary"
    )


def test_a_comparison_that_an_axis_of_the_command_line_leaves_without_pairs_is_noted(of_rows):
    rows = [GRPO, scpo(more=", seeds: [1]")]
    assert not of_rows(*rows, rest=PAIR).notes
    assert of_rows(*rows, rest=PAIR, words=["seeds=[5,6]"]).notes == [
        "primary comparison [scpo, grpo]: no pairs among the runs of this call: row scpo has seed 1, row grpo seeds 5, "
        "6"
    ]
    assert "no pairs" not in str(of_rows(*rows, rest=PAIR, words=["rows=[scpo]", "seeds=[5,6]"]).notes)


def test_a_key_that_a_row_sets_twice_is_noted_as_on_the_command_line(of_rows):
    matrix = of_rows(GRPO, scpo("trainer.steps=2", "trainer.steps=3"), rest="overrides: [env.horizon=5, env.horizon=6]")
    assert matrix.notes == [
        "the overrides of all rows: env.horizon=5 is replaced by the later env.horizon=6",
        "row scpo: trainer.steps=2 is replaced by the later trainer.steps=3",
    ]
    assert not of_rows(scpo("trainer.steps=2", more=", at_scale: {mini: [trainer.steps=3]}")).notes


def test_an_environment_of_a_row_that_the_axis_does_not_have_is_noted(of_rows):
    note = "row scpo: its own env=webshop is used, not the axis env: [alfworld]"
    assert of_rows(GRPO, scpo("env=webshop")).notes == [note]
    both = of_rows(GRPO, scpo("env=webshop"), env="[alfworld, webshop env.setting=paper]")
    assert not both.notes


@pytest.mark.parametrize("name", options("experiment"))
def test_the_files_of_this_repository_have_none_of_it(name):
    try:
        notes = expand(name, ["scale=study"]).notes
    except ConfigError as error:
        if "at this scale" not in str(error) and "for scale=study" not in str(error):
            raise
        notes = []
    assert not [note for note in notes if "comparison" in note or "replaced" in note or "its own" in note]


WRONG = {
    "seed": (
        [GRPO, scpo(more=", seeds: [-1]")],
        "rows.1.seeds.0: got -1; a seed is a whole number from 0 to 2147483647",
    ),
    "key of the only row": (
        ["{name: scpo, overrides: [method=scpo], overide: [a=1]}"],
        "unknown key rows.0.overide (got ['a=1']); did you mean rows.0.overrides?\n"
        "keys of rows.0: at_scale, label, name, overrides, scales, seeds",
    ),
    "missing key of the only row": (
        ["{name: scpo}"],
        "rows.0.overrides is missing: every key is needed; write rows.0.overrides=<value>",
    ),
    "no rows": (
        [],
        "rows: got None; a list of rows is needed, such as rows: [{name: gigpo, overrides: [method=gigpo]}]",
    ),
    "seeds by scale": (
        [GRPO, scpo(more=", seeds: {study: [5]}")],
        "rows.1.seeds: got {'study': [5]}; a row's seeds are a list, the same at all scales, such as seeds: [0, 1]",
    ),
}


@pytest.mark.parametrize(("rows", "said"), WRONG.values(), ids=WRONG)
def test_a_mistake_in_a_row_is_one_complaint_in_terms_of_the_file(of_rows, rows, said):
    """A wrong entry was followed by "tuple should have at least 1 item after validation, not 0"."""
    with pytest.raises(ConfigError) as caught:
        of_rows(*rows)
    assert str(caught.value).partition("\n")[2] == said


def test_an_experiment_of_one_row_needs_no_comparisons(of_rows):
    with pytest.raises(ConfigError) as caught:
        of_rows(GRPO, rest="primary: {measure: validation_area, comparisons: []}")
    assert str(caught.value).endswith(
        "\nprimary.comparisons: got []; a list of pairs of rows is needed, such as comparisons: [[scpo, gigpo]]; "
        "without comparisons, leave primary out"
    )
    assert of_rows(GRPO).cells


@pytest.mark.parametrize(
    ("env", "words"),
    [("[alfworld, alfworld env.horizon=40]", []), ("[alfworld]", ["env=[alfworld,'alfworld env.horizon=40']"])],
)
def test_two_settings_of_one_benchmark_are_not_pooled_in_a_row(of_rows, env, words):
    """The tables averaged both settings as seeds, and paired whichever came last."""
    with pytest.raises(ConfigError) as caught:
        of_rows(GRPO, scpo(), env=env, words=words)
    assert str(caught.value) == (
        "row grpo has 2 runs on alfworld, tiny, seed 0: values of an axis differ only in settings (env: alfworld; "
        "alfworld env.horizon=40; model: tiny), and tables would average over them as over seeds. Give each setting "
        "rows of its own, with the setting in their overrides, or a call of its own"
    )


def test_two_settings_that_are_benchmarks_of_their_own_are_an_axis(of_rows):
    matrix = of_rows(GRPO, env="[webshop, webshop env.setting=paper]")
    assert {point[0] for point in matrix.points["grpo"]} == {"webshop", "webshop_paper"}
