import pytest

from scpo import memory
from scpo.errors import ConfigError
from scpo.records import JsonLines, State
from sweeps.compose.configuration import compose_run
from sweeps.estimates import PastTimes, api_lines, api_usd, cost_lines, duration, gpu_hours, hours
from sweeps.resources import LOGS_GIB, Resources, check_fits, disk_gib, resources, training_gib
from tests.support import fake_runs as fake
from tests.support.matrices import expanded


def test_the_papers_twelve_scpo_runs_come_to_about_a_thousand_gpu_hours():
    runs = [cell.config for cell in expanded("paper_runs", "scale=paper").cells if cell.row.name == "scpo"]
    assert len(runs) == 12
    papers = [run.model_copy(update={"env": run.env.model_copy(update={"validation_panels": {}})}) for run in runs]
    total, unknown = gpu_hours(papers, [4] * 12)
    assert unknown == 0
    assert total == pytest.approx(1000, rel=0.01)  # 996: (13 + 7 + 36 + 27) h x 3 seeds x 4 GPUs
    ours, _ = gpu_hours(runs, [4] * 12)
    assert 1.02 * total < ours < 1.1 * total  # 274 or 500 episodes a validation instead of 128


def test_fewer_steps_take_less_time_and_other_sizes_and_gpus_are_scaled():
    whole = duration(compose_run(["scale=paper"]))
    assert (whole.basis, str(whole)) == ("paper", "13.8")
    assert hours(compose_run(["scale=paper", "trainer.steps=75"])) == pytest.approx(whole.hours / 2, rel=0.02)
    assert hours(compose_run(["scale=paper", "trainer=verl_1gpu"])) == pytest.approx(4 * whole.hours)
    small = duration(compose_run(["scale=paper", "model=qwen2_5_0_5b"]))
    assert small.basis == "scaled"
    assert 4 < small.hours < 13


# Words, times the paper's 13.0 h at 1.5B and 36.0 h at 7B without validations. The rollout is 27 % of a step at 1.5B.
SCALED = {
    "one task": ("trainer.groups=1", 0.27 + 0.73 * 0.2),
    "half the siblings": ("trainer.group_size=4", 0.27 + 0.73 / 2),
    "four times the tasks": ("trainer.groups=64", 4),
    "four times the siblings": ("trainer.group_size=32", 4),
    "as many episodes in other groups": ("[trainer.groups=64,trainer.group_size=2]", 1),
    "short episodes": ("env.horizon=5", 0.27 * 0.1 + 0.73 * 0.2),
    "long episodes": ("env.horizon=100", 2),
    "epochs": ("trainer.epochs=10", 0.27 + 7.3),
    "long responses": ("trainer.max_response_tokens=4096", 8),
    "short responses": ("trainer.max_response_tokens=128", 1),
    "steps": ("trainer.steps=300", 2),
    "prompts": ("env.history_length=4", 1),
    "validations": ("trainer.validation.every=10", 1),
}


@pytest.mark.parametrize(("word", "factor"), SCALED.values(), ids=SCALED)
def test_the_papers_hours_are_scaled_by_number_and_size_of_the_steps_and_marked(word, factor):
    run = compose_run(["scale=paper", *word.strip("[]").split(",")])
    without = run.model_copy(update={"env": run.env.model_copy(update={"validation_panels": {}})})
    assert hours(without) == pytest.approx(13 * factor)
    assert str(duration(run)).startswith("+")


def test_a_longer_episode_makes_validations_longer_too():
    extra = (274 * 31 - 128 * 31) / 128 * 0.27 * 13 / 150
    assert hours(compose_run(["scale=paper"])) == pytest.approx(13 + extra)
    assert hours(compose_run(["scale=paper", "env.horizon=100"])) == pytest.approx(2 * (13 + extra))


def test_every_row_of_the_main_table_that_verl_trains_has_the_papers_hours_without_a_mark():
    trained = [
        cell.config for cell in expanded("main_table", "scale=paper").cells if cell.config.method.kind == "trained"
    ]
    found = {(run.env.benchmark, run.model.name, str(duration(run))) for run in trained}
    shops = {
        (shop, size, took) for shop in ("webshop", "webshop_paper") for size, took in (("1.5B", "8.1"), ("7B", "29.3"))
    }
    assert found == {("alfworld", "1.5B", "13.8"), ("alfworld", "7B", "37.2"), *shops}


def test_the_dry_run_names_the_source_of_scaled_hours():
    cells = expanded("group_size", "scale=paper").cells
    assert {cell.row.name: str(duration(cell.config)) for cell in cells if "scpo" in cell.row.name} == {
        "scpo_4": "+9.1", "scpo": "13.8", "scpo_16": "+26.8",
    }  # fmt: skip
    _, legend = cost_lines([cell.config for cell in cells], [])
    assert legend.startswith("hours: the paper's SCPO runs")
    assert legend.endswith("; + the paper's, scaled by model, GPUs (as A800s) and size of the steps, unmeasured")


def test_a_closed_model_takes_as_long_as_its_account_may_ask():
    words = ["scale=paper", "method=plain", "model=gpt_4o"]
    slow, fast = (hours(compose_run([*words, f"machine.api.requests_per_minute={rate}"])) for rate in (60, 600))
    assert slow == pytest.approx(0.25 + 274 * 50 / 60 / 60)
    assert fast - 0.25 == pytest.approx((slow - 0.25) / 10)


def test_evaluations_have_an_estimate_and_small_scales_none():
    evaluated = compose_run(["scale=paper", "method=plain"])
    assert str(duration(evaluated)).startswith("~0.")
    assert hours(compose_run([])) is None
    total, unknown = gpu_hours([compose_run([]), compose_run(["scale=paper"])], [0, 4])
    assert (total, unknown) == (pytest.approx(4 * 13.8, rel=0.01), 1)


WANTED = {
    "a method that verl trains": (["scale=paper"], Resources(1, 4, 32, 128)),
    "the large model": (["scale=paper", "model=qwen2_5_7b"], Resources(1, 4, 32, 304)),
    "one card": (["scale=paper", "trainer=verl_1gpu"], Resources(1, 1, 16, 128)),
    "two nodes": (["scale=paper", "trainer.verl.nodes=2"], Resources(2, 4, 32, 128)),
    "an evaluation": (["scale=paper", "method=react"], Resources(1, 1, 8, 32)),
    "a model behind an API": (["scale=paper", "method=plain", "model=gpt_4o"], Resources(1, 0, 2, 8)),
    "a language model in one process": (["scale=paper", "trainer=local"], Resources(1, 1, 8, 32)),
    "a small policy": ([], Resources(1, 0, 2, 4)),
    "verl for the CPU": (["trainer=verl_cpu"], Resources(1, 0, 16, 88)),
}


@pytest.mark.parametrize(("words", "needed"), WANTED.values(), ids=WANTED)
def test_what_a_run_asks_for_follows_from_method_model_and_trainer(words, needed):
    assert resources(compose_run(words)) == needed


def test_the_launcher_may_say_otherwise():
    given = compose_run(["scale=paper", "launcher=slurm_a800x4", "launcher.gpus=8", "launcher.cpus=4"])
    assert (resources(given).gpus, resources(given).cpus) == (8, 4)


@pytest.mark.parametrize(("words", "cpus"), [([], 8), (["scale=paper"], 32), (["scale=paper", "method=react"], 8)])
def test_cores_follow_the_number_of_gpus_that_the_launcher_asks_for(words, cpus):
    gpus = cpus // 8
    given = resources(compose_run([*words, "launcher=slurm_a800x4", f"launcher.gpus={gpus}"]))
    assert (given.gpus, given.cpus) == (gpus, cpus)
    twice = resources(compose_run([*words, "launcher=slurm_a800x4", f"launcher.gpus={2 * gpus}"]))
    assert twice.cpus == 2 * cpus


BAD = {
    "too few GPUs": (["launcher.gpus=2"], r"launcher\.gpus=2, the run takes 4 of each node .*trainer=verl_1gpu"),
    "too few cores": (["launcher.cpus=8"], r"launcher\.cpus=8, verl on 4 GPUs needs 15 CPU cores.*or 15 and more"),
    "small GPUs": (["launcher.gpu_gb=24"], r"1\.5B with trainer=verl needs about \d+ GiB of each GPU"),
    "one process": (["trainer=local", "model=qwen2_5_7b"], r"7B with trainer=local needs about \d+ GiB of each GPU"),
    "an evaluation": (["method=react", "model=qwen2_5_7b", "launcher.gpu_gb=16"], r"a GPU has 16\. Fewer rows at once"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_a_job_that_its_run_cannot_start_on_is_refused_in_one_line(words, message):
    config = compose_run(["scale=paper", "launcher=slurm_a800x4", *words])
    with pytest.raises(ConfigError, match=message) as refused:
        check_fits(config, config.launcher.gpu_gb)
    assert "\n" not in str(refused.value)


def test_an_evaluation_takes_what_it_is_given():
    check_fits(compose_run(["scale=paper", "method=react", "launcher=slurm_a800x4", "launcher.cpus=2"]), 80.0)


def test_every_row_of_the_main_table_fits_the_papers_gpus():
    for cell in expanded("main_table", "scale=paper").cells:
        check_fits(cell.config, 80.0)


def finish(folder, minutes, *, at="10", **changes):
    times = {"started_at": f"2026-01-01T{at}:00:00+00:00", "updated_at": f"2026-01-01T{at}:{minutes:02}:00+00:00"}
    status = folder.read_status().model_copy(
        update={"state": State.DONE, "attempt": 1, "step": 4, "host": "here", **times, **changes}
    )
    fake.write_status(folder, status)


def seconds(tmp_path, *overrides):
    config = compose_run([*fake.QUICK, f"machine.runs_dir={tmp_path}", *overrides])
    return PastTimes(tmp_path, host="here").seconds(config)


def test_a_run_takes_what_its_kind_took_here_by_steps(tmp_path):
    for seed, minutes in enumerate((2, 4, 12)):
        finish(fake.make_run(tmp_path, f"seed={seed}"), minutes)
    assert seconds(tmp_path, "seed=7") == 240  # the median
    assert seconds(tmp_path, "seed=7", "trainer.steps=8") == 480


def test_the_start_of_a_run_is_counted_once_whatever_its_number_of_steps(tmp_path):
    folder = fake.make_run(tmp_path)
    log = JsonLines(folder.timing)
    for step in range(5):
        log.append({"step": step, "at": f"2026-01-01T10:{2 + step:02}:00+00:00"})
    log.close()
    finish(folder, 6)
    assert seconds(tmp_path, "seed=7") == 360
    assert seconds(tmp_path, "seed=7", "trainer.steps=8") == 120 + 8 * 60


def test_its_own_kind_comes_before_others_of_the_benchmark_and_model(tmp_path):
    finish(fake.make_run(tmp_path, "method=grpo"), 2)
    assert seconds(tmp_path, "method=scpo") == 120
    finish(fake.make_run(tmp_path, "method=scpo"), 6)
    assert seconds(tmp_path, "method=scpo", "seed=3") == 360


@pytest.mark.parametrize("changes", [{"host": "there"}, {"attempt": 2}, {"state": State.FAILED}, {"started_at": None}])
def test_runs_of_elsewhere_and_in_pieces_say_nothing(tmp_path, changes):
    finish(fake.make_run(tmp_path), 2, **changes)
    assert seconds(tmp_path) is None


def test_runs_of_another_size_say_nothing(tmp_path):
    finish(fake.make_run(tmp_path), 2)
    assert seconds(tmp_path, "trainer.groups=2") is None
    assert seconds(tmp_path, "env=webshop") is None


def test_all_together_share_the_slots(tmp_path):
    finish(fake.make_run(tmp_path), 2)
    configs = [compose_run([*fake.QUICK, f"machine.runs_dir={tmp_path}", f"seed={seed}"]) for seed in range(4)]
    other = compose_run([*fake.QUICK, f"machine.runs_dir={tmp_path}", "env=webshop"])
    assert PastTimes(tmp_path, host="here").total([*configs, other], slots=2) == (240, 1)
    # One run takes its time in however many slots, and three in two slots take two rounds.
    assert PastTimes(tmp_path, host="here").total(configs[:1], slots=16) == (120, 0)
    assert PastTimes(tmp_path, host="here").total(configs[:3], slots=2) == (240, 0)


def test_a_checkpoint_of_ppo_has_its_critic():
    grpo, ppo = (disk_gib(compose_run(["scale=paper", f"method={name}"])) for name in ("grpo", "ppo"))
    assert ppo - LOGS_GIB == pytest.approx(2 * (grpo - LOGS_GIB))


def test_training_counts_float32_for_every_type_of_weights_on_disk():
    config = compose_run(["scale=paper", "trainer=local", "env.games=generated"])
    assert config.model.dtype == "bfloat16"
    copies = 4 + (config.trainer.loss.kl_coefficient > 0)
    expected = memory.shape(config.model).parameters * copies * 4 / memory.GIB
    assert training_gib(config) == expected


def test_an_api_run_costs_at_most_a_request_a_step_at_the_models_prices():
    config = compose_run(["scale=paper", "method=plain", "model=gpt_4o", "env=alfworld"])
    episodes = sum(
        {"valid_seen": 140, "valid_unseen": 134}[p.split] * p.repeats for p in config.env.validation_panels.values()
    )
    request_usd = (1034 * 2.5 + 512 * 10.0) / 1e6
    assert api_usd(config) == pytest.approx(episodes * 50 * request_usd)
    (line,) = api_lines([config, config, compose_run(["scale=paper"])])
    assert line.startswith(f"API cost, at most: GPT-4o {2 * api_usd(config):,.0f} USD (2 runs); every episode")


def test_hidden_reasoning_is_billed_and_a_local_model_costs_nothing():
    thinks = compose_run(["scale=paper", "method=plain", "model=gemini_2_5_pro"])
    silent = thinks.model_copy(update={"model": thinks.model.model_copy(update={"reasoning_tokens": 0})})
    assert api_usd(thinks) > 2 * api_usd(silent)
    assert api_usd(compose_run(["scale=paper", "method=plain"])) is None
    assert api_lines([compose_run(["scale=paper"])]) == []
