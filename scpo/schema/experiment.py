"""Configuration of an experiment: its rows, its axes and its primary comparisons."""

import reprlib
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from scpo.schema.method import METHOD_LABELS
from scpo.strict import Scale, Seed, Strict


def _listed(needed: str) -> BeforeValidator:
    """Refuse anything but a list with entries; ``needed``: which list is needed, for the message.

    pydantic's own message calls it a tuple, which a YAML file does not have.
    """

    def check(value: Any) -> Any:
        if isinstance(value, list | tuple) and value:
            return value
        raise ValueError(f"got {reprlib.repr(value)}; {needed}")

    return BeforeValidator(check)


_ROWS = _listed(
    "a list of rows is needed, such as rows: [{name: gigpo, overrides: [method=gigpo]}]"
)
_SEEDS = _listed("a row's seeds are a list, the same at all scales, such as seeds: [0, 1]")
_PAIRS = _listed(
    "a list of pairs of rows is needed, such as comparisons: [[scpo, gigpo]]; without comparisons, "
    "leave primary out"
)


class ExperimentRow(Strict):
    """Row of an experiment's table: name, label and overrides.

    A row that has a method's name may omit the label and then gets the method's. ``scales``: scales
    at which the row can run; at other scales the table shows it as n/a. ``at_scale``: overrides
    added at a scale, after ``overrides``, e.g. a learning rate that was tuned there. ``seeds``: the
    seeds of a row that does not run at all those of the experiment.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    label: str
    overrides: tuple[str, ...]
    scales: tuple[Scale, ...] = ("mini", "study", "paper")
    at_scale: dict[Scale, tuple[str, ...]] = Field(default_factory=dict)
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), _SEEDS] | None = None

    @model_validator(mode="before")
    @classmethod
    def _labelled_as_its_method(cls, data: Any) -> Any:
        if isinstance(data, dict) and "label" not in data and data.get("name") in METHOD_LABELS:
            return {**data, "label": METHOD_LABELS[data["name"]]}
        return data


AxisValues = tuple[str | int, ...] | PositiveInt
"""Values of an axis; for seeds only, a number n may replace the list of 0 to n - 1.

Overrides that belong to a value follow it after a space: ``webshop env.setting=paper``.
"""


Measure = Literal["validation_area", "training_area", "last_success"]
"""Measure by which rows are compared, one number per run (``analysis.stats.measures``).

An area is that under the curve of success over the steps, of validation (all held-out panels) or of
training: a mean success rate. ``last_success`` is held-out success after the last step.
"""


class Primary(Strict):
    """Primary comparisons of an experiment, fixed before its runs.

    ``comparisons``: pairs of rows; each compares ``measure`` as the first minus the second, paired
    by seed.
    """

    measure: Measure
    comparisons: Annotated[tuple[tuple[str, str], ...], Field(min_length=1), _PAIRS]


class Experiment(Strict):
    """Experiment: a run for each row and each combination of axis values (env, model, seeds).

    Read from ``conf/experiment/<name>.yaml``. An axis has one entry of ``AxisValues``, or one per
    scale. ``overrides``, one list or one per scale, apply to every row before the row's own; those
    of the command line override both. ``primary``: None for an experiment without comparisons.
    ``of_run``: id of the run from whose configuration ``python -m sweeps export`` wrote the file.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    title: str
    axes: dict[Literal["env", "model", "seeds"], AxisValues | dict[Scale, AxisValues]]
    overrides: tuple[str, ...] | dict[Scale, tuple[str, ...]] = ()
    rows: Annotated[tuple[ExperimentRow, ...], Field(min_length=1), _ROWS]
    primary: Primary | None = None
    of_run: Annotated[str, Field(pattern=r"-s\d+-[0-9a-f]+$")] | None = None

    def for_scale(self, scale: Scale) -> Self:
        """A copy in which each row's ``overrides`` include those of ``at_scale`` for one scale."""
        rows = []
        for row in self.rows:
            overrides = (*row.overrides, *row.at_scale.get(scale, ()))
            rows.append(row.model_copy(update={"overrides": overrides, "at_scale": {}}))
        return self.model_copy(update={"rows": tuple(rows)})

    def shared_overrides(self, scale: Scale) -> tuple[str, ...]:
        """The experiment's own overrides at a scale, which apply to every row."""
        if not isinstance(self.overrides, dict):
            return self.overrides
        return self.overrides.get(scale, ())

    def axis(self, name: Literal["env", "model", "seeds"], scale: Scale) -> tuple[str | int, ...]:
        """Values of an axis at a scale; empty if the axis has no values there."""
        values = self.axes.get(name, ())
        if isinstance(values, dict):
            values = values.get(scale, ())
        if not isinstance(values, int):
            return values
        # Seeds count from 0, so that a larger number keeps the finished runs.
        return tuple(range(values))

    @model_validator(mode="after")
    def _only_seeds_are_counted(self) -> Self:
        for name in ("env", "model"):
            values = self.axes.get(name, ())
            by_scale = values.values() if isinstance(values, dict) else [values]
            if any(isinstance(entry, int) for entry in by_scale):
                raise ValueError(
                    f"experiment {self.name}: axis {name} is a list of names; only seeds may be a "
                    "number"
                )
        return self

    @model_validator(mode="after")
    def _each_row_has_a_name_of_its_own(self) -> Self:
        # Records and comparisons identify a row by its name: two rows of one name would share runs.
        names = [row.name for row in self.rows]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            labels = [row.label for row in self.rows if row.name == repeated]
            raise ValueError(
                f"experiment {self.name}: {len(labels)} rows are called {repeated} "
                f"({', '.join(labels)}); give each row a name of its own"
            )
        return self

    @model_validator(mode="after")
    def _each_row_has_a_label_of_its_own(self) -> Self:
        # Tables and comparisons print labels: with one twice, "GRPO − GRPO".
        first: dict[str, str] = {}
        for row in self.rows:
            other = first.setdefault(row.label, row.name)
            if other != row.name:
                raise ValueError(
                    f"experiment {self.name}: rows {other} and {row.name} have one label, "
                    f"{row.label}, under which tables show them; give each row a label of its own"
                )
        return self

    @model_validator(mode="after")
    def _primary_comparisons_are_of_its_rows(self) -> Self:
        # Comparisons are read after the runs: a misspelt row must be found before. The reverse of a
        # pair is the same comparison with the opposite sign.
        names = [row.name for row in self.rows]
        pairs = self.primary.comparisons if self.primary else ()
        for first, second in pairs:
            unknown = [name for name in (first, second) if name not in names]
            if unknown:
                raise ValueError(
                    f"experiment {self.name}: primary comparison [{first}, {second}]: no row is "
                    f"called {unknown[0]}; its rows: {', '.join(names)}"
                )
            if first == second or pairs.count((first, second)) > 1 or (second, first) in pairs:
                raise ValueError(
                    f"experiment {self.name}: primary comparison [{first}, {second}]: give two "
                    "different rows, and each pair once"
                )
        return self
