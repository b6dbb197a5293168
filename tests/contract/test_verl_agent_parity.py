"""Our estimators against verl-agent's own code at commit 796ed31; `pytest -s` prints rows and distances.

Against its recorded answers always, and against the code itself where VERL_AGENT names a checkout of it.

In float64 both must agree to 1e-5 in every row. In the stack's own float32 that cannot be asked for: a value x in a
group of standard deviation s is known to about 6e-8 |x| / s, which is 0.06 at |x| = 10 and the smallest s that is
compared. There the distances are printed, and bounded loosely.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from scpo.advantages.gae import gae
from scpo.advantages.outcomes import row_scores
from scpo.advantages.registry import ESTIMATORS
from tests.support.parity import BOUND, MODES, SMALLEST_STD, Distance, spread, tokens
from tests.support.step_batches import (
    settings_of,
    take,
)
from tests.support.verl_agent import verl_agent


@pytest.fixture(params=["recorded-float64", "recorded-float32", "code-float64", "code-float32"])
def stack(request, monkeypatch):
    source, precision = request.param.split("-")
    with verl_agent(source, precision, monkeypatch) as stack:
        yield stack


def without_copies(case):
    return case.rows(np.flatnonzero(~case.batch.is_copy_N))


def in_time_order(case):
    return case.rows(np.lexsort((case.batch.step_N, case.batch.trajectory_N)))


def test_step_returns(stack):
    distance = Distance("returns", stack)
    for mixed in stack.cases(40):
        case = in_time_order(without_copies(mixed))
        columns = {
            "rewards": case.batch.reward_N,
            "traj_uid": case.batch.trajectory_N,
            "active_masks": np.ones(len(case.batch)),
        }

        def returns(theirs, columns=columns):
            data = SimpleNamespace(non_tensor_batch=columns, batch={"input_ids": theirs.torch.zeros(1)})
            return theirs.gigpo.compute_step_discounted_returns(data, 0.95)

        distance.add(case.return_N, stack.answer(f"returns/{case.number}", returns))
    assert distance.report() <= BOUND[stack.precision]


def outcome_advantage(stack, name, case, score_N, **settings):
    """Of RLOO or GRPO, which read nothing but scores, groups and trajectories."""
    batch, estimator = case.batch, name.split()[0]

    def compute(theirs):
        function = getattr(theirs.core, f"compute_{estimator}_outcome_advantage")
        given = (*tokens(theirs, score_N, stack.precision), batch.group_N, batch.trajectory_N)
        return function(*given, **settings)[0][:, -1]

    return stack.answer(f"{name}/{case.number}", compute)


@pytest.mark.parametrize("name", ["rloo", "grpo mean_std_norm", "grpo mean_norm"])
def test_rloo_and_grpo_over_rows(stack, name):
    distance = Distance(name, stack)
    estimator, _, mode = name.partition(" ")
    settings = settings_of(estimator, std_floor=0.0, **({"normalisation": mode} if mode else {}))
    norm = {"norm_adv_by_std_in_grpo": mode == "mean_std_norm"} if mode else {}
    for case in stack.cases(40):
        score_N = row_scores(case.batch, settings)
        ours_N = ESTIMATORS[estimator].function(case.batch, case.return_N, case.bonus_N, settings)
        theirs_N = outcome_advantage(stack, name, case, score_N, **norm)
        distance.add(ours_N, theirs_N, spread(score_N, case.batch.group_N) >= SMALLEST_STD)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("estimator", ["rloo", "grpo"])
def test_statistics_over_trajectories(stack, estimator):
    """All rows valid: the stack takes a trajectory's score from its first row."""
    name = f"{estimator} trajectories"
    distance = Distance(name, stack)
    settings = settings_of(estimator, std_floor=0.0, statistics="trajectories")
    for mixed in stack.cases(40):
        rows = np.arange(len(mixed.batch))
        case = mixed._replace(batch=take(mixed.batch, rows, valid_N=np.ones(len(rows), dtype=bool)))
        score_N = case.batch.episode_return_N
        ours_N = ESTIMATORS[estimator].function(case.batch, case.return_N, case.bonus_N, settings)
        theirs_N = outcome_advantage(stack, name, case, score_N, compute_mean_std_cross_steps=False)
        distance.add(ours_N, theirs_N, spread(score_N, case.batch.group_N) >= SMALLEST_STD)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("anchors", ["exact", "similar"])
def test_gigpo(stack, mode, anchors):
    name = f"gigpo {mode} {anchors}"
    distance = Distance(name, stack)
    similar = anchors == "similar"
    settings = settings_of("gigpo", std_floor=0.0, normalisation=mode, anchors=anchors, anchor_similarity=0.97)
    for case in stack.cases(10 if similar else 40):
        order = np.arange(len(case.batch))  # similar anchors are grouped in the order of the batch
        texts = [f"you are in room {anchor} with lamp {anchor}" for anchor in case.batch.anchor_N]
        batch = take(case.batch, order, anchor_N=texts, position_N=order)
        score_N, step_N = row_scores(batch, settings), case.return_N.astype(stack.precision) + case.bonus_N

        def groups(theirs, batch=batch):
            names = list(theirs.gigpo.build_step_group(batch.anchor_N, batch.group_N, similar, 0.97))
            number = {name: place for place, name in enumerate(dict.fromkeys(names))}  # the names are random
            return [number[name] for name in names]

        def advantage(theirs, batch=batch, score_N=score_N, step_N=step_N):
            scores_NL, mask_NL = tokens(theirs, score_N, stack.precision)
            return theirs.gigpo.compute_gigpo_outcome_advantage(
                scores_NL, theirs.torch.tensor(step_N), mask_NL, batch.anchor_N, batch.group_N, batch.trajectory_N,
                mode=mode, enable_similarity=similar, similarity_thresh=0.97,
            )[0][:, -1]  # fmt: skip

        group_N = stack.answer(f"{name} groups/{case.number}", groups)
        ours_N = ESTIMATORS["gigpo"].function(batch, case.return_N, case.bonus_N, settings)
        spreads = (spread(score_N, batch.group_N), spread(step_N, group_N))
        theirs_N = stack.answer(f"{name}/{case.number}", advantage)
        distance.add(ours_N, theirs_N, np.minimum(*spreads) >= SMALLEST_STD)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("base_group", [False, True])
def test_hgpo_with_the_codes_weights(stack, mode, base_group):
    """In time order and without copies, as its recipe has them."""
    name = f"hgpo {mode}{' base group' * base_group}"
    distance = Distance(name, stack)
    for mixed in stack.cases(40):
        case = in_time_order(without_copies(mixed))
        batch = case.batch
        for context in (0, 2, 4):
            settings = settings_of(
                "hgpo", std_floor=0.0, normalisation=mode, weights="code", base_group=base_group, context=context
            )
            score_N = row_scores(batch, settings)

            def advantage(theirs, case=case, score_N=score_N, context=context):
                scores_NL, mask_NL = tokens(theirs, score_N, stack.precision)
                step_N = theirs.torch.tensor(case.return_N.astype(stack.precision) + case.bonus_N)
                return theirs.hgpo.compute_hgpo_outcome_advantage(
                    scores_NL, step_N, mask_NL, case.batch.anchor_N, case.batch.group_N, case.batch.trajectory_N,
                    context, mode=mode, base_group=base_group,
                )[0][:, -1]  # fmt: skip

            ours_N = ESTIMATORS["hgpo"].function(batch, case.return_N, case.bonus_N, settings)
            kept_N = spread(score_N, batch.group_N) >= SMALLEST_STD if base_group else True
            distance.add(ours_N, stack.answer(f"{name} context {context}/{case.number}", advantage), kept_N)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 1.0), (0.99, 0.95)])
def test_gae(stack, gamma, gae_lambda):
    name = f"gae gamma {gamma} lambda {gae_lambda}"
    distance = Distance(f"{name} (tokens)", stack)
    for number, given in stack.tokens(40):

        def both(theirs, given=given):
            arrays = (theirs.torch.tensor(array.astype(stack.precision)) for array in given)
            return np.stack(
                [part.numpy() for part in theirs.core.compute_gae_advantage_return(*arrays, gamma, gae_lambda)]
            )

        theirs = stack.answer(f"{name}/{number}", both)
        for one, other in zip(gae(*given, settings_of("gae", gamma=gamma, gae_lambda=gae_lambda)), theirs, strict=True):
            distance.add(one[given.mask_NL], other[given.mask_NL])
    assert distance.report() <= BOUND[stack.precision]
