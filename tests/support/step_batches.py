"""Small and random batches of steps, and configs, for the tests of the mathematical core."""

import functools
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from scpo.advantages.registry import ESTIMATORS
from scpo.schema.method import TrainedMethod
from scpo.shaping.shaper import ShaperConfig
from scpo.shaping.step_text import StepFilter
from scpo.steps import StepBatch

CONF = Path(__file__).resolve().parents[2] / "conf"


@functools.cache
def _published(name):
    """The values of ``conf/estimator/<name>.yaml`` on ALFWorld."""
    env, own = OmegaConf.load(CONF / "env" / "alfworld.yaml"), OmegaConf.load(CONF / "estimator" / f"{name}.yaml")
    return OmegaConf.to_container(OmegaConf.create({"env": env, "own": own}), resolve=True)["own"]


def settings_of(name, **changes):
    """An estimator's settings as shipped, and what is changed of them."""
    return ESTIMATORS[name].settings(**(_published(name) | changes))


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
    values = {"kind": "trained", "shaper": shaper, "sampling": sampling, "clip_high": 0.2}
    return TrainedMethod(name=name, estimator=estimator or settings_of("gigpo"), **values)


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
        "is_copy_N": [False] * len(rows), "task_id_N": [f"game {number}" for number in group],
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
    """The batch with what some estimators need: states, entropies, hindsight log-probabilities of successes."""
    hindsight_N = np.where(batch.success_N, -noise(batch, seed + 1), np.nan)
    return take(
        stated(batch), np.arange(len(batch)), is_copy_N=batch.is_copy_N,
        entropy_N=noise(batch, seed), hindsight_logprob_N=hindsight_N,
    )  # fmt: skip


def stated(batch):
    """A batch of ``make_batch`` with states: where it is, and whether the number of steps so far is even."""
    before = [f"{anchor} {step % 2}" for anchor, step in zip(batch.anchor_N, batch.step_N, strict=True)]
    after = [f"{action} {(step + 1) % 2}" for action, step in zip(batch.action_N, batch.step_N, strict=True)]
    return take(batch, np.arange(len(batch)), is_copy_N=batch.is_copy_N, state_N=before, next_state_N=after)


class TableScorer:
    """Similarities from a table of ordered text pairs, with a default; remembers what it was asked."""

    name = "table"

    def __init__(self, table=(), default=0.0):
        self.table, self.default, self.asked = dict(table), default, []

    def score(self, pairs):
        self.asked.append(list(pairs))
        return np.array([self.table.get(pair, self.default) for pair in pairs], dtype=np.float32)


class CompanyScorer(TableScorer):
    """As the table, and a little more in company, whatever the processor: 1e-6 for each other pair of the call."""

    def alone(self, pairs):
        """What each pair would get in a call of its own."""
        return np.array([self.table.get(pair, self.default) for pair in pairs], dtype=np.float32)

    def score(self, pairs):
        self.asked.append(list(pairs))
        return np.minimum(self.alone(pairs) + np.float32(1e-6 * (len(pairs) - 1)), np.float32(1))


class EqualityScorer(TableScorer):
    """1 for equal texts, 0 for others."""

    def score(self, pairs):
        self.asked.append(list(pairs))
        return np.array([first == second for first, second in pairs], dtype=np.float32)


def given_all(batch):
    """A batch of ``make_batch`` with all that an environment may give of a state: here the texts are the truth."""
    told = stated(batch)
    return take(
        told, np.arange(len(batch)), is_copy_N=batch.is_copy_N, facts_N=told.state_N, next_facts_N=told.next_state_N,
        commands_N=told.anchor_N, next_commands_N=told.action_N, true_anchor_N=told.anchor_N,
        next_true_anchor_N=told.next_observation_N, true_state_N=told.state_N, next_true_state_N=told.next_state_N,
    )  # fmt: skip
