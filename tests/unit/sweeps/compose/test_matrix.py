import numpy as np
import pytest

from scpo.errors import ConfigError
from scpo.strict import LARGEST_SEED
from sweeps.compose.matrix import expand


def names(matrix):
    return [(cell.row.name, cell.config.seed) for cell in matrix.cells]


def test_an_experiment_is_rows_times_axes():
    matrix = expand("ablation_monotonicity")
    assert names(matrix) == [(row, seed) for row in ("scpo", "no_monotonicity") for seed in (0, 1, 2)]
    assert [cell.config.method.shaper.monotonic for cell in matrix.cells] == [True] * 3 + [False] * 3
    assert not matrix.notes


def test_each_run_has_its_own_seed_and_the_rest_in_common():
    configs = list(expand("ablation_monotonicity", ["trainer.steps=9"]).runs.values())[:3]
    assert {config.trainer.steps for config in configs} == {9}
    assert len({config.model_copy(update={"seed": 0}).model_dump_json() for config in configs}) == 1


@pytest.mark.parametrize("words", [["env.train_panel.seed=${seed}"], ["env.train_panel.seed='${${wandb.project}}'"]])
def test_a_value_that_refers_to_the_seed_follows_it(words):
    runs = expand("ablation_monotonicity", [*words, "wandb.project=seed"]).runs.values()
    assert [run.env.train_panel.seed for run in runs] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("selection", ["rows=[no_monotonicity]", "rows=no_monotonicity"])
def test_only_the_selected_rows_have_runs_and_the_experiment_keeps_all(selection):
    whole, matrix = expand("ablation_monotonicity"), expand("ablation_monotonicity", [selection])
    assert names(matrix) == [("no_monotonicity", seed) for seed in (0, 1, 2)]
    assert matrix.runs.keys() < whole.runs.keys()
    assert matrix.experiment == whole.experiment
    assert matrix.manifest.words == whole.manifest.words
    assert matrix.notes == [f"{selection}: no runs of scpo (n/a in tables unless they ran earlier)"]


def test_rows_of_an_axis_are_selected_by_their_names():
    assert names(expand("one", ["method=gigpo,scpo", "rows=[scpo]", "seeds=[0]"])) == [("scpo", 0)]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("rows=[scop]", "no row is called 'scop'; did you mean scpo\\?; allowed: scpo, no_monotonicity"),
        ("rows=[]", "needs at least one value"),
    ],
)
def test_a_selection_of_no_row_is_refused(selection, message):
    with pytest.raises(ConfigError, match=message):
        expand("ablation_monotonicity", [selection])


def test_overriding_an_axis_replaces_it():
    assert names(expand("ablation_monotonicity", ["seeds=[5]", "env=alfworld"])) == [
        ("scpo", 5),
        ("no_monotonicity", 5),
    ]
    assert names(expand("ablation_monotonicity", ["seeds=4,5"]))[:2] == [("scpo", 4), ("scpo", 5)]
    models = expand("ablation_monotonicity", ["model=[tiny,qwen2_5_1_5b]", "seeds=[0]"])
    assert [cell.config.model.name for cell in models.cells] == ["tiny", "1.5B", "tiny", "1.5B"]


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("seeds=3", r"seeds=3: the seed 3 is 'seeds=\[3\]', 3 seeds are 'seeds=\[0,1,2\]'"),
        ("seeds=20", r"20 seeds are 'seeds=\[0,1,...,19\]'"),
        ("seeds=1", r"seeds=1: the seed 1 is 'seeds=\[1\]'$"),
        ("seeds=true", "seeds are whole numbers"),
    ],
)
def test_a_number_of_seeds_is_not_taken_for_a_seed(word, answer):
    with pytest.raises(ConfigError, match=answer):
        expand("one", [word])


def test_a_seed_in_overrides_of_a_file_is_refused(tmp_path):
    """A row with one had a single run instead of one for each seed, in silence."""
    path = tmp_path / "mine.yaml"

    def of(row, shared="[]"):
        axes = "{env: [alfworld], model: [tiny], seeds: 3}"
        rows = f"[{{name: scpo, overrides: [method=scpo]}}, {{name: gigpo, overrides: [method=gigpo{row}}}]"
        path.write_text(
            f"experiment:\n  name: mine\n  title: Mine\n  axes: {axes}\n  overrides: {shared}\n  rows: {rows}\n"
        )
        return expand(str(path))

    with pytest.raises(ConfigError) as caught:
        of(", seed=5]")
    assert str(caught.value) == (
        "experiment mine: seed=5 in the overrides of row gigpo: seeds are an axis; delete it there and list the seeds "
        "under axes, or, for a row that has fewer of them, next to its overrides: seeds: [0]"
    )
    with pytest.raises(ConfigError, match="seed=5 in the overrides of row gigpo: seeds are an axis"):
        of("], at_scale: {mini: [seed=5]}")
    with pytest.raises(ConfigError, match="mine: seed=1 in the overrides of all rows: seeds are an axis"):
        of("]", "[seed=1]")
    assert names(of("]")) == [(row, seed) for row in ("scpo", "gigpo") for seed in (0, 1, 2)]
    assert names(of("], seeds: [1]")) == [("scpo", 0), ("scpo", 1), ("scpo", 2), ("gigpo", 1)]


def test_the_prompted_rows_of_the_main_table_have_one_seed():
    matrix = expand("main_table", ["scale=study", "rows=[plain,scpo]", "seeds=[3,4]"])
    assert [each for each in names(matrix) if each[0] == "plain"] == [("plain", 0)]


def test_the_record_tells_rows_that_a_call_leaves_out_from_rows_that_cannot_run_at_its_scale():
    record = expand("main_table", ["scale=study", "rows=[scpo]", "seeds=[3]"]).manifest
    chosen = {row.name: row.chosen for row in record.rows}
    assert (chosen["scpo"], chosen["gigpo"], chosen["react"]) == (True, False, True)
    written = {row["name"]: row for row in record.model_dump(mode="json")["rows"]}
    assert "chosen" not in written["scpo"]
    assert written["gigpo"]["chosen"] is False


def test_misspelt_seeds_are_seeds_and_no_row():
    with pytest.raises(ConfigError, match=r"^sceds=\[0\]: unknown key sceds; did you mean seeds\?$"):
        expand("ablation", ["sceds=[0]"])


def test_a_file_without_an_axis_at_a_scale_is_named_with_the_scale_that_has_it(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "experiment:\n  name: gigpo_s0\n  title: mine\n"
        "  axes: {env: [alfworld], seeds: [0], model: {study: [choice]}}\n"
        "  rows: [{name: gigpo, overrides: [method=gigpo]}]\n"
    )
    with pytest.raises(ConfigError) as error:
        expand(str(path))
    assert str(error.value) == (
        f"{path} has no model for scale=mini; give scale=study, which it has, or 'model=[...]', or add it under axes "
        "in the file"
    )


def test_the_scale_chooses_the_axes():
    matrix = expand("ablation_monotonicity", ["scale=paper"])
    assert {cell.config.model.name for cell in matrix.cells} == {"1.5B"}
    assert {cell.config.env.games for cell in matrix.cells} == {"official"}


def test_a_row_has_further_overrides_at_a_scale(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "experiment:\n  name: mine\n  title: Mine\n"
        "  axes: {env: [alfworld], model: {mini: [tiny], study: [choice]}, seeds: [0]}\n"
        "  rows:\n    - name: gigpo\n      overrides: [method=gigpo]\n"
        "      at_scale: {study: [trainer.steps=7, trainer.groups=3]}\n"
    )
    (study,) = expand(str(path), ["scale=study"]).runs.values()
    assert (study.trainer.steps, study.trainer.groups) == (7, 3)
    (mini,) = expand(str(path), ["scale=mini"]).runs.values()
    assert mini == expand("one", ["method=gigpo", "model=tiny", "seeds=[0]"]).cells[0].config
    with pytest.raises(ConfigError, match=r"trainer\.steps=8: row gigpo sets trainer\.steps=7 itself"):
        expand(str(path), ["scale=study", "trainer.steps=8"])


def test_equal_configurations_have_equal_ids_in_every_experiment():
    whole, part = expand("ablation"), expand("ablation_monotonicity")
    assert set(part.runs) < set(whole.runs)


def test_rows_with_equal_configurations_share_a_run_with_a_note():
    matrix = expand("ablation_reference", ["seeds=[0]"])
    assert not matrix.notes
    matrix.add(matrix.experiment.rows[1], matrix.cells[0].config)
    assert len(matrix.runs) == 2
    assert matrix.notes == [
        f"row shortest_reference and row scpo are the same run {matrix.cells[0].run_id}; it runs once"
    ]


def test_a_host_is_a_row_like_any_other():
    hosts = {cell.row.name: cell.config.method for cell in expand("hosts", ["seeds=[0]"]).cells}
    assert {name: method.estimator.name for name, method in hosts.items() if method.shaper} == {
        "scpo_gigpo": "gigpo", "scpo_hgpo": "hgpo", "scpo_g2po": "g2po"
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"row scpo_hgpo sets method\.host=hgpo itself"):
        expand("hosts", ["method.host=gigpo"])


def test_a_seed_given_twice_is_one_run():
    matrix = expand("ablation_order", ["seeds=[1,1]"])
    assert len(matrix.cells) == 2
    assert "seeds: 1 is given 2 times and runs once" in matrix.notes


@pytest.mark.parametrize(
    ("word", "note"),
    [
        ("method=scpo,scpo", "method: scpo is given 2 times and runs once"),
        ("method.shaper.theta=0.4,0.40,0.5", "method.shaper.theta: 0.4 is given 2 times and runs once"),
        ("method.shaper.theta=[0.4,0.40]", "method.shaper.theta: 0.4 is given 2 times and runs once"),
    ],
)
def test_a_value_of_an_added_axis_that_is_given_twice_is_one_row_and_a_note(word, note):
    matrix = expand("one", ["method=scpo", word, "seeds=[0]"])
    assert len(matrix.cells) == (2 if "0.5" in word else 1)
    assert matrix.notes == [note]


def test_a_seed_that_a_row_gives_twice_is_one_run_and_a_note(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "experiment:\n  name: mine\n  title: Mine\n  axes: {env: [alfworld], model: [tiny], seeds: 3}\n"
        "  rows:\n  - {name: scpo, overrides: [method=scpo]}\n"
        "  - {name: gigpo, overrides: [method=gigpo], seeds: [0, 0, 1]}\n"
    )
    matrix = expand(str(path))
    assert len(matrix.cells) == 5
    assert matrix.notes == ["row gigpo, seeds: 0 is given 2 times and runs once"]
    assert expand(str(path), ["rows=[scpo]"]).notes == [
        "rows=[scpo]: no runs of gigpo (n/a in tables unless they ran earlier)"
    ]


def test_the_largest_seed_fits_the_generators_of_numpy_and_torch():
    (cell,) = expand("one", ["method=scpo", f"seeds=[{LARGEST_SEED}]"]).cells
    assert cell.config.seed == LARGEST_SEED
    # The workers of verl-agent count up from the run's seed, with an offset for validation.
    np.random.RandomState(LARGEST_SEED + 10_000)
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    torch.manual_seed(LARGEST_SEED + 10_000)


BAD = {
    "key of a row": (["method.shaper.monotonic=true"], "row no_monotonicity sets method.shaper.monotonic=false itself"),
    "section of a row's key": (
        ["method.shaper={theta:0.5}"],
        "row no_monotonicity sets method.shaper.monotonic=false itself",
    ),
    "group of a row": (["method=grpo"], "row scpo sets method=scpo itself"),
    "unknown method": (["method=scop"], "no method is called 'scop'; did you mean scpo?"),
    "misspelt key": (["trainer.stepz=1"], "did you mean trainer.steps?"),
    "key that is there with +": (
        ["+trainer.steps=1"],
        "trainer.steps is in the configuration already; leave out the +",
    ),
    "key of another launcher": (["launcher.parallel=1"], "unknown key launcher.parallel\nkeys of launcher: fork,"),
    "misspelt key with +": (["+trainer.stepz=1"], "did you mean trainer.steps?"),
    "value out of range": (["method.shaper.theta=7"], "row scpo: method.shaper.theta: got 7"),
    "one seed": (["seed=1"], "the axes of an experiment take values or lists"),
    "no seeds": (["seeds=[]"], "needs at least one value"),
    "a word for a seed": (["seeds=[one]"], "seed: got 'one'"),
    "a seed below 0": (["seeds=[-1]"], "seed: got -1; a seed is a whole number from 0 to 2147483647"),
    "a seed that no generator takes": (
        ["seeds=[99999999999999999999]"],
        "seed: got 99999999999999999999; a seed is a whole number from 0 to 2147483647",
    ),
    "a seed of a panel": (["env.train_panel.seed=2147483648"], "a seed is a whole number from 0 to 2147483647"),
    "unknown model": (["model=tine"], "no model is called 'tine'; did you mean tiny?"),
    "unknown scale": (["scale=huge"], "no scale is called 'huge'"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_a_wrong_override_is_refused_with_its_reason(words, message):
    with pytest.raises(ConfigError) as caught:
        expand("ablation_monotonicity", words)
    assert message in str(caught.value)


def test_a_word_that_a_row_says_itself_contradicts_nothing():
    words = ["seeds=[0]", "env=alfworld", "trainer=local", "scale=paper", "model=qwen2_5_1_5b"]
    assert {cell.config.trainer.name for cell in expand("main_table", words).cells} == {"local"}


def test_a_value_of_an_axis_may_bring_further_overrides_with_it():
    words = ["scale=paper", "seeds=[0]", "env=[webshop,'webshop env.setting=paper']"]
    shops = [cell.config.env for cell in expand("cost", words).cells if cell.row.name == "scpo"]
    assert [(shop.benchmark, shop.reward) for shop in shops] == [("webshop", "won"), ("webshop_paper", "score")]


def test_the_overrides_of_an_experiment_may_depend_on_the_scale():
    chosen = ["seeds=[0]", "env=alfworld"]
    scorers = {
        scale: {cell.config.scorer.name for cell in expand("sweep_theta", [*chosen, f"scale={scale}"]).cells}
        for scale in ("study", "paper")
    }
    assert scorers == {"study": {"lexical"}, "paper": {"bge_reranker_v2_m3"}}
    given = expand("sweep_theta", [*chosen, "scale=study", "scorer=exact"])
    assert {cell.config.scorer.name for cell in given.cells} == {"exact"}


def test_an_experiment_without_a_row_of_the_scale_names_the_scales_that_it_has():
    with pytest.raises(ConfigError) as caught:
        expand("learning_rates", ["scale=paper"])
    assert str(caught.value) == (
        "+experiment=learning_rates scale=paper: none of its rows runs at this scale; allowed: scale=study"
    )
