import re
import shutil

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

from scpo.errors import ConfigError
from scpo.schema.run import RunConfig
from sweeps.compose import configuration, overrides
from sweeps.compose.configuration import compose_experiment, compose_raw, compose_run
from sweeps.compose.hints import explain_hydra
from sweeps.compose.overrides import CONF, options, parse_all


def test_the_default_is_the_mini_scale():
    config = compose_run([])
    assert (config.scale, config.method.name, config.model.name, config.seed) == ("mini", "scpo", "tiny", 0)


def test_the_command_line_wins_over_the_scale():
    config = compose_run(["scale=paper", "model=tiny", "trainer.steps=7"])
    assert (config.model.name, config.trainer.steps, config.env.games) == ("tiny", 7, "official")


@pytest.mark.parametrize("name", ["runs_dir", "cache_dir", "archive"])
@pytest.mark.parametrize("value", ["", "' '"])
def test_a_folder_without_a_name_is_not_the_current_folder(name, value):
    with pytest.raises(ConfigError, match=rf"^machine.{name} is empty \(a variable that is not set\?\); give a folder"):
        compose_run([f"machine.{name}={value}"])
    assert compose_run(["machine.runs_dir=."]).machine.runs_dir == "."


def test_an_empty_variable_of_a_data_folder_is_an_unset_one(monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", "")
    configuration.compose_files.cache_clear()
    assert compose_run([]).data_folder is None
    configuration.compose_files.cache_clear()


def test_a_configuration_file_that_is_no_yaml_is_named_with_its_line(tmp_path, monkeypatch):
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(configuration, "CONF", tmp_path / "conf")
    monkeypatch.setattr(overrides, "CONF", tmp_path / "conf")
    with (tmp_path / "conf/estimator/rloo.yaml").open("a") as file:
        file.write("gamma: [0.3\n")
    lines = len((tmp_path / "conf/estimator/rloo.yaml").read_text().splitlines())
    configuration.compose_files.cache_clear()
    with pytest.raises(ConfigError, match=rf"^conf/estimator/rloo.yaml, line {lines + 1}, column 1: no YAML: expected"):
        compose_run(["method=rloo"])
    configuration.compose_files.cache_clear()


def test_a_configuration_file_that_is_not_utf_8_is_named(tmp_path, monkeypatch):
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(configuration, "CONF", tmp_path / "conf")
    monkeypatch.setattr(configuration, "FOLDERS", (tmp_path / "conf",))
    monkeypatch.setattr(overrides, "CONF", tmp_path / "conf")
    with (tmp_path / "conf/estimator/rloo.yaml").open("ab") as file:
        file.write(b"# caf\xe9\n")
    configuration.compose_files.cache_clear()
    with pytest.raises(ConfigError, match=r"^conf/estimator/rloo.yaml: not UTF-8 text: .* Save it as UTF-8$"):
        compose_run(["method=rloo"])
    configuration.compose_files.cache_clear()


def test_a_method_file_that_includes_itself_is_answered_with_the_entry_to_write(tmp_path, monkeypatch):
    """Hydra replaces `/method@_here_: scpo` by the chosen method, again and again: a RecursionError's traceback."""
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(configuration, "CONF", tmp_path / "conf")
    monkeypatch.setattr(configuration, "FOLDERS", (tmp_path / "conf",))
    monkeypatch.setattr(overrides, "CONF", tmp_path / "conf")
    own = tmp_path / "conf/method/rloo.yaml"
    own.write_text("defaults:\n  - /method@_here_: scpo\n  - _self_\nname: rloo\n")
    configuration.compose_files.cache_clear()
    with pytest.raises(ConfigError, match=r"^method=rloo: a defaults list in .*conf includes its own .* `- scpo`"):
        compose_run(["method=rloo", "seed=1"])
    own.write_text("defaults:\n  - scpo\n  - _self_\nname: rloo\n")
    configuration.compose_files.cache_clear()
    assert compose_run(["method=rloo", "seed=1"]).method.shaper is not None
    configuration.compose_files.cache_clear()


@pytest.mark.parametrize(
    ("file", "field", "got", "words", "told"),
    [
        ("estimator/rloo", "name", "rlooo", "method=rloo", "method.estimator.name: got 'rlooo'; allowed: gae, rloo, "),
        ("scorer/exact", "kind", "exakt", "scorer=exact", "scorer.kind: got 'exakt'; allowed: exact, lexical, "),
    ],
)
def test_a_wrong_name_in_a_configuration_file_is_answered_with_the_file(
    tmp_path, monkeypatch, *, file, field, got, words, told
):
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(configuration, "CONF", tmp_path / "conf")
    monkeypatch.setattr(configuration, "FOLDERS", (tmp_path / "conf",))
    path = tmp_path / f"conf/{file}.yaml"
    right = file.partition("/")[2]
    path.write_text(path.read_text().replace(f"{field}: {right}\n", f"{field}: {got} # mine\n"))
    configuration.compose_files.cache_clear()
    with pytest.raises(ConfigError) as caught:
        compose_run([words])
    configuration.compose_files.cache_clear()
    assert str(caught.value).startswith(told)
    assert str(caught.value).endswith(
        f"; did you mean {right}?\nconf/{file}.yaml has {field}: {got}. A part of your own must also be registered, "
        'in the code or by the entry point of an installed package: CONTRIBUTING.md, "How to add a part"'
    )


def composed_by_hydra(words):
    """By Hydra alone: a folder of another name is read without our plugins."""
    with initialize_config_dir(version_base="1.3", config_dir=f"{CONF}/."):
        return compose("config", overrides=words)


def test_an_environment_that_a_scale_has_no_settings_for_is_named():
    with pytest.raises(MissingConfigException) as failed:
        composed_by_hydra(["scale/env=study_moon"])
    said = explain_hydra(failed.value, [], dict, RunConfig)
    assert said == "scale=study has no settings for env=moon, only those in conf/scale/env/study_*.yaml"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["scale=paper", "env=webshop", "model=qwen2_5_7b"],
        ["method=hgpo", "seed=3", "~wandb", "+machine.more=[1,{a: 2}]"],
        ["env=webshop", "env.setting=paper", "method=plain", "model=gpt_4o", "scorer=exact", "trainer=verl"],
        ["~scale/env", "+estimator@method.other=hgpo", "++seed={a: ${seed}}", "machine.runs_dir=${now:%Y}"],
        ["+experiment=sweep_theta", "method.shaper.theta=0.3", "trainer.steps=${seed}", "launcher=slurm_a800x4"],
        ["env={horizon: 5}", "env.horizon=6", "method=grpo", "wandb.project='a b'", "machine.data.alfworld=null"],
        ["env.horizon=6", "env={horizon: 5}", "env.step_filter.no_op_observations=[a]", "seed=1", "seed=2"],
        ["trainer.steps=3", "~wandb", "trainer.steps=4"],
        ["wandb=null", "method.estimator=null", "machine.runs_dir="],
    ],
)
def test_it_composes_as_hydra_does(words):
    assert compose_raw(parse_all(words)) == composed_by_hydra(words)


def test_every_row_that_sets_values_composes_as_hydra_does():
    """One row of each set of keys; rows that only choose files are composed by Hydra itself."""
    rows = [parse_all(row.overrides) for name in options("experiment") for row in compose_experiment(name)[0].rows]
    setting = {tuple(one.key for one in row): row for row in rows if not all(one.is_choice for one in row)}
    assert len(setting) > 8
    for row in setting.values():
        found, expected = compose_raw(row), composed_by_hydra([override.for_hydra for override in row])
        assert OmegaConf.to_container(found) == OmegaConf.to_container(expected), row


def test_what_hydra_can_fill_in_is_filled_in():
    assert re.fullmatch(r"runs/\d{4}", compose_run(["machine.runs_dir=runs/${now:%Y}"]).machine.runs_dir)
    assert compose_run(["wandb.project=py${python_version:major}"]).wandb.project == "py3"


BAD = {
    "unknown method": (
        ["method=scop"],
        "no method is called 'scop'; did you mean scpo?\nallowed: crbc, dapo, ecpo, empg, ",
    ),
    "no method": (["method=null"], "no method is called 'None'"),
    "unknown experiment": (["+experiment=ablatio"], "did you mean ablation"),
    "several of which one": (["env=[alfworld,webshop]"], "one env, not a list; allowed: alfworld, webshop"),
    "group without its place": (["estimator=hgpo"], "unknown key estimator; did you mean method.estimator?"),
    "group without its place beside a misspelt key": (["stepz=1", "estimator=hgpo"], "unknown key estimator"),
    "group in a wrong place": (["method@foo=grpo"], "unknown key method@foo; did you mean method?"),
    "misspelt key in a mapping": (["env={horizn: 5}"], "unknown key env.horizn; did you mean env.horizon?"),
    "value of another shape": (["machine.scorer=[1]"], "Error merging override machine.scorer=[1]: Cannot merge"),
    "item of a list": (
        ["~env.step_filter.no_op_observations.0"],
        "~env.step_filter.no_op_observations.0: list indices must be integers",
    ),
    "number of a choice": (["method=5"], "method=5: Config group override must be a string"),
    "misspelt deletion": (["~method.shapr"], "unknown key method.shapr; did you mean method.shaper?"),
    "deletion of another value": (["~method.shaper.theta=0.7"], "'method.shaper.theta' is 0.6 and not 0.7"),
    "deletion of what is not there": (["method=grpo", "~method.shaper"], "method.shaper is not set in this config"),
    "key of a section that refers to another": (
        ["method.shaper.step_filter.no_op_observations=[a]"],
        "is not set in this configuration; did you mean env.step_filter.no_op_observations=[a]?",
    ),
    "misspelt key": (["method.shaper.thetta=1"], "unknown key method.shaper.thetta; did you mean method.shaper.theta?"),
    "misspelt key with +": (
        ["+method.shaper.thetta=1"],
        "unknown key method.shaper.thetta (got 1); did you mean method.shaper.theta?\nkeys of method.shaper: added_to,",
    ),
    "misspelt group": (["methd=scpo"], "unknown key methd; did you mean method?\nkeys of the configuration: env,"),
    "misspelt group with +": (["+methd=scpo"], "unknown key methd (got 'scpo'); did you mean method?"),
    "key without its section": (["theta=0.5"], "did you mean method.shaper.theta?"),
    "key of the trainer without its section": (
        ["trainer.learning_rate=1e-5"],
        "unknown key trainer.learning_rate; did you mean trainer.optimizer.learning_rate or ",
    ),
    "key without its underscore": (
        ["trainer.learningrate=1e-5"],
        "unknown key trainer.learningrate; did you mean trainer.optimizer.learning_rate or ",
    ),
    "length of verl's training": (["trainer.total_epochs=3"], "did you mean trainer.steps?"),
    "passes over a batch in verl": (["actor_rollout_ref.actor.ppo_epochs=2"], "did you mean trainer.epochs?"),
    "key without its section with +": (["+theta=0.5"], "did you mean method.shaper.theta?"),
    "misspelt key below a union": (["+method.estimator.omga=1"], "did you mean method.estimator.omega?"),
    "misspelt key below a mapping": (
        ["+env.validation_panels.valid_seen.splt=x"],
        "did you mean env.validation_panels.valid_seen.split?",
    ),
    "value too large": (
        ["method.shaper.theta=1.5"],
        "method.shaper.theta: got 1.5; input should be less than or equal",
    ),
    "value below a union": (["method.estimator.gamma=2"], "method.estimator.gamma: got 2;"),
    "value of another type": (["trainer.steps=many"], "trainer.steps: got 'many'; input should be a valid integer"),
    "not a number": (["trainer.steps=nan"], "trainer.steps: got nan"),
    "misspelt choice": (["method.shaper.order=cronological"], "did you mean chronological?"),
    "host that ignores the bonus": (
        ["method.host=grpo"],
        "method.host=grpo: 'grpo' is not a host of SCPO; did you mean hgpo?\nallowed: gigpo, hgpo, g2po",
    ),
    "no host": (["method.host=null"], "'None' is not a host of SCPO"),
    "host of a method without a shaper": (
        ["method=gigpo", "method.host=hgpo"],
        "method=gigpo has no shaper and so no host; method=scpo has one. To run an estimator by itself: method=hgpo",
    ),
    "host of a removed shaper": (["~method.shaper", "method.host=hgpo"], "has no shaper"),
    "setting of another host": (["method.host=hgpo", "method.estimator.omega=2"], "method.estimator.omega"),
    "estimator that hosts nothing": (
        ["estimator@method.estimator=grpo"],
        "'grpo' ignores step returns, so the shaper's credit would be lost; allowed hosts: gigpo, hgpo, g2po",
    ),
    "environment of another name": (
        ["env=webshop_paper"],
        "write env=webshop env.setting=paper",
    ),
    "unknown setting": (
        ["env=webshop", "env.setting=papr"],
        "env.reward: env.settings has no 'papr'; did you mean paper?\nenv.settings has stack, paper",
    ),
    "setting of an environment without": (["env.setting=paper"], "env has no such key here, other choices of it do"),
    "host of a method that only prompts": (["method=plain", "method.host=hgpo"], "no estimator and so no host"),
    "agent for a model without instructions": (
        ["method=react"],
        "method=react needs a model that follows instructions (kind huggingface or api), got model=tiny",
    ),
    "prompt without instructions": (
        ["method=plain", "model=gpt_4o"],
        "reads env.prompt=verl_agent, got compact: that prompt holds no instructions. Add env.prompt=verl_agent",
    ),
    "training what is behind an API": (["model=gpt_4o"], "method=scpo trains; allowed: method=plain, react or"),
    "agent and estimator": (["+method.agent.name=plain"], "unknown key method.agent (got {'name': 'plain'})"),
    "neither": (["method.estimator=null", "method.shaper=null"], "method.estimator: got None; it is a section"),
    "shaper of a method that only prompts": (
        ["method=plain", "method.shaper.theta=0.5"],
        "method has no such key here, other choices of it do\nkeys of method: agent, kind, name",
    ),
    "key in place of its variable": (
        ["method=plain", "model=gpt_4o", "model.key_variable=sk-123"],
        "model.key_variable: got 'sk-123'; string should match pattern",
    ),
    "unknown estimator": (
        ["method.estimator.name=gigp"],
        "method.estimator.name: got 'gigp'; allowed: gae, rloo, grpo, empg, ",
    ),
    "SCPO without its shaper": (
        ["method.shaper=null"],
        "method=scpo without its shaper is its host, in runs and rows that are called scpo; write method=gigpo",
    ),
    "removed section": (["~method.shaper"], "method.shaper is missing"),
    "key of an absent section": (
        ["method=grpo", "method.shaper.theta=1"],
        "method.shaper.theta is not set in this configuration: method=grpo has no shaper; method=scpo has one",
    ),
    "key of another estimator": (
        ["method=hgpo", "method.estimator.omega=2"],
        "method.estimator has no such key here, other choices of it do\nkeys of method.estimator: base_group, context",
    ),
    "key of another estimator with +": (
        ["+method.estimator.critic=1"],
        "unknown key method.estimator.critic (got 1)\nkeys of method.estimator: anchor_similarity, anchors, gamma,",
    ),
    "key of another model": (["model.path=/x"], "model has no such key here, other choices of it do"),
    "misspelt key shows those of the chosen estimator": (
        ["method=rloo", "method.estimator.gama=1"],
        "did you mean method.estimator.gamma?\nkeys of method.estimator: gamma, invalid_penalty, name, ",
    ),
    "one value for a section": (["method.estimator=hcapo"], "it is a section: set its keys one by one, method.est"),
    "experiment for one run": (["+experiment=ablation"], "with +experiment, it is python sweep.py +experiment=abl"),
    "search for one run": (["search=scpo"], "with +search, it is python sweep.py +search=scpo"),
    "dry run of one run": (["dry_run=true"], "python sweep.py +experiment=<name> dry_run=true"),
    "bare name of an experiment": (["ablation"], "the experiment of that name: python sweep.py +experiment=ablation"),
    "bare name of a search": (["scpo_theta_lambda"], "python sweep.py +search=scpo_theta_lambda"),
    "dangling interpolation": (
        ["method.shaper.alpha=${env.alph}"],
        "method.shaper.alpha: env has no 'alph'\nenv has name, games, ",
    ),
    "Hydra's own sweep": (["seed=0,1"], "seed=0,1: one value a key here; as an axis of an experiment: python sweep.py"),
    "no value": (["seed"], "'seed' is not an override (there is no = in it)"),
    "open bracket": (["seed=[0"], "'seed=[0' is not an override"),
    "text for a list": (
        ["env.train_panel.families=pick"],
        "families: got 'pick'; a list is expected: 'env.train_panel.families=[pick]'",
    ),
    "text for a list of words": (
        ["trainer=verl", "trainer.verl.overrides='a b'"],
        "trainer.verl.overrides: got 'a b'; a list is expected: 'trainer.verl.overrides=[\"a b\"]'",
    ),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_error(words, message):
    with pytest.raises(ConfigError) as caught:
        compose_run(words)
    assert message in str(caught.value)
    assert "hydra" not in str(caught.value).lower()


def test_several_mistakes_are_told_together():
    with pytest.raises(ConfigError, match=r"theta: got 2(.|\n)*steps: got 0"):
        compose_run(["method.shaper.theta=2", "trainer.steps=0"])


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["model.path=/models/My-Model-1/"], "My-Model-1"),
        (["model.path=meta-llama/Llama-3.1-8B-Instruct"], "Llama-3.1-8B-Instruct"),
        (["model=qwen2_5_7b", "model.path=/models/Qwen2.5-1.5B-Instruct"], "Qwen2.5-1.5B-Instruct"),
        (["model={path: /models/other}"], "other"),
        (["model.path=/models/Qwen2.5-1.5B-Instruct"], "1.5B"),
        (["model.path=/hub/models--Qwen--Qwen2.5-1.5B-Instruct/snapshots/0a1b2c"], "1.5B"),
        (["model.path=/models/My-Model-1", "model.name=mine"], "mine"),
        (["model.path=/models/My-Model-1", "model.name=1.5B"], "1.5B"),
        ([], "1.5B"),
    ],
)
def test_other_weights_than_the_files_are_named_after_their_path(words, name):
    assert compose_run(["scale=paper", *words]).model.name == name


def test_other_weights_than_the_scorers_are_named_after_their_path():
    assert compose_run(["scale=paper"]).scorer.name == "bge_reranker_v2_m3"
    assert compose_run(["scale=paper", "scorer.path=/models/bge-reranker-v2-m3"]).scorer.name == "bge_reranker_v2_m3"
    assert compose_run(["scale=paper", "scorer.path=/models/my-reranker"]).scorer.name == "my-reranker"


def test_an_experiment_comes_with_its_scale():
    experiment, scale = compose_experiment("ablation", parse_all(["scale=paper"]))
    assert (experiment.name, scale) == ("ablation", "paper")
