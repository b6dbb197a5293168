"""Configuration of a hyper-parameter search: space, objective and budget."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from scpo.schema.env import TUNING
from scpo.strict import Scale, Seed, Strict

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1)]


class _Range(Strict):
    """A number of the configuration key ``key`` between two bounds, both included."""

    key: str
    low: int | float
    high: int | float

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        if self.low >= self.high:
            raise ValueError(
                f"{self.key}: low must be below high, got low={self.low} high={self.high}"
            )
        return self


class StepRange(_Range):
    """low, low + step, ..., high."""

    kind: Literal["step"]
    step: PositiveInt | PositiveFloat


class LogRange(_Range):
    """Uniform in the logarithm; a grid has ``points`` values in equal ratios, bounds included.

    Other samplers read no ``points``.
    """

    kind: Literal["log"]
    low: PositiveFloat
    points: Annotated[int, Field(ge=2)] | None = None


class Choice(Strict):
    """One of a few values without an order."""

    kind: Literal["choice"]
    key: str
    values: Annotated[tuple[bool | int | float | str, ...], Field(min_length=2)]


Dimension = Annotated[StepRange | LogRange | Choice, Field(discriminator="kind")]


class SamplerConfig(Strict):
    """Optuna's sampler.

    Attributes:
        name: ``tpe``: tree-structured Parzen estimator; ``grid``: every point of the grid once.
        seed: Seed of the draws of ``tpe`` and of the grid's order.
        startup_trials: First trials of ``tpe``, which are drawn uniformly.
    """

    name: Literal["tpe", "grid"]
    seed: Seed
    startup_trials: PositiveInt


class MedianPruning(Strict):
    """Stops a trial whose best intermediate value is below the median of finished trials.

    The median is taken at the same step. No trial is stopped before ``startup_trials`` trials are
    complete, nor before training step ``warmup_steps``.
    """

    name: Literal["median"]
    startup_trials: PositiveInt
    warmup_steps: NonNegativeInt


class Tuning(Strict):
    """Tasks that trials are judged on, from the training split and in no reported panel.

    Attributes:
        tasks: Number of tasks.
        repeats: Episodes per task.
        seed: Seed of the draw of the tasks.
        trained_on: False holds them out of training; True draws the trials' training panel anew
            with ``seed`` and judges on ``tasks`` of it, for policies that improve only where they
            train.
    """

    tasks: PositiveInt
    repeats: PositiveInt
    seed: Seed
    trained_on: bool

    def panels(self, tasks_key: str) -> dict[str, Any]:
        """Overrides of a trial's only validation panel and of its training tasks, by dotted key."""
        where = {"subset_of_training": True} if self.trained_on else {"held_out": True}
        panel = {
            "split": "train",
            tasks_key: self.tasks,
            "seed": self.seed,
            "repeats": self.repeats,
            **where,
        }
        values: dict[str, Any] = {"env.validation_panels": {TUNING: panel}}
        if self.trained_on:
            # Another training panel than the reported one, whose games must not decide the search.
            values["env.train_panel.seed"] = self.seed
        return values


class Search(Strict):
    """``conf/search/<name>.yaml``. Some settings are one value, or one for each scale.

    The objective of a trial is the mean success rate on its tuning panel at the last step over
    ``seeds``; the winner is reported on the validation panels, on ``fresh_seeds`` which no trial
    has seen.

    Attributes:
        overrides: Settings of every trial, in addition to the searched ones.
        seeds: Seeds of a trial's runs.
        fresh_seeds: Seeds of the winner's runs.
        tuning: Tasks on which the trials are compared.
        trials: Number of settings, retries not counted.
        parallel: Trials at a time; None: as many as the machine can run.
        retries: How often a trial whose worker died is tried again.
        storage: Optuna's storage: a journal file, which shared file systems of clusters allow, or
            SQLite.
        space: Name in reports -> the key and the values that are searched.
    """

    name: Name
    title: str
    env: str
    model: str | dict[Scale, str]
    overrides: tuple[str, ...]
    seeds: Seeds | dict[Scale, Seeds]
    fresh_seeds: Seeds
    tuning: Tuning | dict[Scale, Tuning]
    trials: PositiveInt | dict[Scale, PositiveInt]
    parallel: PositiveInt | None
    retries: NonNegativeInt
    storage: Literal["journal", "sqlite"]
    sampler: SamplerConfig
    pruner: MedianPruning | None
    space: Annotated[dict[Name, Dimension], Field(min_length=1)]

    @model_validator(mode="after")
    def _a_grid_has_points(self) -> Self:
        for name, dimension in self.space.items():
            missing = isinstance(dimension, LogRange) and dimension.points is None
            if self.sampler.name == "grid" and missing:
                raise ValueError(
                    f"search.space.{name}.points is missing, the number of values that a grid "
                    "takes of a logarithmic range; write points: 5 there, or "
                    "search.sampler.name=tpe"
                )
        return self
