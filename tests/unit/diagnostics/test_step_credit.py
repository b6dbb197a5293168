from dataclasses import replace

import numpy as np
import pytest

from scpo.credit.assign import assign
from scpo.diagnostics import step_credit as measure
from scpo.diagnostics.step_credit import (
    credited_rows,
    helping_steps,
    judge_of,
    step_credit,
    step_credited,
    tally,
    with_states,
)
from scpo.errors import ConfigError, RecordError, StepBatchError
from tests.support.step_batches import EqualityScorer, make_batch, method, settings_of, shaper_config, take

GIGPO = method(settings_of("gigpo"), name="gigpo")
SCPO = method(settings_of("gigpo"), shaper_config(order="chronological"))


class Countdown:
    """Five steps from won; "on" is a step nearer, "lost" has no way out. Answers as ``make_batch`` writes them."""

    families = ()

    def panel(self, name): ...

    def start(self, task, slot): ...

    def remaining_plan(self, task, actions):
        return None if "lost" in actions else 5 - list(actions).count("on")

    def replay(self, task, actions):
        return [f"now {action}" for action in actions], [f"{task.id}: {n}" for n in range(len(actions) + 1)]


# group 0: both; group 1: only failures; group 2: both, with an unknown end
BATCH = make_batch(
    (0, 0, "on on", 1), (0, 1, "on wait on", 0), (1, 2, "on", 0), (2, 3, "on", 1), (2, 4, "wait lost on", 0)
)


def test_failed_steps_beside_a_success_are_judged_by_the_plans_around_them():
    helping = helping_steps(Countdown(), BATCH)
    assert BATCH.action_N[helping.row_S].tolist() == ["on", "wait", "on", "wait"]
    assert helping.group_S.tolist() == [0, 0, 0, 2]
    assert helping.helps_S.tolist() == [True, False, True, False]
    assert helping.unknown == 2


def test_counts_and_shares_by_hand():
    helping = helping_steps(Countdown(), BATCH)
    credited_N = np.isin(np.arange(len(BATCH)), [helping.row_S[0], helping.row_S[1], 0])  # row 0 is of a success
    counts = tally(helping, credited_N)
    assert counts.tolist() == [[3, 2, 2, 1], [1, 0, 0, 0]]  # steps, helping, credited, both
    found = step_credit([counts, counts])
    assert (found.precision.value, found.recall.value, found.share.value) == (1 / 2, 1 / 2, 1 / 2)
    assert found.gain.value == 1 / 2 - 2 / 4
    assert (found.steps, found.credited, found.clusters) == (8, 4, 4)


def test_intervals_hold_the_value_and_come_of_whole_groups():
    alike = [np.array([[10, 5, 4, 2]] * 20)]
    found = step_credit(alike)
    assert found.precision == (0.5, 0.5, 0.5), "equal groups leave nothing to vary"
    apart = step_credit([np.array([[10, 5, 4, 4]] * 10 + [[10, 5, 4, 0]] * 10)])
    assert apart.precision.low < 0.35
    assert apart.precision.value == 0.5
    assert apart.precision.high > 0.65
    assert apart == step_credit([np.array([[10, 5, 4, 4]] * 10 + [[10, 5, 4, 0]] * 10)])


def test_a_rule_that_credits_nothing_has_no_precision():
    found = step_credit([np.array([[10, 5, 0, 0]] * 3)])
    assert np.isnan(found.precision).all()
    assert (found.recall.value, found.share.value) == (0, 0)


def test_rollouts_without_a_mixed_group_are_refused():
    with pytest.raises(ConfigError, match="nothing to judge"):
        step_credit([])


def test_what_is_credited_by_shaper_advantage_and_step_term():
    # the failure shares its first state with the success and follows it; its last state is its own
    batch = make_batch((0, 0, "a b", 10), (0, 1, "a x", 0), (0, 2, "a x", 0))
    scorer = EqualityScorer()
    assert credited_rows(batch, SCPO, scorer, (0, 1), "credit").tolist() == [False, False, True, False, True, False]
    by_mean = method(settings_of("gigpo", normalisation="mean_norm"), shaper_config(order="chronological"))
    assert credited_rows(batch, by_mean, scorer, (0, 1), "raised").tolist() == [False, False, True, False, True, False]
    assert not credited_rows(batch, SCPO, scorer, (0, 1), "raised").any(), "divided by the deviation, two equals stay"
    assert credited_rows(batch, GIGPO, None, (0, 1), "step_term").tolist() == [True, True, *[False] * 4]


def test_the_step_term_is_that_of_the_identity_that_training_had():
    # An identity that reads the scorer, and one that remembers earlier steps: neither can be had again afterwards.
    batch = make_batch((0, 0, "a b", 10), (0, 1, "a x", 0), (0, 2, "a x", 0))
    by_scorer = method(settings_of("gigpo", states="scorer"), name="gigpo")
    _, diagnostics = assign(batch, EqualityScorer(), by_scorer)
    assert step_credited(diagnostics, by_scorer).tolist() == [True, True, *[False] * 4]
    joined = replace(diagnostics, step_term_N=np.array([1, 0, 0, 0, 1e-12, 2.0]))
    assert step_credited(joined, by_scorer).tolist() == [True, *[False] * 4, True]


@pytest.mark.parametrize("what", ["credit", "raised"])
def test_a_method_without_a_shaper_has_no_credit_of_one(what):
    with pytest.raises(ConfigError, match=f"method 'gigpo' has no {what}"):
        credited_rows(BATCH, GIGPO, None, (0, 1), what)


def test_an_outcome_alone_is_no_step_credit():
    with pytest.raises(ConfigError, match="method 'grpo' has no step_term"):
        credited_rows(BATCH, method(settings_of("grpo"), name="grpo"), None, (0, 1), "step_term")


@pytest.mark.parametrize("name", measure.WITH_STEP_TERM)
def test_advantages_of_siblings_with_one_outcome_differ_by_the_step_term_alone(name):
    config = method(settings_of(name, state_key="anchor"), name=name)
    batch = make_batch((0, 0, "a b c", 10), (0, 1, "a c", 10), (0, 2, "a b b", 0), (0, 3, "c", 0))
    advantage_N, diagnostics = assign(batch, None, config)
    rest_N = advantage_N - diagnostics.step_term_N
    for outcome in (True, False):
        assert np.ptp(rest_N[batch.success_N == outcome]) < 1e-5


def test_states_come_from_playing_the_actions_again():
    batch = with_states(Countdown(), BATCH)
    assert batch.state_N[:2].tolist() == ["game 0: 0", "game 0: 1"]
    assert batch.next_state_N[:2].tolist() == ["game 0: 1", "game 0: 2"]
    assert with_states(Countdown(), batch) is batch


def test_other_games_than_those_that_were_played_are_refused():
    answers = BATCH.next_observation_N.copy()
    answers[3] = "something else"
    with pytest.raises(RecordError, match="game 0, step 1: 'wait' was answered 'something else' when it was recorded"):
        with_states(Countdown(), take(BATCH, np.arange(len(BATCH)), next_observation_N=answers))


def test_rollouts_without_task_ids_are_refused():
    with pytest.raises(StepBatchError, match="needs task_id_N"):
        helping_steps(Countdown(), take(BATCH, np.arange(len(BATCH)), task_id_N=None))


def test_an_environment_without_plans_is_refused():
    with pytest.raises(ConfigError, match="object knows no plans"):
        judge_of(object())
    assert judge_of(judge := Countdown()) is judge
