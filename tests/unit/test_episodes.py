import warnings

import numpy as np
import pytest

import scpo
from scpo.errors import StepBatchError


def episode(*actions, group="a", reward=0.0, **settings):
    steps = [scpo.Step(f"before {action}", action) for action in actions[:-1]]
    return scpo.Episode(group, [*steps, scpo.Step("last", actions[-1], "end", reward)], **settings)


def test_all_columns_follow_from_the_episodes():
    batch = scpo.StepBatch.from_episodes(
        [episode("x", "y", reward=1.0), episode("z"), episode("w", group="b", won=True)]
    )
    assert batch.group_N.tolist() == [0, 0, 0, 1]
    assert batch.trajectory_N.tolist() == [0, 0, 1, 2]
    assert batch.step_N.tolist() == [0, 1, 0, 0]
    assert batch.next_observation_N.tolist() == ["last", "end", "end", "end"]
    assert batch.episode_return_N.tolist() == [1, 1, 0, 0]
    assert batch.success_N.tolist() == [True, True, False, False]
    assert batch.won_N.tolist() == [True, True, False, True]
    assert batch.position_N.tolist() == [0, 1, 2, 3]
    assert batch.task_N.tolist() == ["a", "a", "a", "b"]
    assert batch.entropy_N is None


def test_the_threshold_is_what_a_return_must_exceed():
    batch = scpo.StepBatch.from_episodes([episode("x", reward=0.5)], success_above=0.5)
    assert not batch.success_N.any()


def test_measured_columns_are_taken_where_they_are_given():
    steps = [scpo.Step("a", "x", entropy=0.5, hindsight_logprob=-1.0), scpo.Step("b", "y", "c", entropy=0.25)]
    batch = scpo.StepBatch.from_episodes([scpo.Episode(0, steps)])
    assert batch.entropy_N.tolist() == [0.5, 0.25]
    assert batch.hindsight_logprob_N[0] == -1
    assert np.isnan(batch.hindsight_logprob_N[1])


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "no episodes"),
        ([{"group": 1}], r"episode 0 is a dict; pass scpo.Episode\(group"),
        ([scpo.Episode("a", [])], "episode 0 .* has no steps"),
        ([scpo.Episode("a", [("x", "y")])], r"step 0 is a tuple; pass\s+scpo.Step\(observation"),
        ([scpo.Episode("a", [scpo.Step("x", "y")])], "step 0, its last: next_observation is missing"),
        ([episode("x", reward=1.0, episode_return=10.0)], "episode_return is 10, but its rewards sum up to 1"),
        ([scpo.Episode("a", [scpo.Step("x", "y", "z")], won="no")], r"episode 0 .*: won is 'no', expected True, False"),
        ([scpo.Episode("a", [scpo.Step("x", "y", "z", reward="1")])], "step 0: reward is '1', expected a number"),
        ([scpo.Episode("a", [scpo.Step(None, "y", "z")])], "step 0: observation is 'None' of type NoneType"),
        ([scpo.Episode("a", [scpo.Step("x", 3, "z")])], "step 0: action is '3' of type int, expected a str"),
        ([scpo.Episode("a", [scpo.Step("x", "y", {})])], "step 0: next_observation is '{}' of type dict"),
        ([scpo.Episode(["a"], [scpo.Step("x", "y", "z")])], "groups are compared by this value, so pass a text"),
        ([scpo.Episode(None, [scpo.Step("x", "y", "z")])], "group None.*groups are compared by this value, so"),
        (episode("x"), "episodes is a Episode; pass a list of scpo.Episode"),
        ((episode(action) for action in "xy"), "episodes is a generator; pass a list"),
        ([scpo.Episode("a", scpo.Step("x", "y", "z"))], "steps is a Step; pass a list of scpo.Step"),
    ],
)
def test_a_wrong_episode_is_named_with_what_to_pass(episodes, message):
    with pytest.raises(StepBatchError, match=message):
        scpo.StepBatch.from_episodes(episodes)


def test_states_are_those_of_the_steps_and_the_last_step_says_where_it_led():
    steps = [scpo.Step("a", "go", state="s0"), scpo.Step("b", "go", "c", state="s1", next_state="s2")]
    batch = scpo.StepBatch.from_episodes([scpo.Episode("task", steps)])
    assert (batch.state_N.tolist(), batch.next_state_N.tolist()) == (["s0", "s1"], ["s1", "s2"])
    with pytest.raises(StepBatchError, match=r"StepBatch\.next_state_N: row 1 holds None"):
        scpo.StepBatch.from_episodes([scpo.Episode("task", [steps[0], scpo.Step("b", "go", "c", state="s1")])])
    assert scpo.StepBatch.from_episodes([scpo.Episode("task", [scpo.Step("a", "go", "b")])]).state_N is None


def test_a_threshold_of_success_is_a_number():
    with pytest.raises(StepBatchError, match="success_above is nan, expected a finite return"):
        scpo.StepBatch.from_episodes([episode("x", reward=1.0)], success_above=float("nan"))


def test_partial_scores_that_count_as_success_are_mentioned_once():
    episodes = [episode("x", reward=0.6), episode("x", reward=0.2), episode("x", reward=0.0)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):  # two training steps, from one line
            batch = scpo.StepBatch.from_episodes(episodes)
    assert batch.success_N[batch.episode_return_N > 0].all()
    (warning,) = caught
    assert "pass success_above=" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize(("rewards", "given"), [((0.6, 0.2), {"success_above": 0.0}), ((1.0, 1.0, 0.0), {})])
def test_returns_that_are_meant_or_agree_are_not_mentioned(rewards, given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = scpo.StepBatch.from_episodes([episode("x", reward=reward) for reward in rewards], **given)
    assert batch.success_N.tolist() == [reward > 0 for reward in rewards]
