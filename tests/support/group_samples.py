"""Records of sampled groups, as a trainer writes them, on small invented rollouts."""

import dataclasses
from types import SimpleNamespace

from scpo.credit.assign import assign
from scpo.diagnostics.sampled_groups import save_groups
from scpo.records import RunFolder
from tests.support.step_batches import EqualityScorer, make_batch, method, random_batch, shaper_config

SCPO = method(shaper=shaper_config(order="chronological"))


def run_config(method=SCPO, *, count=2):
    """As much of a run's configuration as sampling reads: every step is sampled."""
    trainer = SimpleNamespace(sample_every=1, sample_groups=count, steps=1000)
    return SimpleNamespace(seed=0, method=method, trained=method, trainer=trainer)


def write_groups(folder, *steps, batch=None):
    """``groups_step_<n>.json.gz`` of random walks, or of ``batch``, for each step; returns nothing."""
    for step in steps:
        rollouts = batch or random_batch(step, groups=4, longest=9)
        scorer = EqualityScorer()
        _, told = assign(rollouts, scorer, SCPO, seed=(0, step))
        save_groups(RunFolder(folder), step, rollouts, told, config=run_config(), scorer=scorer)


def rollouts(text="task"):
    """One group, whose siblings all start from the same state.

    0 is the reference; 1 follows it for two steps, then goes astray; 2 fails at once and reads ``text``, which is the
    task's name as well; 3 does the reference's first step late, where no sibling has been.
    """
    batch = make_batch((0, 0, "a b c d", 1), (0, 1, "a b x y", 0), (0, 2, "y", 0), (0, 3, "q a", 0))
    observation_N = [*batch.next_observation_N[:8], text, *batch.next_observation_N[9:]]
    return dataclasses.replace(batch, task_N=[text] * len(batch), next_observation_N=observation_N)


MARKUP = '<script>alert(1)</script><img src=x onerror="alert(2)"><!-- </script> & "\u2028'
BATCH_WITH_MARKUP = rollouts(MARKUP)
