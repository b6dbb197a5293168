"""Real verl, Ray and FSDP2 on real ALFWorld games: one run that is stopped and resumed, looked at from all sides."""

import gzip
import json
import signal
import subprocess
import time

import numpy as np
import pytest
import yaml

from scpo.diagnostics.validation_episodes import read_validation
from scpo.installed import is_vllm_for_cpu
from scpo.shaping.reference_buffer import FILE as REFERENCES
from tests.support.verl_runs import ROOT, lines, only_run, run_command, shards, warm_start_of

pytest.importorskip("ray", reason="needs verl: make test-verl")
pytest.importorskip("alfworld", reason="needs alfworld: make setup")
torch = pytest.importorskip("torch", reason="needs torch: make setup")

STEPS, GROUPS, SIBLINGS, MINI_BATCH = 3, 16, 2, 48
"""Every game of the panel in every step, by few siblings: a game that was won is lost by all of them soon after."""
WORDS = [
    "method=scpo", "scorer=exact", "method.shaper.reference_buffer=last_success",
    "env.validation_panels.train_games.games=1", "env.validation_panels.train_games.repeats=1",
    "env.validation_panels.valid_seen.games=6", "env.validation_panels.valid_unseen.games=1",
    f"trainer.steps={STEPS}", f"trainer.groups={GROUPS}", f"trainer.group_size={SIBLINGS}",
    f"trainer.mini_batch_rows={MINI_BATCH}", "trainer.validation.every=3", "trainer.probe_every=3",
    "trainer.probe_siblings=2", "trainer.precision_every=1", "trainer.precision_steps=4",
    "trainer.checkpoint_every=3", "trainer.loss.kl_coefficient=0.01",
]  # fmt: skip
RANKS, FEW = 4, 6
FOUR = [  # FSDP2 on gloo, one process a rank and an engine each; shards, dispatch, order and padding are real
    f"trainer.verl.gpus={RANKS}", f"trainer.groups={FEW}", "env.validation_panels.valid_seen.games=2",
]  # fmt: skip
LIMIT_S = 500
"""For one start of the run: a crash of the rollout engine may hang verl."""


NO_VLLM = pytest.mark.skipif(not is_vllm_for_cpu(), reason="needs vLLM's CPU build: make test-verl-vllm")


@pytest.fixture(scope="module", params=["hf", pytest.param("vllm", marks=NO_VLLM)])
def stopped_and_resumed(tmp_path_factory, request):
    """The run folder at its end; its metrics, weights and references when it was stopped after one step or two."""
    return stop_and_resume(tmp_path_factory.mktemp("runs"), warm_start_of(tmp_path_factory), request.param)


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory):
    """The same of a run on four data-parallel ranks."""
    cache = warm_start_of(tmp_path_factory)
    return stop_and_resume(tmp_path_factory.mktemp("four"), cache, "hf", *FOUR)


def stop_and_resume(runs, cache, engine, *words):
    process = start(runs, cache, engine, *words)
    while logged(runs) < 2 and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert finish(process) == 130, log(runs)
    folder = only_run(runs)
    assert json.loads((folder / "status.json").read_text())["state"] == "INTERRUPTED"
    stopped = (folder / "metrics.jsonl").read_bytes()
    checkpoints = sorted(path.parent.name for path in folder.glob("checkpoints/*/COMPLETE"))
    step = json.loads(stopped.splitlines()[-1])["step"]
    assert checkpoints == [f"step_{step:05d}"]
    weights, kept = load_weights(folder, step), references(folder, step)
    assert finish(start(runs, cache, engine, *words)) == 0, log(runs)
    return folder, stopped, weights, kept


def start(runs, cache, engine, *words):
    with (runs / "output.log").open("a") as output:
        return subprocess.Popen(
            run_command(runs, cache, *WORDS, *words, f"trainer.verl.engine={engine}"),
            cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def finish(process):
    try:
        return process.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def log(runs):
    return (runs / "output.log").read_text()[-6000:]


def logged(runs):
    return sum(path.read_bytes().count(b"\n") for path in runs.glob("*/metrics.jsonl"))


def load_weights(folder, step):
    """Each parameter's part on the first rank: with one rank the whole parameter."""
    state = torch.load(shards(folder, step)[0], weights_only=False, map_location="cpu")
    return {name: getattr(value, "_local_tensor", value) for name, value in state.items()}


def references(folder, step):
    """Task -> the step of its last success and the texts of its steps, as a checkpoint holds them."""
    return json.loads(gzip.decompress((folder / "checkpoints" / f"step_{step:05d}" / REFERENCES).read_bytes()))


def test_a_stopped_run_goes_on_where_it_stopped_and_ends_done(stopped_and_resumed):
    folder, stopped, *_ = stopped_and_resumed
    assert [line["step"] for line in lines(folder)] == list(range(STEPS + 1))
    assert (folder / "metrics.jsonl").read_bytes().startswith(stopped)
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["attempt"], status["step"]) == ("DONE", 2, STEPS)


def test_training_changes_the_parameters_before_and_after_the_stop(stopped_and_resumed):
    from safetensors.torch import load_file

    folder, stopped, middle, _ = stopped_and_resumed
    first, last = load_file(folder / "policy" / "model.safetensors"), load_weights(folder, STEPS)
    assert all(changed_as_logged(first, middle, lines(folder)[1 : stopped.count(b"\n")]))
    assert all(changed_as_logged(middle, last, lines(folder)[stopped.count(b"\n") :]))
    states = torch.load(
        folder / f"checkpoints/step_{STEPS:05d}/global_step_{STEPS}/actor/optim_world_size_1_rank_0.pt",
        weights_only=False,
    )["state"]
    updates = sum(line["actor/updates"] for line in lines(folder)[1:])
    assert {int(state["step"]) for state in states.values()} == {updates}
    for line in lines(folder)[1:]:
        assert line["actor/updates"] + line["update/skipped"] == mini_batches(line)
        assert line["update/without_advantage"] == 0


def changed_as_logged(before, after, steps):
    """Check that each parameter was changed by the updates of ``steps``, or is untouched without any.

    A step in which no game is won has no advantage, and therefore no update. Which games are won
    differs between processors, so that a step of few episodes may well be such a step.
    """
    updated = sum(line["actor/updates"] for line in steps) > 0
    return [updated != torch.equal(before[name], after[name]) for name in before]


def mini_batches(line):
    rows = line["train/rows"] + line["train/rows_padded"]
    assert rows % MINI_BATCH == 0
    return int(rows / MINI_BATCH)


def test_rollout_and_update_agree_on_every_tokens_probability(stopped_and_resumed):
    for line in lines(stopped_and_resumed[0])[1:]:
        assert line["training/rollout_probs_diff_max"] < 1e-4


def test_no_row_is_lost_and_padding_is_counted_apart(stopped_and_resumed):
    for line in lines(stopped_and_resumed[0])[1:]:
        assert line["train/episodes"] == GROUPS * SIBLINGS
        assert line["train/rows"] == pytest.approx(line["train/episodes"] * line["train/episode_length"])
        assert 0 <= line["train/rows_padded"] < MINI_BATCH
        assert 0 <= line["credit/descents"] <= 3  # the order of four ranks, computed


def test_four_ranks_train_stop_and_resume(four_ranks):
    folder, stopped, middle, kept = four_ranks
    assert [line["step"] for line in lines(folder)] == list(range(STEPS + 1))
    assert (folder / "metrics.jsonl").read_bytes().startswith(stopped)
    right = changed_as_logged(middle, load_weights(folder, STEPS), lines(folder)[stopped.count(b"\n") :])
    assert sum(right) > len(right) / 2  # a small parameter may have no part on the first rank
    assert [path.name for path in shards(folder, STEPS)] == [
        f"model_world_size_{RANKS}_rank_{rank}.pt" for rank in range(RANKS)
    ]
    assert_restored(kept, references(folder, STEPS))
    for line in lines(folder)[1:]:
        assert line["train/episodes"] == FEW * SIBLINGS
        assert 0 <= line["credit/descents"] <= RANKS - 1
        assert line["training/rollout_probs_diff_max"] < 1e-4
        batches = mini_batches(line)
        assert line["train/smallest_mini_batch"] >= line["train/rows"] // batches - RANKS


def test_some_failed_sibling_is_credited_and_it_reaches_the_advantages(stopped_and_resumed):
    credited = [line for line in lines(stopped_and_resumed[0])[1:] if line["credit/steps_all"] > 0]
    assert credited
    assert any(line["credit/shift"] > 0 for line in credited)
    assert all(line["credit/exact"] == 1.0 for line in credited)


def test_what_was_won_before_the_stop_is_remembered_after_it_and_serves(stopped_and_resumed):
    """Whoever loads the buffer and plays on has each reference of before, byte for byte, but for games won again."""
    folder, stopped, _, kept = stopped_and_resumed
    assert {step for step, _ in kept.values()} <= set(range(1, stopped.count(b"\n")))
    assert_restored(kept, references(folder, STEPS))
    resumed = lines(folder)[stopped.count(b"\n") :]
    assert resumed[0]["buffer/tasks"] == len(kept)
    served = [line for line in resumed if line.get("buffer/served", 0) > 0]
    if not served:
        pytest.skip("needs a game that is won before the stop and lost by all after it: none was, run it again")
    assert served[0]["buffer/age"] >= 1


def assert_restored(kept, last):
    """``kept`` when the run was stopped, ``last`` at its end."""
    stop = max((step for step, _ in kept.values()), default=0)
    old = {task: reference for task, reference in last.items() if reference[0] <= stop}
    assert json.dumps(old) == json.dumps({task: reference for task, reference in kept.items() if task in old})
    assert all(last[task][0] > stop for task in kept.keys() - old.keys())


def test_every_panel_is_validated_and_the_probe_is_kept(stopped_and_resumed):
    folder, *_ = stopped_and_resumed
    for line in lines(folder):
        validated = {key.split("/")[1] for key in line if key.startswith("val/")}
        assert validated == ({"train_games", "valid_seen", "valid_unseen"} if line["step"] in (0, STEPS) else set())
    families = [key for key in lines(folder)[0] if key.startswith("val/valid_seen/") and key.count("/") == 3]
    assert len(families) == 6
    for step in (0, STEPS):
        with np.load(folder / "diagnostics" / f"probe_step_{step:05d}.npz", allow_pickle=False) as probe:
            assert int(probe["step"]) == step


def test_the_episodes_of_every_validation_agree_with_its_metrics(stopped_and_resumed):
    folder, *_ = stopped_and_resumed
    logged = {line["step"]: line for line in lines(folder)}
    for step in (0, STEPS):
        panels = read_validation(folder / "diagnostics" / f"validation_step_{step:05d}.json.gz")["panels"]
        assert panels.keys() == {"train_games", "valid_seen", "valid_unseen"}
        for name, panel in panels.items():
            assert np.mean(panel["won"]) == pytest.approx(logged[step][f"val/{name}/success_rate"])
            assert all(len(one["turns"]) == panel["length"][one["episode"]] for one in panel["transcripts"])


def test_verls_configuration_is_written_down_with_sources_and_a_command(stopped_and_resumed):
    folder, *_ = stopped_and_resumed
    listed = yaml.safe_load((folder / "verl_settings.yaml").read_text())
    assert all(one["source"] for one in listed)
    config = yaml.safe_load((folder / "verl_config.yaml").read_text())
    actor, rollout = config["actor_rollout_ref"]["actor"], config["actor_rollout_ref"]["rollout"]
    assert actor["ppo_mini_batch_size"] * rollout["n"] == MINI_BATCH
    assert (folder / "verl_command.txt").read_text().startswith("python -m scpo.trainers.verl ")
