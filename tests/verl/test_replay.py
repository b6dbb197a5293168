"""The watched replay buffer on verl's own, with a queue and processes that stand in for Ray's."""

from types import SimpleNamespace

import pytest

from scpo.errors import RolloutError
from scpo.records import JsonLines

ray = pytest.importorskip("ray", reason="needs verl: make test-verl")

from scpo.trainers.verl import replay  # noqa: E402
from scpo.trainers.verl.replay import WatchedReplayBuffer, rollout_actors  # noqa: E402


@pytest.fixture
def buffer(monkeypatch):
    """A buffer whose queue holds ``buffer.queue``; time passes by a second a look."""
    clock = SimpleNamespace(now=0.0)
    made = WatchedReplayBuffer("sync", {}, 8, "drop", {})
    made.queue = {"train": {}}
    monkeypatch.setattr(replay.time, "monotonic", lambda: clock.now)
    made._seen, made._progress_at, made._ping_at = (), 0.0, 0.0
    module = WatchedReplayBuffer.__mro__[1].__module__
    monkeypatch.setattr(f"{module}.tq.kv_list", lambda: made.queue)
    monkeypatch.setattr(f"{module}.tq.kv_clear", lambda **_: None)

    def sleep(_seconds):
        clock.now += 1.0

    monkeypatch.setattr(f"{module}.time.sleep", sleep)
    return made


def prompt(status):
    return {"is_prompt": True, "status": status, "global_steps": 3}


def test_a_finished_rollout_is_handed_over(buffer):
    buffer.queue["train"] = {"a": prompt("finished"), "a_0_0": {"status": "success"}, "a_1_0": {"status": "success"}}
    batch, _ = buffer.sample(3, "train", 1)
    assert batch.keys == ["a_0_0", "a_1_0"]


def test_a_failed_episode_stops_the_run_with_its_reason_although_rows_of_its_siblings_are_there(buffer, tmp_path):
    buffer.queue["train"] = {"a": prompt("failure"), "a_0_0": {"status": "success"}, "b": prompt("running")}
    buffer.failures = JsonLines(tmp_path / "rollout_failures.jsonl")
    buffer.failures.append({"step": 3, "task": "train/x", "reason": "EnvironmentFailure: engine died"})
    with pytest.raises(RolloutError, match=r"step 3: 1 tasks of partition 'train'.*task train/x: .*engine died"):
        buffer.sample(3, "train", 2)


def test_a_rollout_that_nothing_arrives_from_stops_the_run(buffer):
    buffer.queue["train"] = {"a": prompt("running"), "b": prompt("finished"), "b_0_0": {"status": "success"}}
    buffer.stall_s = 30.0
    with pytest.raises(RolloutError, match=r"no episode ended for 30 s .* 1 tasks finished and 1 running"):
        buffer.sample(3, "train", 2)


def test_a_slow_rollout_whose_episodes_keep_ending_goes_on(buffer, monkeypatch):
    buffer.queue["train"] = {"a": prompt("running")}
    buffer.stall_s = 5.0
    looks = iter(range(40))

    def arrive():
        look = next(looks)
        buffer.queue["train"] |= {f"a_{look}_0": {"status": "success"}}
        if look == 39:
            buffer.queue["train"]["a"] = prompt("finished")
        return buffer.queue

    monkeypatch.setattr(f"{WatchedReplayBuffer.__mro__[1].__module__}.tq.kv_list", arrive)
    batch, _ = buffer.sample(3, "train", 1)
    assert len(batch.keys) == 40


class Process:
    """An actor: ``alive`` answers at once, ``busy`` never, ``dead`` with its death."""

    def __init__(self, state):
        self.state = state
        self.__ray_ready__ = SimpleNamespace(remote=lambda: self)


def test_a_dead_process_is_named_and_a_busy_one_is_waited_for(buffer, monkeypatch):
    def get(process):
        if process.state == "dead":
            raise ray.exceptions.RayActorError()

    monkeypatch.setattr(ray, "wait", lambda pings, **_: ([one for one in pings if one.state != "busy"], []))
    monkeypatch.setattr(ray, "get", get)
    buffer.queue["train"] = {"a": prompt("running")}
    buffer.actors = rollout_actors([Process("alive"), Process("busy")], [Process("dead")])
    with pytest.raises(RolloutError, match="the rollout engine 0 died during the rollout"):
        buffer.sample(3, "train", 1)
