"""A choice policy through the whole trainer on real games: it learns, resumes with the same bytes, and is evaluated."""

import json
import shutil
import time

import pytest

from scpo.envs.alfworld.engine.engine import Engine
from scpo.records import State, run_config
from sweeps.compose.configuration import compose_run
from sweeps.launchers.forked import Forked, forked_runs
from sweeps.launchers.run_process import RunProcess
from tests.support import training_in_process
from tests.support.damage import flip_a_bit
from tests.support.training_in_process import STUDY, Killed, cache_without, logged
from tests.support.warm_starts import ROOT

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

pytestmark = pytest.mark.usefixtures("threads")


def run(runs, cache, *overrides, **killed):
    return training_in_process.run(runs, cache, *STUDY, *overrides, **killed)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    """A run that nothing disturbed."""
    return run(tmp_path_factory.mktemp("runs"), cache)


def test_a_run_records_every_step_and_its_samples(finished):
    lines = logged(finished)
    assert [line["step"] for line in lines] == list(range(5))
    for line in lines[1:]:
        assert line["train/episodes"] == 12
        assert line["train/prompt_truncated"] == line["train/invalid_rate"] == 0
        if line["actor/updates"] > 0:
            assert line["actor/entropy"] > 0
        else:  # no row of the step had an advantage
            assert line["update/skipped"] > 0
    assert lines[-1]["actor/grad_norm"] > 0.05  # or to go on from before it would prove little; 0.09 is of credit alone
    validated = {line["step"]: {key.split("/")[1] for key in line if key.startswith("val/")} for line in lines}
    assert validated == {0: (both := {"valid_seen", "valid_unseen"}), 1: set(), 2: both, 3: set(), 4: both}
    probes = sorted(path.name for path in (finished.path / "diagnostics").glob("probe_*"))
    assert probes == ["probe_step_00000.npz", "probe_step_00002.npz", "probe_step_00004.npz"]


def test_seconds_of_what_no_cache_held_are_no_part_of_a_step(cache, tmp_path, monkeypatch):
    """As if a game took a thousand seconds to open, which the clock has not seen."""
    opens = Engine.open

    def opens_slowly(engine, game_id):
        engine.uncached_s += 1000
        return opens(engine, game_id)

    monkeypatch.setattr(Engine, "open", opens_slowly)
    folder = run(tmp_path, cache, "trainer.steps=2")
    lines = [json.loads(line) for line in folder.timing.read_text().splitlines()][1:]
    for line in lines:
        assert line["timing_s/uncached"] >= 1000
        for name in ("step", "rollout"):
            assert 0 < line[f"timing_s/{name}"] + line["timing_s/uncached"] < 900


def test_a_run_killed_between_checkpoints_and_resumed_ends_with_the_same_bytes(finished, cache, tmp_path):
    with pytest.raises(Killed):
        run(tmp_path, cache, killed_after=3)
    resumed = run(tmp_path, cache)
    assert resumed.metrics.read_bytes() == finished.metrics.read_bytes()
    checkpoints = [folder.checkpoints / "step_00004" / "model.safetensors" for folder in (finished, resumed)]
    assert checkpoints[0].read_bytes() == checkpoints[1].read_bytes()


def test_what_other_runs_left_in_the_cache_changes_no_byte(finished, cache, tmp_path):
    """The first run finds no transitions, the second one its and those of the demonstrations, and of another seed."""
    cache = cache_without(cache, tmp_path / "cache", "imitation", "transitions")
    run(tmp_path / "other", cache, "seed=1", "trainer.steps=2")
    assert list((cache / "transitions").rglob("*.graph"))
    again = run(tmp_path / "again", cache)
    assert again.metrics.read_bytes() == finished.metrics.read_bytes()


def test_remembered_references_are_part_of_what_a_resumed_run_goes_on_with(cache, tmp_path):
    words = ["method.shaper.reference_buffer=last_success", "trainer.groups=6", "trainer.group_size=2",
             "trainer.rollouts_every=2", "model.table_rows=16384", "model.width=32",
             "model.imitation.learning_rate=1e-3"]  # fmt: skip
    undisturbed = run(tmp_path / "a", cache, *words)
    with pytest.raises(Killed):
        run(tmp_path / "b", cache, *words, killed_after=3)
    resumed = run(tmp_path / "b", cache, *words)
    assert resumed.metrics.read_bytes() == undisturbed.metrics.read_bytes()
    served = [line["step"] for line in logged(resumed) if line.get("buffer/share", 0) > 0]
    assert max(served) >= 3, "a reference from before the kill gave credit after it"
    for name in ("checkpoints/step_00004/references.json.gz", "diagnostics/rollouts_step_00004.json.gz"):
        assert (undisturbed.path / name).read_bytes() == (resumed.path / name).read_bytes()


def test_lasting_acts_are_part_of_what_a_resumed_run_goes_on_with(cache, tmp_path):
    words = ["method=crbc", "method.estimator.states=effects", "env.wordings.dose=1"]
    undisturbed = run(tmp_path / "a", cache, *words)
    with pytest.raises(Killed):
        run(tmp_path / "b", cache, *words, killed_after=3)
    resumed = run(tmp_path / "b", cache, *words)
    assert resumed.metrics.read_bytes() == undisturbed.metrics.read_bytes()
    kept = [folder.checkpoints / "step_00004" / "states.json" for folder in (undisturbed, resumed)]
    assert kept[0].read_bytes() == kept[1].read_bytes()


def test_ppo_s_critic_learns_from_states_and_resumes_with_the_same_bytes(cache, tmp_path):
    undisturbed = run(tmp_path / "a", cache, "method=ppo")
    with pytest.raises(Killed):
        run(tmp_path / "b", cache, "method=ppo", killed_after=3)
    resumed = run(tmp_path / "b", cache, "method=ppo")
    assert resumed.metrics.read_bytes() == undisturbed.metrics.read_bytes()
    assert logged(resumed)[-1]["critic/value"] != 0


def test_the_untrained_policy_is_what_training_begins_with(finished, cache, tmp_path):
    before = {key: value for key, value in logged(finished)[0].items() if key.startswith("val/")}
    untrained = logged(run(tmp_path, cache, "method=plain"))[-1]
    assert {key: untrained[key] for key in before} == before


@pytest.mark.parametrize("method", ["empg", "dapo", "hgpo"])
def test_methods_with_needs_of_their_own_train(method, cache, tmp_path):
    line = logged(run(tmp_path, cache, f"method={method}", "trainer.steps=1"))[-1]
    assert line["actor/grad_norm"] >= 0
    assert line["train/episodes"] == 12 * line["train/sampling_rounds"]


def test_an_imitation_start_with_another_weight_is_made_again(cache, tmp_path, finished):
    everyones, cache = cache, cache_without(cache, tmp_path / "cache", "imitation")
    for whole in (everyones / "imitation").glob("*/checksums.json"):
        if ".tmp-" not in whole.parent.name:  # another process is making it
            shutil.copytree(whole.parent, cache / "imitation" / whole.parent.name)
    kept = {path: path.read_bytes() for path in (cache / "imitation").glob("*/model.safetensors")}
    for path in kept:  # other tests have theirs in this cache too
        flip_a_bit(path, -9)
    assert run(tmp_path, cache, "trainer.steps=2").metrics.read_bytes() == b"".join(
        finished.metrics.read_bytes().splitlines(keepends=True)[:3]
    )
    assert sum(path.read_bytes() == whole for path, whole in kept.items()) == 1


def test_a_run_that_is_forked_from_a_process_with_open_games_logs_the_same_bytes(finished, cache, tmp_path):
    words = [*STUDY, f"machine.runs_dir={tmp_path}", f"machine.cache_dir={cache}"]
    folder = run_config.ensure(config := compose_run(words))
    with forked_runs([config] * 3, print) as begin:
        one = RunProcess.start(folder, config, ROOT / "train.py", {}, begin)
        assert isinstance(one.process, Forked)
        while one.poll() is None:
            time.sleep(0.05)
    assert one.outcome(one.poll(), interrupted=False).state is State.DONE
    assert folder.metrics.read_bytes() == finished.metrics.read_bytes()
