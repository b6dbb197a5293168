"""A training run in the process of its test, which may end it where kill -9 would."""

import json

from scpo.records import run_config
from scpo.trainers import train
from sweeps.compose.configuration import compose_run

STUDY = [
    "scale=study", "wandb.mode=disabled", "machine.device=cpu", "method=scpo", "scorer=exact", "env.horizon=12",
    "env.generated.train=20", "env.generated.valid_seen=3", "env.generated.valid_unseen=3", "env.train_panel.games=6",
    "model.table_rows=2048", "model.width=8", "model.imitation.games=6", "model.imitation.steps=60",
    "model.imitation.learning_rate=1e-2", "trainer.steps=4", "trainer.groups=3", "trainer.group_size=4",
    "trainer.mini_batch_rows=64", "trainer.validation.every=2", "trainer.checkpoint_every=2",
    "trainer.probe_every=2", "trainer.sample_every=2", "trainer.precision_every=2",
]  # fmt: skip
"""A choice policy on real games: seconds a run."""


class Killed(Exception):
    """Stands for kill -9 behind a step's record."""


def run(runs, cache, *overrides, killed_after=None):
    """Train to the end, or till step ``killed_after`` is recorded; returns the run folder."""
    folder = run_config.ensure(
        config := compose_run([*overrides, f"machine.runs_dir={runs}", f"machine.cache_dir={cache}"])
    )

    def should_stop():
        if killed_after is not None and folder.metrics.exists() and logged(folder)[-1]["step"] == killed_after:
            raise Killed
        return False

    train(config, folder, should_stop)
    return folder


def cache_without(cache, folder, *names):
    """A cache that has what another one has, but for what is called so."""
    folder.mkdir()
    for kept in {"imitation", "transitions", "translations"} - set(names):
        (folder / kept).symlink_to(cache / kept)
    return folder


def logged(folder):
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]
