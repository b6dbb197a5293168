"""The whole configuration of one run, and of a call of sweep.py."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from scpo.schema.base import Strict
from scpo.schema.env import EnvConfig
from scpo.schema.method import MethodConfig
from scpo.schema.model import ModelConfig
from scpo.schema.scorer import ScorerConfig
from scpo.schema.trainer import TrainerConfig


class WandbConfig(Strict):
    """The W&B mirror; metrics.jsonl is the truth and training never waits for W&B longer than the timeouts."""

    mode: Literal["offline", "online", "disabled"]
    project: str
    entity: str | None
    init_timeout_s: PositiveFloat
    finish_timeout_s: PositiveFloat


class MachineConfig(Strict):
    """Settings of this machine. They are no part of a run's identity."""

    runs_dir: str
    cache_dir: str
    alfworld_data: str | None
    webshop_data: str | None
    device: Literal["auto", "cpu", "cuda"]
    threads: PositiveInt
    resume_across_versions: bool


class LauncherConfig(Strict):
    """The local slot pool. ``slots`` None: one for each ``machine.threads`` cores."""

    name: Literal["local"]
    slots: PositiveInt | None


class RunConfig(Strict):
    """Everything that determines one run (``machine``, ``wandb`` and ``launcher`` aside, which say where it runs)."""

    scale: Literal["mini", "paper"]
    seed: NonNegativeInt
    method: MethodConfig
    env: EnvConfig
    model: ModelConfig
    trainer: TrainerConfig
    scorer: ScorerConfig
    wandb: WandbConfig
    machine: MachineConfig
    launcher: LauncherConfig


MACHINE_SECTIONS = ("machine", "wandb", "launcher")


class ExperimentRow(Strict):
    """One row of an experiment's table: a name, its label in the table, and the overrides that make it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    label: str
    overrides: tuple[str, ...]


AxisValues = tuple[str | int, ...]


class Experiment(Strict):
    """``conf/experiment/<name>.yaml``: rows x the product of the axes (``env``, ``model``, ``seeds``).

    An axis is a list of values, or one list for each scale.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    title: str
    axes: dict[Literal["env", "model", "seeds"], AxisValues | dict[Literal["mini", "paper"], AxisValues]]
    rows: Annotated[tuple[ExperimentRow, ...], Field(min_length=1)]
