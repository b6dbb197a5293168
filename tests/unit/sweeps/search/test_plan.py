import pytest
import yaml

from scpo.errors import ConfigError
from scpo.records.identity import run_id
from sweeps.compose.configuration import compose_run
from sweeps.search.plan import make_plan
from sweeps.search.search_folder import read_plan, search_folders, write_plan, write_results
from sweeps.search.space import override_texts
from tests.support.searches import InstantLauncher, drive, plan_in


def test_a_trials_runs_are_those_of_the_same_words_on_panels_of_their_own():
    plan = make_plan("scpo_theta_lambda", ["trainer.steps=7"])
    words = ["method=scpo", "method.shaper.theta=0.75", "method.shaper.soft_base=0.2", "trainer.steps=7"]
    trials = plan.runs({"theta": 0.75, "soft_base": 0.2})
    ordinary = [compose_run([*words, f"seed={seed}"]) for seed in (0, 1)]
    assert not trials.keys() & {run_id(run) for run in ordinary}
    assert [run.model_copy(update={"env": None}) for run in trials.values()] == [
        run.model_copy(update={"env": None}) for run in ordinary
    ]


def test_the_first_trial_is_the_configuration_as_it_is():
    plan = make_plan("scpo", [])
    (first, second) = plan.runs(plan.default()).values()
    assert (first.seed, second.seed) == (0, 1)
    assert first.method == compose_run([]).method


def test_a_dimension_may_be_a_config_group():
    plan = make_plan(
        "scpo_plus", ["scale=study", "+search.space.scorer={kind: choice, key: scorer, values: [exact, lexical]}"]
    )
    default = plan.default()
    assert default["scorer"] == "exact"
    other = plan.runs({**default, "scorer": "lexical"})
    assert {config.scorer.kind for config in other.values()} == {"lexical"}
    assert override_texts(plan.search.space, {**default, "scorer": "lexical"})[-1] == "scorer=lexical"
    assert other.keys().isdisjoint(plan.runs(default))


@pytest.mark.parametrize("scale", ["mini", "study", "paper"])
@pytest.mark.parametrize("env", ["alfworld", "webshop"])
def test_no_trial_sees_a_panel_that_results_are_reported_on(scale, env):
    reported = compose_run([f"scale={scale}", f"env={env}"] if scale != "study" else ["scale=study"]).env
    plan = make_plan("scpo", [f"scale={scale}", *([f"env={env}"] if scale != "study" else [])])
    (trial, *_) = plan.runs(plan.default()).values()
    assert list(trial.env.validation_panels) == ["tuning"]
    (panel,) = trial.env.validation_panels.values()
    assert panel.split == "train"
    own_games = panel.subset_of_training and trial.env.train_panel.seed != reported.train_panel.seed
    assert panel.held_out or own_games
    assert "tuning" not in reported.validation_panels


def test_the_winner_is_reported_on_the_ordinary_panels(tmp_path):
    plan = plan_in(tmp_path)
    trials, _ = drive(plan, InstantLauncher())
    write_results(plan, trials)
    winner = yaml.safe_load((plan.folder / "best.yaml").read_text())
    texts = [text for row in winner["experiment"]["rows"] for text in row["overrides"]]
    assert not any("validation_panels" in text or "train_panel" in text for text in texts)
    assert set(winner["experiment"]["axes"]["seeds"]).isdisjoint(plan.seeds)


def test_what_may_change_while_a_search_goes_on_keeps_its_study(tmp_path):
    first = plan_in(tmp_path)
    for word in ("search.trials=3", "search.parallel=1", "search.retries=0", "search.fresh_seeds=[7]"):
        assert plan_in(tmp_path, word).study_id == first.study_id
    for word in ("trainer.steps=9", "seeds=[0]", "search.tuning.mini.tasks=8", "search.space.theta.high=0.75"):
        assert plan_in(tmp_path, word).study_id != first.study_id


def test_a_model_that_is_called_as_a_path_makes_one_folder(tmp_path):
    plan = plan_in(tmp_path, "model.name=Qwen/X")
    write_plan(plan)
    assert plan.folder.parent == tmp_path / "searches"
    assert plan.study_id.startswith("scpo_theta_lambda-alfworld-qwen_x-")
    assert search_folders(tmp_path) == [plan.folder]


def test_scale_env_and_model_choose_their_values():
    plan = make_plan("scpo", ["scale=paper", "env=webshop"])
    assert (plan.seeds, plan.trials, plan.metric) == ((0, 1), 24, "val/tuning/success_rate")
    assert (plan.base.env.name, plan.base.model.name, plan.default()["alpha"]) == ("webshop", "1.5B", 1.0)


RATE = "+search.space.rate={kind: log, key: trainer.optimizer.learning_rate, low: 0.001, high: 0.1}"

BAD = {
    "searched key": (["method.shaper.theta=0.5"], "the search varies method.shaper.theta itself"),
    "searched key in a mapping": (["method.shaper={theta: 0.5}"], "the search varies method.shaper.theta itself"),
    "one key twice": (
        ["+search.space.th2={kind: step, key: method.shaper.theta, low: 0.35, high: 0.45, step: 0.1}"],
        r"^search.space.theta and search.space.th2 both vary method.shaper.theta, of which a run has one value. Change "
        r"the values of theta instead: search.space.theta.low=... search.space.theta.high=...; or take it out of the "
        r"space: '~search.space.theta'$",
    ),
    "one choice twice": (
        ["+search.space.sequence={kind: choice, key: method.shaper.order, values: [balanced, random]}"],
        r"both vary method.shaper.order, .* instead: 'search.space.order.values=\[...\]'; or",
    ),
    "one seed": (["seed=0"], "a trial runs on several seeds"),
    "seed as a parameter": (
        ["+search.space.seed={kind: choice, key: seed, values: [0, 1, 2]}"],
        r"^search.space.seed: seed cannot be searched: a search takes it from its seeds: 'seeds=\[...\]'. Take it "
        r"out of the space: '~search.space.seed'$",
    ),
    "environment as a parameter": (
        ["+search.space.where={kind: choice, key: env, values: [alfworld, webshop]}"],
        "^search.space.where: env cannot be searched",
    ),
    "seed in the file": (
        ["search.overrides=['method=scpo', 'seed=3']"],
        r"^search.overrides: seed=3 cannot be set there: a search takes it from its seeds: 'seeds=\[...\]'$",
    ),
    "another scale in the file": (
        ["search.overrides=['method=scpo', 'scale=paper', 'model=qwen2_5_1_5b']"],
        "^search.overrides: scale=paper cannot be set there: a search takes it from the command line: scale=<name>$",
    ),
    "machine as a parameter": (
        ["+search.space.project={kind: choice, key: wandb.project, values: [a, b]}"],
        "^search.space.project: wandb.project=a and wandb.project=b make the same runs, as settings of this section do "
        "not change what a run computes. Take it out of the space: '~search.space.project'$",
    ),
    "range of the machine": (
        ["+search.space.slots={kind: step, key: launcher.slots, low: 1, high: 3, step: 1}"],
        "launcher.slots=1 and launcher.slots=3 make the same runs",
    ),
    "not read": (
        ["+search.space.draw={kind: choice, key: env.wordings.seed, values: [1, 2]}"],
        "env.wordings.seed=2 make the same runs, as this configuration does not read the setting",
    ),
    "one value twice": (
        ["search.space.order.values=[random,random]"],
        "^search.space.order: random is given 2 times; give each value once$",
    ),
    "one step": (
        ["search.space.theta.step=1"],
        "^search.space.theta: 0.3 is the only value; the step may be at most high - low$",
    ),
    "key that one of the files lacks": (
        ["search.overrides=[]", "+search.space.method={kind: choice, key: method, values: [scpo, gigpo]}"],
        "^search.space.method: gigpo cannot run: method.shaper.theta cannot be set with method=gigpo",
    ),
    "seeds in two ways": (["search.seeds=[5, 6]", "seeds=[7]"], r"^search.seeds=\[5, 6\]: seeds=... in the same call"),
    "model of a scale in two ways": (
        ["search.model.mini=tiny", "model=tiny"],
        "^search.model.mini=tiny: model=... in the same call replaces it; give one$",
    ),
    "grid without points": (
        [RATE, "search.sampler.name=grid"],
        "search.space.rate.points is missing, the number of values that a grid takes of a logarithmic range; write "
        "points: 5 there, or search.sampler.name=tpe$",
    ),
    "axis of seeds": (["seeds=1,2"], "seeds=1,2: a search takes a list of seeds"),
    "no seeds": (["seeds=null"], "a search takes a list of seeds"),
    "axis of environments": (["env=alfworld,webshop"], "a search takes one environment"),
    "axis of models": (["model=tiny,small"], "a search takes one model"),
    "winner on its own seeds": (["seeds=[10]"], r"seeds \[10\] are in seeds and in search.fresh_seeds"),
    "unknown key": (["+search.trails=5"], "unknown key trails.*did you mean trials"),
    "empty range": (["search.space.theta.low=0.95"], "low must be below high"),
    "misspelt override": (["trainer.stepz=3"], "did you mean trainer.steps"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_a_wrong_search_is_refused_with_its_reason(words, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        make_plan("scpo", words)


def test_an_unknown_search_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean scpo"):
        make_plan("scop", [])


def test_a_mapping_of_other_keys_of_a_section_contradicts_no_parameter():
    plan = make_plan("scpo_theta_lambda", ["method.shaper={alpha: 0.7}"])
    assert plan.base.method.shaper.alpha == 0.7


def test_a_parameter_that_only_another_one_turns_on_is_searched():
    dose = "+search.space.dose={kind: choice, key: env.wordings.dose, values: [0, 1]}"
    draw = "+search.space.draw={kind: choice, key: env.wordings.seed, values: [1, 2]}"
    assert {"dose", "draw"} <= make_plan("scpo", [dose, draw]).search.space.keys()


def test_a_config_group_and_a_key_of_its_files_may_both_vary():
    method = "+search.space.method={kind: choice, key: method, values: [scpo, crbc]}"
    words = ["search.overrides=[]", "~search.space.theta", "~search.space.soft_base", method]
    omega = "+search.space.omega={kind: choice, key: method.estimator.omega, values: [1.0, 2.0]}"
    plan = make_plan("scpo_theta_lambda", [*words, omega])
    ids = [run for name in ("scpo", "crbc") for run in plan.runs({"method": name, "omega": 2.0})]
    assert len(set(ids)) == 4


def test_a_seed_that_is_given_twice_is_noted_and_runs_once(tmp_path):
    plan = plan_in(tmp_path, "seeds=[0,1,0]", "search.fresh_seeds=[7,7]")
    assert plan.seeds == (0, 1)
    assert plan.remarks()[:2] == [
        "seeds: 0 is given 2 times and runs once",
        "search.fresh_seeds: 7 is given 2 times and runs once",
    ]
    trials, _ = drive(plan, InstantLauncher())
    write_results(plan, trials)
    assert "over seeds 0, 1." in (plan.folder / "best.yaml").read_text()
    assert "over seeds 0, 1;" in (plan.folder / "summary.md").read_text()


def test_a_recorded_search_with_a_seed_given_twice_keeps_its_folder(tmp_path):
    # The folder's hash was that of the seeds as given.
    assert plan_in(tmp_path, "seeds=[0,0]").study_id != plan_in(tmp_path, "seeds=[0]").study_id


@pytest.mark.parametrize(
    "word", ["env.train_panel.seed=7", "env.train_panel={seed: 7}", "~env.validation_panels.valid_seen"]
)
def test_an_override_of_a_panel_that_trials_replace_is_noted(word):
    (line,) = make_plan("scpo", [word]).remarks()
    assert line == f"{word} has an effect on the winner's runs only: trials have the panels of search.tuning"


def test_an_override_of_a_training_panel_that_trials_keep_is_not_noted():
    assert make_plan("scpo", ["scale=study", "scorer=lexical", "env.train_panel.seed=7"]).remarks() == []


def test_only_a_grid_needs_points_of_a_logarithmic_range(tmp_path):
    plan = plan_in(tmp_path, RATE, "search.sampler.name=tpe", "search.trials=3")
    trials, _ = drive(plan, InstantLauncher())
    assert len({trial.params["rate"] for trial in trials}) == 3
    write_plan(plan)
    assert read_plan(plan.folder).search == plan.search
