import dataclasses

import pytest

from scpo.agents import make_agent
from scpo.diagnostics.validation_episodes import episode_metrics
from scpo.errors import EnvironmentFailure, RecordWriteError
from scpo.generation import Generation
from scpo.rollout import group_slots, rollout
from scpo.schema.agent import PlainAgent, ReflexionAgent
from scpo.trainers.evaluate.episode_records import EpisodeRecord, panel_metrics, usage_metrics
from scpo.trainers.evaluate.play import BilledGeneration, play_all
from tests.unit.test_rollout import TASKS, Countdowns, FullDisk, Guess

PLAIN = make_agent(PlainAgent(name="plain"))


class Memory:
    """Says "stop" once a note tells it to, and writes that note after its first failure."""

    max_response_tokens = 2

    def __init__(self):
        self.batches = []

    def generate(self, prompts, _temperature, _uniforms_NL):
        self.batches.append(list(prompts))
        texts = ["say STOP" if "ended without" in one else "stop" if "- say STOP" in one else "go" for one in prompts]
        return [BilledGeneration(text, (), (), (), prompt_tokens=10, response_tokens=2, cost_usd=0.5) for text in texts]


def play(policy=None, agent=PLAIN, environment=None, slots=None, *, window=99, retries=0, stop=lambda: False):
    slots = dict(enumerate(group_slots(TASKS, 3))) if slots is None else slots
    return dict(
        play_all(
            environment or Countdowns(), policy or Guess(), agent, slots, temperature=1.0, seed=4, retries=retries,
            window=window, should_stop=stop,
        )
    )  # fmt: skip


def records(plays):
    return [plays[number].record() for number in sorted(plays)]


def reflexion(trials):
    return make_agent(ReflexionAgent(name="reflexion", turns=9, trials=trials, memory=3))


def test_plain_episodes_are_those_of_a_rollout_with_the_same_seed():
    slots = group_slots(TASKS, 3)
    expected = rollout(Countdowns(), Guess(), slots, temperature=1.0, seed=(4,), retries=0)
    played = play()
    assert [[one.action for one in played[n].results] for n in range(6)] == [
        [result.action for result in trajectory.results] for trajectory in expected
    ]
    metrics = episode_metrics(expected, by_family=True)
    assert panel_metrics(records(played), reflecting=False) == pytest.approx(metrics)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_what_an_episode_samples_does_not_depend_on_the_window(window):
    policy = Guess()
    assert records(play(policy, window=window)) == records(play())
    assert max(map(len, policy.batches)) == window


def test_what_an_episode_samples_does_not_depend_on_which_were_finished_before():
    slots = dict(enumerate(group_slots(TASKS, 3)))
    later = play(slots={number: slots[number] for number in (2, 5)})
    everything = play()
    assert later.keys() == {2, 5}
    assert all(later[number].record() == everything[number].record() for number in later)


def test_a_stop_gives_out_what_is_finished():
    asked = iter([False, False, False, False, True])
    played = play(Memory(), window=2, stop=lambda: next(asked))
    assert sorted(played) == [0, 1]


def test_reflexion_stops_at_its_first_success():
    policy = Memory()
    played = play(policy, reflexion(trials=5), slots=dict(enumerate(group_slots(TASKS[:1], 1))))
    record = played[0].record()
    assert (record.won, record.attempts, record.length) == (True, 2, 1)
    kinds = [line["kind"] for line in played[0].transcript]
    assert kinds == ["act"] * 4 + ["reflect", "act"]
    assert (record.prompt_tokens, record.response_tokens, record.cost_usd) == (60, 12, 3.0)


def test_no_reflection_is_asked_for_after_the_last_attempt():
    policy = Memory()
    played = play(policy, reflexion(trials=1), slots=dict(enumerate(group_slots(TASKS[:1], 1))))
    assert not played[0].record().won
    assert [line["kind"] for line in played[0].transcript] == ["act"] * 4


def test_a_broken_environment_costs_its_attempts_steps_but_they_stay_on_the_bill():
    environment = Countdowns(broken=[2, None])
    slots = dict(enumerate(group_slots(TASKS[:1], 1)))
    played = play(Memory(), environment=environment, slots=slots, retries=1)[0]
    assert environment.started == 2
    assert (len(played.results), len(played.turns), played.attempts) == (4, 4, 1)
    assert [line["kind"] for line in played.transcript] == ["act", "act", "lost"] + ["act"] * 4
    assert (played.record().prompt_tokens, played.record().restarts) == (70, 1)


def test_an_environment_that_keeps_failing_stops_the_evaluation_and_names_the_task():
    with pytest.raises(EnvironmentFailure, match=r"train/a \(repeat 0\) failed 2 times, 1 retries .*failure_retries"):
        play(environment=Countdowns(broken=[4] * 9), slots=dict(enumerate(group_slots(TASKS[:1], 1))), retries=1)


def test_a_full_disk_stops_the_evaluation_and_is_named():
    with pytest.raises(RecordWriteError, match="train/a cannot be played: No space left"):
        play(environment=FullDisk(), slots=dict(enumerate(group_slots(TASKS[:1], 1))), retries=1)


def test_metrics_of_records_worked_by_hand():
    one = EpisodeRecord("a", "Pick", 0, True, 1.0, 2, 1, 1, 100, 10, 0.25)
    two = dataclasses.replace(one, task="b", family="Look", score=0.5, length=3, invalid=0, attempts=3, restarts=2)
    lost = dataclasses.replace(one, task="c", won=False, score=0.0, length=5, invalid=4, attempts=3)
    assert panel_metrics([one, two, lost], reflecting=True) == pytest.approx(
        {
            "success_rate": 2 / 3, "episodes": 3, "episode_length": 10 / 3, "invalid_rate": 0.5, "score": 0.5,
            "errored": 1.0, "attempts": 7 / 3, "first_success_rate": 1 / 3, "Look/success_rate": 1.0,
            "Pick/success_rate": 0.5,
        }
    )  # fmt: skip
    assert usage_metrics([one, two, lost], billed=True)["usage/cost_usd"] == 0.75
    assert "usage/cost_usd" not in usage_metrics([one], billed=False)


def test_a_local_generation_is_counted_by_its_tokens():
    class Local(Memory):
        def generate(self, prompts, _temperature, _uniforms_NL):
            return [Generation("stop", (1, 2, 3), (4,), (-0.1,)) for _ in prompts]

    record = play(Local(), slots=dict(enumerate(group_slots(TASKS[:1], 1))))[0].record()
    assert (record.prompt_tokens, record.response_tokens, record.cost_usd) == (3, 1, 0.0)
