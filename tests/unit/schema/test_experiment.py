"""What an experiment names as its primary comparisons."""

import shutil

import pytest
from pydantic import ValidationError

from scpo.errors import ConfigError
from scpo.schema.experiment import Experiment
from sweeps.compose import configuration
from sweeps.compose.matrix import expand
from sweeps.compose.overrides import options


def experiment(*comparisons, measure="validation_area"):
    rows = [{"name": name, "overrides": ()} for name in ("scpo", "gigpo", "grpo")]
    primary = {"measure": measure, "comparisons": comparisons}
    return Experiment.model_validate({"name": "mine", "title": "Mine", "axes": {}, "rows": rows, "primary": primary})


def test_comparisons_of_its_own_rows_are_kept_in_order():
    assert experiment(("scpo", "gigpo"), ("gigpo", "grpo")).primary.comparisons == (
        ("scpo", "gigpo"),
        ("gigpo", "grpo"),
    )


@pytest.mark.parametrize(
    ("comparisons", "said"),
    [
        ([("scpo", "hgpo")], r"no row is called hgpo; its rows: scpo, gigpo, grpo"),
        ([("scpo", "scpo")], r"\[scpo, scpo\]: give two different rows, and each pair once"),
        ([("scpo", "grpo"), ("scpo", "grpo")], "each pair once"),
        ([("scpo", "grpo"), ("grpo", "scpo")], "each pair once"),
        ([], "without comparisons, leave primary out"),
    ],
)
def test_a_comparison_of_other_rows_or_twice_is_refused(comparisons, said):
    with pytest.raises(ValidationError, match=said):
        experiment(*comparisons)


def test_two_rows_of_one_name_are_refused():
    rows = [
        {"name": "other", "label": "SCPO", "overrides": ["method=scpo"]},
        {"name": "other", "label": "Mine", "overrides": ["method=gigpo"]},
    ]
    with pytest.raises(ValidationError, match=r"mine: 2 rows are called other \(SCPO, Mine\); give each row a name"):
        Experiment.model_validate({"name": "mine", "title": "Mine", "axes": {}, "rows": rows})


def test_two_rows_of_one_label_are_refused():
    """Their comparison was printed as "GRPO − GRPO"."""
    rows = [
        {"name": "grpo", "overrides": ["method=grpo"]},
        {"name": "grpo_low", "label": "GRPO", "overrides": ["method=grpo", "trainer.optimizer.learning_rate=1e-5"]},
    ]
    said = (
        "experiment mine: rows grpo and grpo_low have one label, GRPO, under which .* give each row a label of its own"
    )
    with pytest.raises(ValidationError, match=said):
        Experiment.model_validate({"name": "mine", "title": "Mine", "axes": {}, "rows": rows})


def test_a_row_with_the_label_of_a_method_runs_that_method(tmp_path):
    path = tmp_path / "mine.yaml"

    def of(row, overrides="[]"):
        axes = "{env: [alfworld], model: [tiny], seeds: [0]}"
        path.write_text(
            f"experiment:\n  name: mine\n  title: Mine\n  axes: {axes}\n  overrides: {overrides}\n  rows: [{row}]\n"
        )
        return expand(str(path))

    with pytest.raises(ConfigError) as caught:
        of("{name: x, label: GiGPO, overrides: [method=grpo]}")
    assert str(caught.value) == (
        "experiment mine, row x: its label GiGPO is that of method=gigpo, but it runs method=grpo: give it the label "
        "GRPO, or method=gigpo in its overrides"
    )
    with pytest.raises(
        ConfigError, match="row gigpo: its label GiGPO is that of method=gigpo, but it runs method=scpo"
    ):
        of("{name: gigpo, overrides: []}")
    assert of("{name: gigpo, overrides: []}", "[method=gigpo]").runs
    assert of("{name: x, label: GiGPO, overrides: [method=gigpo]}").runs
    assert of("{name: x, label: GiGPO ours, overrides: [method=grpo]}").runs


@pytest.mark.parametrize("label", ["", "label: SCPO, "])
def test_a_row_that_changes_its_method_needs_a_label_of_its_own(tmp_path, label):
    """Tables printed SCPO with theta = 0.9 as SCPO."""
    path = tmp_path / "mine.yaml"

    def of(row):
        axes = "{env: [alfworld], model: [tiny], seeds: [0]}"
        path.write_text(f"experiment:\n  name: mine\n  title: Mine\n  axes: {axes}\n  rows: [{row}]\n")
        return expand(str(path))

    with pytest.raises(ConfigError) as caught:
        of(f"{{name: scpo, {label}overrides: [method=scpo, method.shaper.theta=0.9]}}")
    assert str(caught.value) == (
        "experiment mine, row scpo: its label SCPO is that of method=scpo as it is, but the row has "
        'method.shaper.theta=0.9: give it a label of its own, such as "SCPO, shaper.theta=0.9"'
    )
    assert of("{name: scpo, label: SCPO at 0.9, overrides: [method=scpo, method.shaper.theta=0.9]}").runs
    # Tables have a note on what is no setting of the method.
    assert of("{name: scpo, overrides: [method=scpo, trainer.optimizer.learning_rate=1e-4]}").runs


def test_a_measure_that_there_is_not_is_refused():
    with pytest.raises(ValidationError, match="validation_area"):
        experiment(("scpo", "gigpo"), measure="success")


def test_a_wrong_comparison_in_a_file_is_one_line_with_the_rows(tmp_path):
    text = (
        "experiment:\n  name: mine\n  title: Mine\n  axes: {env: [alfworld], model: [tiny], seeds: [0]}\n"
        "  rows:\n    - {name: scpo, overrides: [method=scpo]}\n"
        "  primary: {measure: validation_area, comparisons: [[scpo, gigpo]]}\n"
    )
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="no row is called gigpo; its rows: scpo"):
        expand(str(path))


def test_a_copied_file_with_the_name_of_the_original_is_refused(tmp_path, monkeypatch):
    shutil.copytree(configuration.CONF, tmp_path / "conf")
    monkeypatch.setattr(configuration, "CONF", tmp_path / "conf")
    monkeypatch.setattr(configuration, "FOLDERS", (tmp_path / "conf",))
    copied = tmp_path / "conf" / "experiment" / "mine.yaml"
    shutil.copy(copied.with_name("controls.yaml"), copied)
    with pytest.raises(ConfigError, match=r"mine.yaml: experiment.name is controls; it must be the file's name, mine$"):
        expand(str(copied))


def test_the_study_names_what_the_paper_claims_before_its_runs():
    primary = {
        name: expand(name, ["scale=study"]).experiment.primary for name in ("main_table", "ablation", "controls")
    }
    assert {one.measure for one in primary.values()} == {"validation_area"}
    assert {("scpo", "gigpo"), ("gigpo", "grpo")} <= set(primary["main_table"].comparisons)
    assert set(primary["ablation"].comparisons) == {
        ("scpo", row) for row in ("chronological", "no_monotonicity", "shortest_reference")
    }
    assert {second for _, second in primary["controls"].comparisons} >= {"random_match", "uniform_bonus", "gigpo"}
    assert set(primary) <= set(options("experiment"))
