"""Small and random batches of steps, and configs, for the tests of the mathematical core."""

import numpy as np

from scpo.schema.method import (
    EmpgSettings,
    G2poSettings,
    GaeSettings,
    GigpoSettings,
    GrpoSettings,
    HcapoSettings,
    HgpoSettings,
    MethodConfig,
    RlooSettings,
    ShaperConfig,
    StepFilter,
)
from scpo.steps import StepBatch

GROUP = {"gamma": 0.95, "invalid_penalty": 0.1, "statistics": "rows", "std_floor": 1e-5}
NORMALISED = GROUP | {"normalisation": "mean_std_norm"}


def grpo_settings(**changes):
    return GrpoSettings(**(NORMALISED | {"name": "grpo"} | changes))


def rloo_settings(**changes):
    return RlooSettings(**(GROUP | {"name": "rloo"} | changes))


def gigpo_settings(**changes):
    values = {"anchors": "exact", "anchor_similarity": 0.95, "singletons": "zero", "omega": 1.0}
    return GigpoSettings(**(NORMALISED | values | {"name": "gigpo"} | changes))


def hgpo_settings(**changes):
    values = {"context": 2, "weights": "paper", "exponent": 1.0, "base_group": False}
    return HgpoSettings(**(NORMALISED | values | {"name": "hgpo"} | changes))


def g2po_settings(**changes):
    return G2poSettings(**(NORMALISED | {"name": "g2po", "omega": 1.0, "success_value": 10.0} | changes))


def hcapo_settings(**changes):
    values = {
        "omega": 1.0, "temperature": 5.0, "ratio_low": 0.8, "ratio_high": 1.2, "smoothing": 0.0,
        "statistics": "trajectories", "hindsight_prompt": "{final_observation} {success}",
    }  # fmt: skip
    return HcapoSettings(**(GROUP | values | {"name": "hcapo"} | changes))


def empg_settings(**changes):
    return EmpgSettings(**(NORMALISED | {"name": "empg", "k": 1.0, "k_future": 1.0, "zeta": 0.05} | changes))


def gae_settings(**changes):
    values = {"gamma": 1.0, "gae_lambda": 1.0, "invalid_penalty": 0.1}
    return GaeSettings(**(values | {"name": "gae", "critic": {"learning_rate": 1e-5, "value_clip": 0.5}} | changes))


def shaper_config(**changes):
    values = {
        "matcher": "kmp", "monotonic": True, "after_full_match": "stop", "theta": 0.6, "soft_base": 0.4, "alpha": 0.5,
        "reference": "longest", "reference_order": "time", "order": "balanced", "order_ranks": 4,
        "step_text": "action_next_observation",
        "step_filter": StepFilter(no_op_observations=("Nothing happens.",), no_op_if_unchanged=False),
        "allocation": "matched",
    }  # fmt: skip
    return ShaperConfig(**(values | changes))


def method(estimator=None, shaper=None, name="scpo", sampling=None):
    values = {"label": name, "shaper": shaper, "sampling": sampling, "clip_high": 0.2}
    return MethodConfig(name=name, estimator=estimator or gigpo_settings(), **values)


def make_batch(*episodes, **columns):
    """Episodes are ``(group, trajectory, "a b c", return)``: one step per letter, whose anchor is the letter before it.

    Step text and anchor thus say where an episode is; ``columns`` replaces whole columns.
    """
    rows = []
    for group, trajectory, letters, episode_return in episodes:
        states = ["start", *letters.split()]
        for step, action in enumerate(states[1:]):
            last = step == len(states) - 2
            rows.append((group, trajectory, step, states[step], action, episode_return if last else 0, episode_return))
    group, trajectory, step, anchor, action, reward, total = zip(*rows, strict=True) if rows else [()] * 7
    values = {
        "group_N": group, "trajectory_N": trajectory, "step_N": step, "task_N": ["task"] * len(rows),
        "anchor_N": anchor, "action_N": action, "next_observation_N": [f"now {letter}" for letter in action],
        "reward_N": reward, "valid_N": [True] * len(rows), "episode_return_N": total,
        "success_N": np.array(total) > 0, "won_N": np.array(total) > 0, "position_N": np.arange(len(rows)),
        "is_copy_N": [False] * len(rows),
    }  # fmt: skip
    return StepBatch(**(values | columns))


FIELDS = tuple(make_batch((0, 0, "a", 0)).__dataclass_fields__)


def take(batch, rows, **columns):
    """The rows of a batch, in the given order; repeated rows become copies."""
    rows = np.asarray(rows, dtype=np.int64)
    values = {name: getattr(batch, name)[rows] for name in FIELDS if getattr(batch, name) is not None}
    seen = np.zeros(len(rows), dtype=bool)
    seen[np.unique(rows, return_index=True)[1]] = True
    return StepBatch(**(values | {"is_copy_N": ~seen | values["is_copy_N"]} | columns))


def random_batch(seed, *, groups=3, siblings=4, longest=7, copies=0, states="abcd"):
    """Random walks over few states: anchors repeat, some episodes succeed, some steps are invalid."""
    rng = np.random.default_rng(seed)
    episodes = [
        (group, group * siblings + k, " ".join(rng.choice(list(states), rng.integers(1, longest + 1))), rng.integers(2))
        for group in range(groups)
        for k in range(siblings)
    ]
    batch = make_batch(*episodes)
    rows = np.concatenate([np.arange(len(batch)), rng.integers(len(batch), size=copies)])
    batch = take(batch, rows, valid_N=(rng.random(len(batch)) > 0.2)[rows])
    return take(batch, np.arange(len(batch)), position_N=rng.permutation(len(batch)))


def noise(batch, seed=0):
    """A number in [0, 1) for each step, shared by its copies and independent of the order of rows."""
    return np.modf(np.abs(np.sin(12.9898 * batch.trajectory_N + 78.233 * batch.step_N + seed)) * 43758.5453)[0]


def measured(batch, seed=0):
    """The batch with what some estimators need measured: entropies, and hindsight log-probabilities of successes."""
    hindsight_N = np.where(batch.success_N, -noise(batch, seed + 1), np.nan)
    return take(batch, np.arange(len(batch)), entropy_N=noise(batch, seed), hindsight_logprob_N=hindsight_N)


class TableScorer:
    """Similarities from a table of ordered text pairs, with a default; remembers what it was asked."""

    name = "table"

    def __init__(self, table=(), default=0.0):
        self.table, self.default, self.asked = dict(table), default, []

    def score(self, pairs):
        self.asked.append(list(pairs))
        return np.array([self.table.get(pair, self.default) for pair in pairs], dtype=np.float32)


class EqualityScorer(TableScorer):
    """1 for equal texts, 0 for others."""

    def score(self, pairs):
        self.asked.append(list(pairs))
        return np.array([first == second for first, second in pairs], dtype=np.float32)
