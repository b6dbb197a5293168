"""A training run on real games that takes seconds: the whole trainer with a policy of a few thousand parameters."""

from pathlib import Path

from tests.support.warm_starts import ROOT, WarmStart

OVERRIDES = [
    "method=scpo", "scorer=exact", "wandb.mode=disabled",
    "env.generated.train=20", "env.generated.valid_seen=3", "env.generated.valid_unseen=3", "env.horizon=6",
    "env.train_panel.games=6", "env.validation_panels.train_games.games=3",
    "env.validation_panels.train_games.repeats=1",
    "model.hidden_size=32", "model.layers=2", "model.heads=2", "model.intermediate_size=64",
    "model.warm_start.games=6", "model.warm_start.steps=30", "model.warm_start.learning_rate=5e-3",
    "trainer.steps=6", "trainer.groups=3", "trainer.group_size=4", "trainer.validation.every=3",
    "trainer.checkpoint_every=2", "trainer.mini_batch_rows=32", "trainer.probe_every=3", "trainer.sample_every=3",
]  # fmt: skip


def words(runs: Path, cache: Path, *extra: str) -> list[str]:
    return [*OVERRIDES, f"machine.runs_dir={runs}", f"machine.cache_dir={cache}", *extra]


def start(runs: Path, cache: Path, *extra: str) -> WarmStart:
    return WarmStart(ROOT / "train.py", words(runs, cache, *extra))


def finish(runs: Path, cache: Path, *extra: str) -> Path:
    """Run to the end and return the run folder."""
    process = start(runs, cache, *extra)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    return only_run(runs)


def only_run(runs: Path) -> Path:
    (folder,) = (path for path in runs.iterdir() if (path / "config.yaml").exists())
    return folder
