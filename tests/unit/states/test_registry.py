import numpy as np
import pytest

from scpo.advantages.outcomes import step_returns
from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, StepBatchError
from scpo.states.identity import Identity
from scpo.states.registry import IDENTITIES, find_identity, identify
from tests.support.step_batches import EqualityScorer, given_all, random_batch, settings_of, take

TEXT_ONLY = [name for name, entry in IDENTITIES.items() if not entry.requires]
BATCH_WIDE = {"history", "learned", "effects"}  # what lasts is counted over the batch


def same_state(ids, group_N):
    """The relation itself: numbers may differ where the states are the same."""
    return (ids.source_N[:, None] == ids.source_N) & (group_N[:, None] == group_N)


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize("key", ["anchor", "state"])
def test_the_states_do_not_depend_on_the_order_of_rows_and_copies_have_their_originals(name, key):
    batch = given_all(random_batch(3, copies=5))
    rows = np.random.default_rng(0).permutation(len(batch))
    permuted = take(batch, rows, is_copy_N=batch.is_copy_N[rows])
    ids = identify(batch, key, IDENTITIES[name], EqualityScorer())
    moved = identify(permuted, key, IDENTITIES[name], EqualityScorer())
    assert np.array_equal(same_state(ids, batch.group_N)[np.ix_(rows, rows)], same_state(moved, permuted.group_N))
    for row in np.flatnonzero(batch.is_copy_N):
        twins = (batch.trajectory_N == batch.trajectory_N[row]) & (batch.step_N == batch.step_N[row])
        assert len(set(ids.source_N[twins].tolist())) == len(set(ids.target_N[twins].tolist())) == 1


@pytest.mark.parametrize("name", [name for name in IDENTITIES if name not in BATCH_WIDE])
def test_groups_do_not_see_each_other(name):
    batch = given_all(random_batch(5, groups=2))
    alone = np.flatnonzero(batch.group_N == 1)
    together = identify(batch, "state", IDENTITIES[name], EqualityScorer())
    apart = identify(take(batch, alone), "state", IDENTITIES[name], EqualityScorer())
    expected = same_state(apart, batch.group_N[alone])
    assert np.array_equal(same_state(together, batch.group_N)[np.ix_(alone, alone)], expected)


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_step_leads_to_the_state_that_the_next_one_starts_from(name):
    batch = given_all(random_batch(1))
    ids, next_N = identify(batch, "state", IDENTITIES[name], EqualityScorer()), batch.timeline.neighbours(1)
    goes_on = next_N >= 0
    assert np.array_equal(ids.target_N[goes_on], ids.source_N[next_N[goes_on]])


@pytest.mark.parametrize("name", [name for name in TEXT_ONLY if name not in {"closure", *BATCH_WIDE}])
@pytest.mark.parametrize("key", ["anchor", "state"])
def test_equal_texts_are_one_state_under_every_identity(name, key):
    batch = given_all(random_batch(2))
    text_N = batch.anchor_N if key == "anchor" else batch.state_N
    equal = (text_N[:, None] == text_N) & (batch.group_N[:, None] == batch.group_N)
    assert (same_state(identify(batch, key, IDENTITIES[name]), batch.group_N) >= equal).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [("facts", r"states=facts needs facts_N .*use states=history"), ("oracle", "needs true_anchor_N")],
)
def test_what_a_batch_lacks_is_missed_by_name(name, message):
    with pytest.raises(StepBatchError, match=message):
        identify(random_batch(0), "anchor", IDENTITIES[name])


def test_a_missing_scorer_is_named():
    with pytest.raises(ConfigError, match="states=scorer compares states with the run's scorer: got None"):
        identify(random_batch(0), "anchor", IDENTITIES["scorer"])


@pytest.mark.parametrize(
    ("name", "threshold", "message"),
    [
        (
            "entitys",
            None,
            r"states='entitys' is no identity of states; did you mean entities\? Allowed: exact, .*scpo.new identity",
        ),
        ("exact", 0.5, "states_threshold=0.5 is not read by states=exact"),
    ],
)
def test_what_no_identity_reads_is_refused(name, threshold, message):
    with pytest.raises(ConfigError, match=message):
        find_identity(name, threshold)


COMPARING = [name for name, entry in ESTIMATORS.items() if "states" in entry.settings.model_fields]


@pytest.mark.parametrize("estimator", COMPARING)
def test_an_identity_that_agrees_with_equality_gives_the_same_advantages(estimator):
    batch = given_all(random_batch(7, copies=4))
    settings = settings_of(estimator, state_key="anchor")
    return_N, zero_N = step_returns(batch, settings.gamma), np.zeros(len(batch), np.float32)
    plain, by_oracle, by_names = (
        ESTIMATORS[estimator].function(
            batch, return_N, zero_N, settings_of(estimator, state_key="anchor", states=states)
        )
        for states in ("exact", "oracle", "entities")
    )
    assert np.array_equal(plain, by_oracle)  # truth is the texts themselves here
    assert not np.array_equal(plain, by_names)  # texts without a name are all one state: the setting is read


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (lambda visits: None, "None"),
        (lambda visits: np.zeros(1, int), r"int64 with shape \(1,\)"),
        (lambda visits: np.zeros(len(visits.row_M) + 1, int), "int64 with shape"),  # was cut without a word
        (lambda visits: np.zeros(len(visits.row_M)), "float64 with shape"),
        (lambda visits: visits.text_M, "with shape"),
    ],
)
def test_an_identity_of_ones_own_with_a_wrong_answer_is_named(answer, got):
    wrong = Identity("mine", "Mine", lambda visits, comparison: answer(visits))
    with pytest.raises(StepBatchError, match=rf"identity of states 'mine' returned .*{got}.*expected one label"):
        identify(random_batch(1), "anchor", wrong)
