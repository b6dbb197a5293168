"""Our estimators against verl-agent's own code at commit 796ed31; `pytest -s` prints rows and distances.

In float64 both must agree to 1e-5 in every row. In the stack's own float32 that cannot be asked for: a value x in a
group of standard deviation s is known to about 6e-8 |x| / s, which is 0.06 at |x| = 10 and the smallest s that is
compared. There the distances are printed, and bounded loosely.
"""

import contextlib
import io
from types import SimpleNamespace

import numpy as np
import pytest

from scpo.advantages import ESTIMATORS
from scpo.advantages.gae import gae
from scpo.advantages.returns import step_returns
from scpo.advantages.scores import row_scores
from tests.support.step_batches import (
    gae_settings,
    gigpo_settings,
    grpo_settings,
    hgpo_settings,
    noise,
    random_batch,
    rloo_settings,
    take,
)
from tests.support.verl_agent import load_stack

MODES = ("mean_std_norm", "mean_norm")
SMALLEST_STD = 1e-5
BOUND = {"float64": 1e-5, "float32": 5e-4}


@pytest.fixture(params=["float64", "float32"])
def stack(request, monkeypatch):
    torch = pytest.importorskip("torch")
    modules = load_stack(request.param, monkeypatch)
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, request.param))
    yield SimpleNamespace(precision=request.param, dtype=np.dtype(request.param), torch=torch, **vars(modules))
    torch.set_default_dtype(before)


def batches(*, count=40, copies=True):
    """Rewards of 0 and 10, invalid steps, a bonus with the invalid penalty in it, as the stack has them."""
    for seed in range(count):
        small = random_batch(seed, groups=6, siblings=8, longest=20, copies=seed % 12 * copies, states="abcdefgh")
        ten = np.float32(10)
        batch = take(
            small, np.arange(len(small)),
            reward_N=small.reward_N * ten, episode_return_N=small.episode_return_N * ten, success_N=small.success_N,
        )  # fmt: skip
        bonus_N = noise(batch, seed) * (noise(batch, seed + 1) > 0.5) - 0.1 * ~batch.valid_N
        yield batch, step_returns(batch, 0.95), bonus_N.astype(np.float32)


def tokens(stack, value_N, length=3):
    """The stack's token-level scores: the row's value at its last token."""
    scores_NL = stack.torch.zeros(len(value_N), length)
    scores_NL[:, -1] = stack.torch.tensor(value_N.astype(stack.dtype))
    return scores_NL, stack.torch.ones(len(value_N), length)


def quietly(function, *args, **kwargs):
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*args, **kwargs)


def spread(value_N, id_N):
    """The standard deviation of each row's group; groups of one are not normalised and count as spread."""
    std_N = np.ones(len(value_N))
    for group in set(id_N):
        rows = np.flatnonzero(np.asarray(id_N) == group)
        if len(rows) > 1:
            std_N[rows] = np.std(value_N[rows].astype(np.float64), ddof=1)
    return std_N


class Distance:
    """The largest difference over all rows that were compared."""

    def __init__(self, name, stack):
        self.name, self.precision, self.rows, self.largest = name, stack.precision, 0, 0.0

    def add(self, ours_N, theirs_N, kept_N=True):
        kept_N = np.broadcast_to(kept_N, ours_N.shape)
        self.rows += int(kept_N.sum())
        self.largest = max(self.largest, float(np.abs(ours_N - theirs_N)[kept_N].max(initial=0)))

    def report(self):
        """Print it for the record, and return it; of too few rows it would say nothing."""
        print(f"{self.name:40} {self.precision} {self.rows:7} rows {self.largest:.1e}")  # noqa: T201 - the record
        return self.largest if self.rows > 1000 else np.inf


def test_step_returns(stack):
    distance = Distance("returns", stack)
    for batch, return_N, _ in batches(copies=False):
        rows = np.lexsort((batch.step_N, batch.trajectory_N))
        timed = take(batch, rows)
        columns = {"rewards": timed.reward_N, "traj_uid": timed.trajectory_N, "active_masks": np.ones(len(timed))}
        data = SimpleNamespace(non_tensor_batch=columns, batch={"input_ids": stack.torch.zeros(1)})
        distance.add(return_N[rows], stack.gigpo.compute_step_discounted_returns(data, 0.95).numpy())
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("name", ["rloo", "grpo mean_std_norm", "grpo mean_norm"])
def test_rloo_and_grpo_over_rows(stack, name):
    distance = Distance(name, stack)
    estimator, _, mode = name.partition(" ")
    make = rloo_settings if estimator == "rloo" else grpo_settings
    settings = make(std_floor=0.0, **({"normalisation": mode} if mode else {}))
    norm = {"norm_adv_by_std_in_grpo": mode == "mean_std_norm"} if mode else {}
    theirs = getattr(stack.core, f"compute_{estimator}_outcome_advantage")
    for batch, return_N, bonus_N in batches():
        score_N = row_scores(batch, settings)
        answer_NL, _ = quietly(theirs, *tokens(stack, score_N), batch.group_N, batch.trajectory_N, **norm)
        ours_N = ESTIMATORS[estimator].function(batch, return_N, bonus_N, settings)
        distance.add(ours_N, answer_NL[:, -1].numpy(), spread(score_N, batch.group_N) >= SMALLEST_STD)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("estimator", ["rloo", "grpo"])
def test_statistics_over_trajectories(stack, estimator):
    """All rows valid: the stack takes a trajectory's score from its first row."""
    distance = Distance(f"{estimator} trajectories", stack)
    settings = (rloo_settings if estimator == "rloo" else grpo_settings)(std_floor=0.0, statistics="trajectories")
    theirs = getattr(stack.core, f"compute_{estimator}_outcome_advantage")
    for mixed, return_N, bonus_N in batches():
        batch = take(mixed, np.arange(len(mixed)), valid_N=np.ones(len(mixed), dtype=bool))
        score_N = batch.episode_return_N
        answer_NL, _ = quietly(
            theirs, *tokens(stack, score_N), batch.group_N, batch.trajectory_N, compute_mean_std_cross_steps=False
        )
        ours_N = ESTIMATORS[estimator].function(batch, return_N, bonus_N, settings)
        distance.add(ours_N, answer_NL[:, -1].numpy(), spread(score_N, batch.group_N) >= SMALLEST_STD)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("anchors", ["exact", "similar"])
def test_gigpo(stack, mode, anchors):
    distance = Distance(f"gigpo {mode} {anchors}", stack)
    similar = anchors == "similar"
    settings = gigpo_settings(std_floor=0.0, normalisation=mode, anchors=anchors, anchor_similarity=0.97)
    for mixed, return_N, bonus_N in batches(count=10 if similar else 40):
        order = np.arange(len(mixed))  # similar anchors are grouped in the order of the batch
        texts = [f"you are in room {anchor} with lamp {anchor}" for anchor in mixed.anchor_N]
        batch = take(mixed, order, anchor_N=texts, position_N=order)
        score_N, step_N = row_scores(batch, settings), return_N.astype(stack.dtype) + bonus_N
        group_N = quietly(stack.gigpo.build_step_group, batch.anchor_N, batch.group_N, similar, 0.97)
        scores_NL, mask_NL = tokens(stack, score_N)
        answer_NL, _ = quietly(
            stack.gigpo.compute_gigpo_outcome_advantage, scores_NL, stack.torch.tensor(step_N), mask_NL,
            batch.anchor_N, batch.group_N, batch.trajectory_N, mode=mode, enable_similarity=similar,
            similarity_thresh=0.97,
        )  # fmt: skip
        ours_N = ESTIMATORS["gigpo"].function(batch, return_N, bonus_N, settings)
        spreads = (spread(score_N, batch.group_N), spread(step_N, group_N))
        distance.add(ours_N, answer_NL[:, -1].numpy(), np.minimum(*spreads) >= SMALLEST_STD)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("base_group", [False, True])
def test_hgpo_with_the_codes_weights(stack, mode, base_group):
    """In time order and without copies, as its recipe has them."""
    distance = Distance(f"hgpo {mode}{' base group' * base_group}", stack)
    for mixed, _, _ in batches(copies=False):
        batch = take(mixed, np.lexsort((mixed.step_N, mixed.trajectory_N)))
        return_N, bonus_N = step_returns(batch, 0.95), noise(batch).astype(np.float32)
        for context in (0, 2, 4):
            settings = hgpo_settings(
                std_floor=0.0, normalisation=mode, weights="code", base_group=base_group, context=context
            )
            score_N = row_scores(batch, settings)
            scores_NL, mask_NL = tokens(stack, score_N)
            answer_NL, _ = quietly(
                stack.hgpo.compute_hgpo_outcome_advantage, scores_NL,
                stack.torch.tensor(return_N.astype(stack.dtype) + bonus_N), mask_NL, batch.anchor_N, batch.group_N,
                batch.trajectory_N, context, mode=mode, base_group=base_group,
            )  # fmt: skip
            ours_N = ESTIMATORS["hgpo"].function(batch, return_N, bonus_N, settings)
            kept_N = spread(score_N, batch.group_N) >= SMALLEST_STD if base_group else True
            distance.add(ours_N, answer_NL[:, -1].numpy(), kept_N)
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 1.0), (0.99, 0.95)])
def test_gae(stack, gamma, gae_lambda):
    distance = Distance(f"gae gamma {gamma} lambda {gae_lambda} (tokens)", stack)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows, length = 64, 24
        lengths = rng.integers(1, length + 1, rows)
        mask_NL = np.arange(length) < lengths[:, None]
        value_NL = rng.normal(size=(rows, length)).astype(np.float32) * mask_NL
        reward_NL = np.zeros((rows, length), np.float32)
        reward_NL[np.arange(rows), lengths - 1] = rng.choice([0, 10, -0.1], rows)
        given = (stack.torch.tensor(array.astype(stack.dtype)) for array in (reward_NL, value_NL, mask_NL))
        theirs = stack.core.compute_gae_advantage_return(*given, gamma, gae_lambda)
        ours = gae(reward_NL, value_NL, mask_NL, gae_settings(gamma=gamma, gae_lambda=gae_lambda))
        for one, other in zip(ours, theirs, strict=True):
            distance.add(one[mask_NL], other.numpy()[mask_NL])
    assert distance.report() <= BOUND[stack.precision]
