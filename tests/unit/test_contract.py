"""Each law holds for what is right, and its breach is named."""

import dataclasses

import numpy as np
import pytest

from scpo import contract
from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, ContractError, ScorerError, StepBatchError
from scpo.library import load_scorer
from scpo.shaping.matcher import MATCHERS, Cell, Credited, MatchTrace
from tests.support.step_batches import make_batch, measured, random_batch, settings_of, take

RLOO = ESTIMATORS["rloo"]


def broken(function, **changes):
    return dataclasses.replace(RLOO, function=function, **changes)


def check(estimator, batch=None, penalty=0.0, **settings):
    config = settings_of("rloo", invalid_penalty=penalty)
    return contract.check_estimator(estimator, config, batch or random_batch(0, copies=4), **settings)


def test_batches_that_agree_with_themselves_pass():
    assert contract.check_batch(random_batch(1, copies=5)) is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"reward_N": [0, 0, 0]}, "row 0 .*episode_return_N is 10, but the rewards of its trajectory sum up to 0"),
        ({"position_N": [0, 0, 0]}, r"row 1 .*position_N is 0, as of row 0: pass .*np.arange\(N\)"),
        ({"success_N": [False, False, True]}, "success_N is True at episode_return_N 0, but row 0 with 10 fails"),
    ],
)
def test_columns_that_contradict_each_other_are_named(columns, message):
    batch = make_batch((0, 0, "a b", 10), (0, 1, "a", 0), **columns)
    with pytest.raises(StepBatchError, match=message):
        contract.check_batch(batch)


def test_a_group_of_two_tasks_is_named():
    episodes = (0, 0, "a b", 10), (0, 1, "a", 0), (1, 2, "a", 0)
    contract.check_batch(make_batch(*episodes, task_id_N=["x", "x", "x", "y"]))
    with pytest.raises(StepBatchError, match=r"row 2 .*task_id_N is 'y', but row 1 of its group has 'x': a group is"):
        contract.check_batch(make_batch(*episodes, task_id_N=["x", "x", "y", "y"]))


def test_trajectories_without_siblings_are_a_warning():
    with pytest.warns(UserWarning, match="each of the 2 trajectories has a group of its own"):
        contract.check_batch(make_batch((0, 0, "a b", 10), (1, 1, "a", 0)))


def test_our_estimator_passes_by_name_and_as_an_entry():
    assert check("rloo") is None
    assert check(RLOO) is None


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"allowed: .*rloo"):
        check("rlo")


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (
            lambda count: [0.0] * count,
            "returned a list (as an array: float64 ({0},)), expected an array of float32 ({0},)",
        ),
        (lambda count: None, "returned None, expected an array of float32 ({0},)"),
        (np.zeros, "gave float64 ({0},), expected float32 ({0},)"),
    ],
)
def test_a_result_of_another_type_is_named(returned, what):
    batch = random_batch(0, copies=4)
    with pytest.raises(ContractError) as error:
        check(broken(lambda batch, *_: returned(len(batch))), batch)
    assert str(error.value) == "estimator 'rloo' " + what.format(len(batch))


def test_a_requirement_that_no_trainer_provides_is_refused_when_the_estimator_is_made():
    with pytest.raises(ConfigError) as error:
        dataclasses.replace(RLOO, requires=frozenset({"step_bonuss", "entropy"}))
    assert str(error.value) == (
        "estimator 'rloo' requires 'step_bonuss', which no trainer provides; did you mean step_bonus?; "
        "allowed: step_bonus, entropy, hindsight_logprob, value"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rloo", {"gamma": 1.0}, None), r"'rloo' are a dict, expected \w+: pass scpo.load_method"),
        (("rloo", settings_of("gigpo"), None), "settings of estimator 'rloo' are a "),
        (("rloo", settings_of("rloo"), [1, 2]), r"batch is a list; pass scpo.StepBatch.from_episodes"),
        ((max, settings_of("rloo"), None), "estimator <built-in function max> is not one that works on rows"),
    ],
)
def test_arguments_of_a_wrong_type_are_one_line(arguments, message):
    estimator, settings, batch = arguments
    with pytest.raises(ConfigError, match=message):
        contract.check_estimator(estimator, settings, random_batch(0) if batch is None else batch)


def test_a_function_of_three_arguments_is_one_line():
    with pytest.raises(ConfigError, match=r"'rloo' takes \(batch, r, s\), expected four arguments: \(batch, step_ret"):
        check(broken(lambda batch, r, s: r))


def test_a_wrong_type_is_named():
    with pytest.raises(ContractError, match="float64"):
        check(broken(lambda batch, r, b, s: np.zeros(len(batch))))


def add_to_bonus(batch, return_N, bonus_N, settings):
    bonus_N += 1
    return return_N


def scale_returns(batch, return_N, bonus_N, settings):
    return_N *= 3
    return return_N


def subtract_from_rewards(batch, return_N, bonus_N, settings):
    batch.reward_N[:] -= 1
    return return_N


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (add_to_bonus, r"bonus_N \+= 1"),
        (scale_returns, r"return_N \*= 3"),
        (subtract_from_rewards, r"batch.reward_N\[:\] -= 1"),
    ],
)
def test_writing_into_an_input_is_named_with_its_line(function, line):
    with pytest.raises(ContractError, match=rf"writes into one of its inputs, line \d+: `{line}` .*copy it before"):
        check(broken(function))


def set_gamma(batch, return_N, bonus_N, settings):
    settings.gamma = 1.0
    return return_N


def set_rewards(batch, return_N, bonus_N, settings):
    batch.reward_N = return_N
    return return_N


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (add_to_bonus, r"bonus_N \+= 1` .*read-only"),
        (set_gamma, r"settings.gamma = 1.0` \(gamma: Instance is frozen"),
        (set_rewards, r"batch.reward_N = return_N` \(cannot assign to field 'reward_N'"),
    ],
)
def test_writing_a_setting_a_column_or_in_a_step_term_is_named_with_its_line(function, line):
    writes = rf"estimator 'rloo' writes into one of its inputs, line \d+: `{line}.*copy it before"
    with pytest.raises(ContractError, match=f"^{writes}"):
        check(broken(function))
    with pytest.raises(ContractError, match=f"^step_term of {writes}"):
        check(broken(RLOO.function, step_term=function))


def test_a_random_or_stateful_estimator_is_named_as_such():
    """It was explained as one that depends on the order of rows."""
    random, calls = np.random.default_rng(0), []

    def drawn(batch, return_N, bonus_N, settings):
        return random.random(len(batch), np.float32)

    def counted(batch, return_N, bonus_N, settings):
        calls.append(0)
        return np.full(len(batch), len(calls), np.float32)

    for function in (drawn, counted):
        message = r"estimator 'rloo' is not deterministic: row \d+ .* in a second call with equal inputs"
        with pytest.raises(ContractError, match=f"^{message}"):
            check(broken(function))
        with pytest.raises(ContractError, match=f"^step_term of {message}"):
            check(broken(RLOO.function, step_term=function))


def test_reading_the_order_of_rows_is_named():
    with pytest.raises(ContractError, match=r"with the rows reversed .*by group_N, trajectory_N and step_N"):
        check(broken(lambda batch, r, b, s: np.arange(len(batch), dtype=np.float32)))


def test_reading_other_groups_is_named_unless_it_is_meant():
    def function(batch, return_N, bonus_N, settings):
        return batch.episode_return_N - batch.episode_return_N[batch.original_N].mean()

    with pytest.raises(ContractError, match="leaving out the other groups"):
        check(broken(function))
    check(broken(function), across_groups=True, steps_differ=True)


def separating(batch, return_N, bonus_N, settings):
    """Every step's centred place in its group, with the outcome."""
    rows = [np.flatnonzero((batch.group_N == group) & batch.original_N) for group in batch.group_N]
    term_N = batch.step_N - np.array([batch.step_N[own].mean() for own in rows])
    line = batch.timeline
    # Siblings that did the same differ in nothing.
    varied_N = np.array([len(np.unique(batch.episode_return_N[own])) > 1 for own in rows])
    return (term_N * varied_N)[line.neighbours(0)].astype(np.float32)


@pytest.mark.parametrize(
    ("step_term", "missing"),
    [
        (None, "has no step_term"),
        (lambda batch, r, b, s: np.full(len(batch), 7.0), "has a step_term that separates none"),
    ],
)
def test_separating_steps_without_a_step_term_is_named_unless_it_is_meant(step_term, missing):
    estimator = broken(separating, step_term=step_term)
    with pytest.raises(ContractError, match=rf"separates the steps of one trajectory .* and {missing}: give"):
        check(estimator)
    if step_term is None:
        check(estimator, steps_differ=True)
    check(broken(separating, step_term=separating))


@pytest.mark.parametrize("factor", [-1, 0.5, 2])
def test_a_step_term_of_wrong_sign_or_weight_is_named_unless_it_is_meant(factor):
    estimator = broken(separating, step_term=lambda *inputs: factor * separating(*inputs))
    with pytest.raises(ContractError, match=r"not what separates the steps of a trajectory: without it .* the same"):
        check(estimator)
    check(estimator, averages_terms=True)


@pytest.mark.parametrize(
    ("step_term", "complaint"),
    [
        (
            lambda batch, r, b, s: np.zeros(3),
            r"returned an array of float64 with shape \(3,\), expected one number for each row: numbers of",
        ),
        (lambda batch, r, b, s: None, "returned None, expected one number for each row: numbers of shape"),
        (lambda batch, r, b, s: np.full(len(batch), np.nan), r"row 0 .*: step_term of estimator 'rloo' is nan"),
    ],
)
def test_a_step_term_without_one_finite_number_for_each_row_is_named(step_term, complaint):
    with pytest.raises(StepBatchError, match=complaint):
        check(broken(separating, step_term=step_term))


def test_giving_a_copy_another_advantage_is_named():
    with pytest.raises(ContractError, match="a copy's original"):
        check(broken(lambda batch, r, b, s: batch.is_copy_N.astype(np.float32)))


def test_reading_the_bonus_without_saying_so_is_named():
    with pytest.raises(ContractError, match="add 'step_bonus' to requires"):
        check(broken(lambda batch, r, b, s: b))


def test_requiring_the_bonus_without_reading_it_is_named():
    message = (
        r"has 'step_bonus' in requires .* so that method=scpo method.host=rloo would have no effect: add bonus_N to"
    )
    with pytest.raises(ContractError, match=message):
        check(broken(lambda batch, r, b, s: np.zeros(len(batch), np.float32), requires=frozenset({"step_bonus"})))


def test_a_bonus_that_lowers_the_advantage_of_its_step_is_named():
    """It passed: the shaper's credit was taken away from the steps that earned it, in silence."""
    gigpo = ESTIMATORS["gigpo"]

    def flipped(function):
        return lambda batch, return_N, bonus_N, settings: function(batch, return_N, -bonus_N, settings)

    wrong = dataclasses.replace(gigpo, function=flipped(gigpo.function), step_term=flipped(gigpo.step_term))
    message = r"has the wrong sign at the bonus: row \d+ .* with a bonus of 1 at this step only, .* add bonus_N"
    with pytest.raises(ContractError, match=message):
        contract.check_estimator(wrong, settings_of("gigpo"), random_batch(0), counts_copies=True)


@pytest.mark.parametrize("batch", [random_batch(0), make_batch((0, 0, "a b", 10), (0, 1, "c d", 0), (1, 2, "a", 0))])
def test_a_bonus_that_cancels_in_a_batch_without_repeated_states_is_no_breach(batch):
    contract.check_estimator("gigpo", settings_of("gigpo"), batch)


@pytest.mark.parametrize("column", ["group_N", "trajectory_N", "position_N"])
def test_computing_with_numbers_that_are_names_is_named(column):
    def function(batch, return_N, bonus_N, settings):
        numbers_N = 0.01 * getattr(batch, column)[batch.timeline.neighbours(0)]
        return (RLOO.function(batch, return_N, bonus_N, settings) + numbers_N).astype(np.float32)

    with pytest.raises(ContractError, match=rf"the numbers in {column} tell rows apart and mean nothing else: do not"):
        check(broken(function), across_groups=True)


def test_an_advantage_over_siblings_that_did_the_same_is_named_unless_it_is_meant():
    def function(batch, return_N, bonus_N, settings):
        return batch.step_N.astype(np.float32)

    with pytest.raises(
        ContractError, match=r"five siblings took the same steps .* step 1 has .* 1, 1, 1, 1, 1, expected 0, since"
    ):
        check(broken(function))
    check(broken(function), steps_differ=True)


def test_dividing_by_the_rounding_of_equal_returns_is_named():
    def function(batch, return_N, bonus_N, settings):
        rows = [np.flatnonzero(batch.group_N == group) for group in batch.group_N]
        score = [batch.episode_return_N[it[~batch.is_copy_N[it]]] for it in rows]
        centred = [(own - it.mean()) / (it.std() + 1e-9) for own, it in zip(batch.episode_return_N, score, strict=True)]
        return np.array(centred, np.float32)

    with pytest.raises(ContractError, match=r"to the return 0.1, .* expected 0"):
        check(broken(function))


def mean_entropy(batch, return_N, bonus_N, settings):
    return batch.episode_return_N * batch.entropy_N


@pytest.mark.parametrize("batch", [random_batch(0), measured(random_batch(0))], ids=["lacking", "measured"])
def test_reading_an_optional_column_without_saying_so_is_named(batch):
    message = r"line \d+: `return batch.episode_return_N \* batch.entropy_N` .*add 'entropy' for entropy_N or"
    with pytest.raises(ContractError, match=message):
        check(broken(mean_entropy), batch)
    check(broken(mean_entropy, requires=frozenset({"entropy"})), measured(random_batch(0)), steps_differ=True)


def test_a_batch_without_a_required_column_is_refused_as_in_training():
    with pytest.raises(StepBatchError, match="estimator 'rloo' requires entropy_N, which this batch lacks"):
        check(broken(mean_entropy, requires=frozenset({"entropy"})), random_batch(0))


def test_copies_are_added_to_a_batch_without_any():
    with pytest.raises(ContractError, match="a copy's original"):
        check(broken(lambda batch, r, b, s: batch.is_copy_N.astype(np.float32)), random_batch(0))


def centred(batch, counted_N):
    """The episode return less its group's mean over the counted rows."""
    id_N = np.unique(batch.group_N, return_inverse=True)[1]
    total_G = np.bincount(id_N, batch.episode_return_N * counted_N)
    mean_G = total_G / np.bincount(id_N, counted_N)
    return (batch.episode_return_N - mean_G[id_N]).astype(np.float32)


@pytest.mark.parametrize("copies", [0, 5])
def test_statistics_that_count_copies_are_named_unless_they_are_meant(copies):
    batch = random_batch(0, copies=copies)
    counting = broken(lambda batch, r, b, s: centred(batch, np.ones(len(batch))))
    with pytest.raises(ContractError, match=r"without the copies .*batch.original_N, or pass counts_copies=True"):
        check(counting, batch)
    check(counting, batch, counts_copies=True)
    check(broken(lambda batch, r, b, s: centred(batch, batch.original_N.astype(float))), batch)


@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_a_wrong_sign_is_named_as_such_and_not_as_a_penalty(penalty):
    """It passed without a penalty, and with one was told to subtract it."""
    wrong = broken(lambda batch, r, b, s: -RLOO.function(batch, r, b, s))
    with pytest.raises(ContractError, match="has the wrong sign: a success of reward 10 gets the advantage -"):
        check(wrong, penalty=penalty, counts_copies=True)


def test_a_step_term_of_wrong_sign_is_named():
    def step_term(batch, step_return_N, bonus_N, config):
        return -RLOO.function(batch, step_return_N, bonus_N, config)

    with pytest.raises(ContractError, match=r"has the wrong sign: .* gets the step_term -"):
        check(broken(RLOO.function, step_term=step_term), counts_copies=True)


def test_a_penalty_that_has_no_effect_is_named_unless_it_is_zero():
    without = broken(lambda batch, r, b, s: centred(batch, batch.original_N.astype(float)))
    with pytest.raises(ContractError, match=r"an invalid action the advantage 6 with invalid_penalty=0.1 and 6 with"):
        check(without, penalty=0.1)
    check(without, penalty=0.0)

    def punished(batch, r, b, s):
        return without.function(batch, r, b, s) - np.float32(s.invalid_penalty) * ~batch.valid_N

    check(broken(punished), penalty=0.1)


@pytest.mark.parametrize("answer", [np.nan, None])
def test_a_group_of_one_trajectory_that_has_no_number_is_named(answer):
    """Groups of one are rare in a batch: a baseline of n - 1 siblings passed."""

    def leave_one_out(batch, r, b, s):
        if len(np.unique(batch.trajectory_N)) > 1:
            return RLOO.function(batch, r, b, s)
        return np.full(len(batch), 1 / 0 if answer is None else answer, np.float32)

    with pytest.raises(
        ContractError, match=r"'rloo', a group of one trajectory of 3 steps: .*; it has no sibling to be compared"
    ):
        check(broken(leave_one_out), counts_copies=True)


def test_a_batch_of_one_group_is_a_warning():
    with pytest.warns(UserWarning, match="the batch has one group"):
        check(RLOO, random_batch(0, groups=1))


def test_an_infinite_advantage_is_named_with_its_row():
    batch = take(random_batch(0), [0])
    with pytest.raises(ContractError, match=r"row 0 \(group"):
        check(broken(lambda batch, r, b, s: np.full(len(batch), np.inf, np.float32)), batch)


def test_each_steps_mask_gets_its_own_advantage():
    advantage_N, mask_NL = np.array([1.0, -2.0]), np.array([[1, 1, 0], [0, 1, 0]])
    contract.check_tokens(advantage_N, mask_NL, advantage_N[:, None] * mask_NL)
    with pytest.raises(ContractError, match="row 0, token 0: advantage -2, expected 1"):
        contract.check_tokens(advantage_N, mask_NL, advantage_N[::-1, None] * mask_NL)
    with pytest.raises(ContractError, match="not a response token: 0 instead of"):
        contract.check_tokens(advantage_N, mask_NL, np.repeat(advantage_N[:, None], 3, 1))
    with pytest.raises(ContractError, match="pass one row for each step"):
        contract.check_tokens(advantage_N[:1], mask_NL, advantage_N[:, None] * mask_NL)


# Scorers and matchers

PAIRS = [("open fridge", "open fridge"), ("take egg, open fridge", "open fridge"), ("go to desk", "look")]


class Answers:
    """A scorer whose scores are those of a function of the pairs of a call."""

    name = "mine"

    def __init__(self, score):
        self.score = score


@pytest.mark.parametrize("name", ["exact", "lexical"])
def test_our_scorers_pass(name):
    assert contract.check_scorer(load_scorer(name), PAIRS) is None


def counting(calls=[0]):  # noqa: B006 (the calls are kept on purpose)
    def score(pairs):
        calls[0] += 1
        return np.full(len(pairs), calls[0] / 100)

    return score


@pytest.mark.parametrize(
    ("score", "error", "message"),
    [
        (lambda pairs: [1.5] * len(pairs), ScorerError, "gave 1.5 to the pair .*expected a number in"),
        (counting(), ContractError, "scorer 'mine' gave 0.01 to the pair .*asked again for the same pairs"),
        (lambda pairs: np.linspace(0, 1, len(pairs)), ContractError, "and 1 when it was asked in the opposite order"),
        (lambda pairs: [1 / len(pairs)] * len(pairs), ContractError, "and 1 when it was asked for one pair at a time"),
    ],
)
def test_a_broken_scorer_is_named_with_the_pair(score, error, message):
    with pytest.raises(error, match=message):
        contract.check_scorer(Answers(score), PAIRS)


def test_rounding_within_the_tolerance_is_allowed_and_equal_scores_are_a_warning():
    rounding = Answers(lambda pairs: [0.5 + 1e-4 * len(pairs)] * len(pairs))
    with pytest.raises(ContractError, match="allowed is a difference of 1e-06"):
        contract.check_scorer(rounding, PAIRS)
    with pytest.warns(UserWarning, match="gave 0.5003 to each of the 3 pairs"):
        contract.check_scorer(rounding, PAIRS, tolerance=1e-3)
    with pytest.raises(ContractError, match="pairs has 1 pairs of step texts; expected two or more"):
        contract.check_scorer(rounding, PAIRS[:1])


@pytest.mark.parametrize("name", sorted(MATCHERS))
def test_our_matchers_pass(name):
    assert contract.check_matcher(name) is None


def first_step(compare=lambda score, theta: score >= theta, similarity=float, needed=1):
    """A matcher that credits the first reference step, once ``needed`` failed steps have matched it."""

    def matcher(rule, m, order):
        walk, matches = [], 0
        for v in order:
            score = yield Cell("failed", 0, v)
            matches += bool(compare(score, rule.theta))
            walk.append((v, 0 if matches else -1))
            if matches == needed:
                return MatchTrace(tuple(walk), (Credited(0, v, similarity(score), float(rule.credit(score))),))
        return MatchTrace(tuple(walk), ())

    return matcher


def swapped(m, order, rule):
    yield Cell("failed", 0, order[0])
    return MatchTrace((), ())


def test_a_matcher_of_ones_own_passes(monkeypatch):
    monkeypatch.setitem(MATCHERS, "mine", first_step())
    assert contract.check_matcher("mine") is None
    monkeypatch.setitem(MATCHERS, "mine", first_step(needed=2))
    assert contract.check_matcher("mine", longer=True) is None


def sorting(rule, m, order):
    order.sort()
    return (yield from MATCHERS["kmp"](rule, m, order))


@pytest.mark.parametrize(
    ("matcher", "message"),
    [
        (first_step(needed=2), "θ = 0.3 earned 0; expected is rule.credit.*or pass longer=True"),
        (first_step(lambda score, theta: score > theta), "Compare with score >= rule.theta"),
        (
            first_step(lambda score, theta: score >= theta or score > 0.2),
            r"credited Credited.*but the similarities of step \d to the \d reference steps are at most 0.25, below θ",
        ),
        (first_step(similarity=lambda score: 0.5), "credited Credited.*whose similarity is .*return the score"),
        # It passed, and failed in a run, where the order is a tuple.
        (sorting, r"failed with a reference of .*AttributeError: 'tuple' object has no attribute 'sort'"),
        (swapped, r"failed with a reference of .*TypeError: .* It is called as f\(rule, m, order\)"),
    ],
)
def test_a_broken_matcher_is_named_with_the_law(matcher, message, monkeypatch):
    monkeypatch.setitem(MATCHERS, "mine", matcher)
    with pytest.raises(ContractError, match=f"matcher 'mine'.*{message}"):
        contract.check_matcher("mine")


def test_a_matcher_that_remembers_is_named(monkeypatch):
    seen = []

    def remembering(rule, m, order):
        seen.append(order)
        if len(seen) % 2:
            return (yield from MATCHERS["kmp"](rule, m, order))
        return (yield from MATCHERS["forward"](rule, m, order))

    monkeypatch.setitem(MATCHERS, "mine", remembering)
    with pytest.raises(ContractError, match="for the same similarities: keep nothing from one call to the next"):
        contract.check_matcher("mine")
    with pytest.raises(ConfigError, match="matcher 'unknown' is unknown"):
        contract.check_matcher("unknown")
