"""Training hyper-parameters in the configurations of finished runs, next to the paper's."""

from analysis import names
from analysis.rendering.table import Table
from analysis.sources.collected import Collected
from analysis.sources.rows import Row, Section
from analysis.tables.comparison import key_of
from analysis.tables.settings_table import Config, Entry, at, settings_table

CAPTION = (
    "Training hyper-parameters of the finished runs that train, as recorded, and the paper's. A "
    "column has the rows of one setting, of the experiments in its last line, on the seeds in the "
    "line above; a cell lists the different values of its rows, those of SCPO first."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if nothing has finished."""
    return settings_table(data, ENTRIES, shaped=False, caption=CAPTION, label="tab:hparams")


def _model(config: Config) -> str | None:
    name = at(config, "model.path") or at(config, "model.name")
    return names.model(name) if name else None


def _validation_episodes(data: Collected, part: Section, rows: tuple[Row, ...]) -> str:
    """Episodes of each panel in a validation; several numbers of a panel if the runs differ."""
    counts = set()
    for row in rows:
        for run in row.finished:
            for panel in data.panels(run):
                episodes = data.series(run, f"val/{panel}/episodes").last
                if episodes:
                    counts.add(f"{names.PANELS.get(panel, panel)}: {episodes:.0f}")
    return "; ".join(sorted(counts))


def _optimizer(config: Config) -> str | None:
    """Settings of AdamW, which every trainer here and in the paper's stack uses."""
    if at(config, "trainer.optimizer") is None:
        return None
    decay = at(config, "trainer.optimizer.weight_decay")
    warmup = at(config, "trainer.optimizer.warmup_steps")
    return f"AdamW (weight decay {decay}, {warmup} steps of warm-up)"


def _experiments(data: Collected, part: Section, rows: tuple[Row, ...]) -> str:
    """Experiments that have some of these rows' finished runs."""
    shown = {run for row in rows for run in row.finished}
    found: dict[str, None] = {}
    for family in part.families:
        for row in family.runs:
            if row.name in family.rows and shown.intersection(row.finished):
                found[family.experiment] = None
    return ", ".join(found)


ENTRIES = (
    Entry("Base model", "Qwen2.5-1.5B/7B-Instruct", _model),
    Entry("Trainer", "verl-agent", "trainer.name"),
    Entry("Group size", "8", "trainer.group_size"),
    Entry("Train batch size (tasks/step)", "16", "trainer.groups"),
    Entry("Validation episodes", "128", from_runs=_validation_episodes),
    Entry("PPO mini-batch size (rows)", "256", "trainer.mini_batch_rows"),
    Entry("PPO micro-batch (rows)", "32 (1.5B) / 8 (7B)", "trainer.micro_batch_rows"),
    Entry("Learning rate", "1e-6", "trainer.optimizer.learning_rate"),
    Entry("Optimizer", "AdamW", _optimizer),
    Entry("KL coefficient", "0.01", "trainer.loss.kl_coefficient"),
    Entry("Discount γ", "0.95", "method.estimator.gamma"),
    Entry("Invalid-action penalty", "0.1", "method.estimator.invalid_penalty"),
    Entry("State key", "–", key_of),
    Entry("Max prompt length (tokens)", "2048", "trainer.max_prompt_tokens"),
    Entry("Max response length (tokens)", "512", "trainer.max_response_tokens"),
    Entry("History context K", "2", "env.history_length"),
    Entry("Horizon (steps)", "50 (ALFWorld) / 15 (WebShop)", "env.horizon"),
    Entry("Training iterations", "150", "trainer.steps"),
    Entry("Validation frequency (steps)", "5", "trainer.validation.every"),
    Entry("Save frequency (steps)", "5", "trainer.checkpoint_every"),
    Entry("Rollout temperature", "1.0", "trainer.temperature"),
    Entry("Validation temperature", "0.4", "trainer.validation.temperature"),
    Entry("Random seeds", "0, 1, 2", "seed"),
    Entry("Experiments", "–", from_runs=_experiments),
)
