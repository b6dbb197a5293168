"""Every row-level estimator on 4,096 rows, on one core.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m bench.bench_estimators

Two batches of 16 groups x 8 siblings x 32 steps: walks over few states, of which each is visited
often, and over so many that hardly one is visited twice, which makes the graphs of the graph
estimators as large as they can be. The best of several calls, and as a multiple of GiGPO's in the
same run. The goal is of the estimators that build a graph.
"""

from __future__ import annotations

import numpy as np

from bench.random_walks import best_of, walks
from scpo.advantages.outcomes import step_returns
from scpo.advantages.registry import ESTIMATORS
from scpo.library import load_method
from scpo.states.registry import IDENTITIES, identify
from scpo.states.words import names_in
from scpo.steps import StepBatch

GROUPS, SIBLINGS, STEPS = 16, 8, 32
REPETITIONS = 7
GOAL_S = 0.2
STATES_GOAL_S = 0.05
FAST_IDENTITIES = ("exact", "entities", "facts")
METHODS = ("gigpo", "grpo", "rloo", "empg", "hcapo", "hgpo", "g2po", "rewardflow", "graphgpo", "gagpo", "crbc")


def main() -> None:
    """Measure and print."""
    rows = GROUPS * SIBLINGS * STEPS
    print(f"{rows:,} rows ({GROUPS} groups x {SIBLINGS} x {STEPS}), goal {1e3 * GOAL_S:.0f} ms")
    print(f"{'':14}{'few states':>20}{'many states':>20}")
    few, many = _batch(states=20), _batch(states=100_000)
    base = [_seconds(METHODS[0], batch) for batch in (few, many)]
    for name in METHODS:
        taken = [_seconds(name, batch) for batch in (few, many)]
        shown = (f"{1e3 * one:9.1f} ms {one / first:5.1f}x" for one, first in zip(taken, base, strict=True))
        print(f"{name:14}" + "".join(f"{text:>20}" for text in shown))
    print(f"state identities, goal {1e3 * STATES_GOAL_S:.0f} ms for {', '.join(FAST_IDENTITIES)}")
    for name in (name for name, entry in IDENTITIES.items() if "scorer" not in entry.requires):
        if name != "difflib":  # quadratic in characters: minutes on many states
            seconds = [_identity_seconds(name, batch) for batch in (few, many)]
            print(f"{name:14}" + "".join(f"{f'{1e3 * second:9.1f} ms':>20}" for second in seconds))


def _identity_seconds(name: str, batch: StepBatch) -> float:
    def call() -> None:
        names_in.cache_clear()  # as for texts that no step before had
        identify(batch, "state", IDENTITIES[name])

    return best_of(3, call)[0]


def _seconds(name: str, batch: StepBatch) -> float:
    settings = load_method(name).estimator
    return_N = step_returns(batch, settings.gamma)
    bonus_N = -np.float32(settings.invalid_penalty) * ~batch.valid_N
    return best_of(REPETITIONS, lambda: ESTIMATORS[name].function(batch, return_N, bonus_N, settings))[0]


def _batch(states: int) -> StepBatch:
    """Random walks from one start; a quarter of the rollouts succeed."""
    rng = np.random.default_rng(0)
    rollouts = GROUPS * SIBLINGS
    place_KT = rng.integers(states, size=(rollouts, STEPS + 1))
    place_KT[:, 0] = 0
    text = {place: f"You arrive at place {place}. {'An apple 1 lies here. ' * 20}" for place in set(place_KT.flat)}
    before_N, after_N = ([text[place] for place in part.ravel()] for part in (place_KT[:, :-1], place_KT[:, 1:]))
    won_K = rng.random(rollouts) < 0.25
    rows = rollouts * STEPS
    return walks(
        (GROUPS, SIBLINGS, STEPS), won_K, task_N=["task"] * rows, anchor_N=before_N, next_observation_N=after_N,
        action_N=[f"go to {place}" for place in place_KT[:, 1:].ravel()], valid_N=rng.random(rows) > 0.1,
        state_N=before_N, next_state_N=after_N, facts_N=before_N, next_facts_N=after_N, true_state_N=before_N,
        next_true_state_N=after_N, entropy_N=rng.random(rows),
        hindsight_logprob_N=np.where(np.repeat(won_K, STEPS), -rng.random(rows), np.nan),
    )  # fmt: skip


if __name__ == "__main__":
    main()
