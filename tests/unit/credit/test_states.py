import numpy as np
import pytest

from scpo.credit.assign import assign
from scpo.errors import ScorerUnavailable
from tests.support.step_batches import (
    EqualityScorer,
    given_all,
    make_batch,
    method,
    random_batch,
    settings_of,
    shaper_config,
    take,
)


def reworded(batch):
    """Every row of the batch in words of its own; what the environment knows stays."""
    odd = [f"{text} ({row})" for row, text in enumerate(batch.anchor_N)]
    return take(
        batch, np.arange(len(batch)), is_copy_N=batch.is_copy_N, anchor_N=odd, state_N=odd,
        next_observation_N=[f"{text} now" for text in odd], next_state_N=[f"{text} now" for text in odd],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["gigpo", "hgpo", "g2po", "crbc", "graphgpo", "rewardflow", "gagpo"])
def test_the_oracle_on_reworded_texts_equals_equality_on_the_true_ones(name):
    batch = given_all(random_batch(4))
    exact, _ = assign(batch, None, method(settings_of(name), name=name))
    by_oracle, found = assign(reworded(batch), None, method(settings_of(name, states="oracle"), name=name))
    by_texts, lost = assign(reworded(batch), None, method(settings_of(name), name=name))
    assert np.array_equal(exact, by_oracle)
    assert not np.array_equal(exact, by_texts)
    assert found.metrics["states/precision"] == found.metrics["states/recall"] == 1
    assert found.metrics["states/cosine"] == pytest.approx(1)
    assert lost.metrics["states/recall"] == 0
    assert lost.metrics["states/purity"] == 1
    assert lost.metrics["anchor/alone"] == 1


def test_agreement_is_counted_over_pairs_of_rows():
    # true states of the four starts: p p p q; texts that are found equal: the first two, the last two
    batch = make_batch(
        *[(0, k, "x", 0) for k in range(4)], anchor_N=list("aabb"),
        true_anchor_N=list("pppq"), next_true_anchor_N=list("xxxx"),
    )  # fmt: skip
    metrics = assign(batch, None, method(settings_of("gigpo"), name="gigpo"))[1].metrics
    assert metrics["states/precision"] == 1 / 2
    assert metrics["states/recall"] == 1 / 3
    assert metrics["states/purity"] == 3 / 4


def test_without_the_simulators_states_there_is_nothing_to_compare_with():
    metrics = assign(random_batch(0), None, method(settings_of("gigpo", states="entities"), name="gigpo"))[1].metrics
    assert not [name for name in metrics if name.startswith("states/")]


class Gone(EqualityScorer):
    """A scorer whose process is gone for good."""

    def score(self, pairs):
        raise ScorerUnavailable("the process is gone")


def test_states_are_compared_by_equality_while_the_scorer_is_gone():
    batch = random_batch(2)
    settings = settings_of("gigpo", states="scorer")
    advantage_N, diagnostics = assign(batch, Gone(), method(settings, name="gigpo"))
    assert diagnostics.metrics["states/fell_back"] == 1
    assert np.array_equal(advantage_N, assign(batch, None, method(settings_of("gigpo"), name="gigpo"))[0])


def test_the_matcher_by_the_oracle_credits_on_reworded_texts_what_it_credits_on_true_states():
    batch = given_all(random_batch(6, longest=9))
    shaper = {"matcher": "forward", "order": "chronological"}
    plain = method(settings_of("gigpo"), shaper_config(step_text="action_next_state", **shaper))
    by_oracle = method(settings_of("gigpo"), shaper_config(states="oracle", **shaper))
    credit_N = assign(batch, EqualityScorer(), plain)[1].shaped.credit_N
    assert credit_N.any()
    assert np.array_equal(credit_N, assign(reworded(batch), EqualityScorer(), by_oracle)[1].shaped.credit_N)
    assert not assign(reworded(batch), EqualityScorer(), plain)[1].shaped.credit_N.any()
