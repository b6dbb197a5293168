"""Expansion of an experiment into runs: rows times axes, each a validated configuration."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from scpo.errors import ConfigError
from scpo.records.identity import run_id, settings_digest
from scpo.records.manifest import Manifest, PlannedRow, PlannedRun, PrimaryComparisons
from scpo.schema.experiment import Experiment, ExperimentRow
from scpo.schema.run import RunConfig
from scpo.strict import Scale
from sweeps.compose.adhoc_axes import split_axes, with_axes
from sweeps.compose.configuration import (
    compose_experiment,
    compose_raw,
    refers_to,
    resolve,
    validate_run,
)
from sweeps.compose.effects import unread_in_rows
from sweeps.compose.overrides import AXES_HINT, Override, parse, parse_all

# Axis -> the configuration key that it sets.
AXIS_KEYS = {"env": "env", "model": "model", "seeds": "seed"}


@dataclass(frozen=True)
class Cell:
    """One run as a member of one row."""

    row: ExperimentRow
    run_id: str
    config: RunConfig


@dataclass
class Matrix:
    """All runs of an experiment at one scale.

    Rows with equal configurations share a run; ``notes`` names them.
    """

    experiment: Experiment
    scale: Scale
    overrides: tuple[Override, ...]
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def runs(self) -> dict[str, RunConfig]:
        """Run id -> configuration, each run once, in the order of the table."""
        return {cell.run_id: cell.config for cell in self.cells}

    @property
    def identity_overrides(self) -> list[str]:
        """Overrides that affect the result, without those of the machine."""
        return [override.text for override in self.overrides if not override.of_machine]

    @property
    def manifest(self) -> Manifest:
        """The record of which run is which row."""
        primary = self.experiment.primary
        return Manifest(
            experiment=self.experiment.name,
            title=self.experiment.title,
            scale=self.scale,
            overrides=tuple(self.identity_overrides),
            primary=primary and PrimaryComparisons.model_validate(primary.model_dump()),
            rows=tuple(self._planned(row) for row in self.experiment.rows),
        )

    def _planned(self, row: ExperimentRow) -> PlannedRow:
        runs = [
            PlannedRun(
                id=cell.run_id,
                env=cell.config.env.benchmark,
                model=cell.config.model.name,
                seed=cell.config.seed,
                settings=settings_digest(cell.config),
            )
            for cell in self.cells
            if cell.row.name == row.name
        ]
        return PlannedRow(name=row.name, label=row.label, runs=tuple(runs))

    def add(self, row: ExperimentRow, config: RunConfig) -> None:
        """Put a run into a row; a ConfigError if nothing here can start it."""
        config.check_started_here()
        name = run_id(config)
        same = [cell for cell in self.cells if cell.run_id == name]
        # An axis that does not change the run, such as a model that the row fixes, gives it twice.
        if any(cell.row == row for cell in same):
            return
        if same:
            self.notes.append(
                f"row {row.name} and row {same[0].row.name} are the same run {name}; it runs once"
            )
        self.cells.append(Cell(row, name, config))


def expand(name: str, overrides: Iterable[str | Override] = ()) -> Matrix:
    """Compose every run of an experiment.

    An override of an axis (``env=alfworld``, ``'seeds=[0,1]'``) replaces the axis; any other
    applies to every row, after the row's own overrides, and may not contradict them; with several
    values (``key=a,b``) it adds an axis.
    """
    chosen, common = _split(parse_all(map(str, overrides)))
    experiment, scale = compose_experiment(
        name, [override for override in common if override.key == "scale"]
    )
    added, common = split_axes(experiment, common, scale)

    # Against the rows as the file has them: method=scpo beside method.shaper.theta=0.4,0.6 is no
    # contradiction, though each row then sets a key of the chosen method.
    _refuse_contradictions(experiment.rows, [*(axis[0] for axis in added), *common])
    experiment = with_axes(experiment, added)
    # Values from the command line replace the experiment's.
    axes = {axis: chosen.get(axis) or _axis(experiment, axis, scale) for axis in AXIS_KEYS}
    matrix = Matrix(experiment, scale, tuple(common))
    for row in experiment.rows:
        if scale in row.scales:
            for config in _row_runs(
                row, axes, parse_all(experiment.shared_overrides(scale)), common
            ):
                matrix.add(row, config)

    matrix.notes += unread_in_rows(list(matrix.runs.values()))
    return matrix


def _row_runs(
    row: ExperimentRow,
    axes: dict[str, list[Any]],
    shared: Sequence[Override],
    common: Sequence[Override],
) -> Iterator[RunConfig]:
    own = parse_all(row.overrides)
    # An axis that a row sets itself does not vary that row.
    fixed = {override.key for override in own}
    groups = {
        axis: values for axis, values in axes.items() if axis != "seeds" and axis not in fixed
    }

    # The command line replaces overrides of the experiment, but not of its rows.
    given = {override.key for override in common}
    kept = [override for override in shared if override.key not in given]
    for choice in product(*groups.values()):
        chosen = [
            word
            for axis, value in zip(groups, choice, strict=True)
            for word in f"{axis}={value}".split()
        ]
        try:
            yield from seeded_runs(
                [*parse_all(chosen), *kept, *own, *common],
                [None] if "seed" in fixed else axes["seeds"],
            )
        except ConfigError as error:
            raise ConfigError(f"row {row.name}: {error}") from None


def seeded_runs(
    overrides: Sequence[Override], seeds: Iterable[Any], values: Mapping[str, Any] | None = None
) -> Iterator[RunConfig]:
    """Compose a run's configuration at each seed, with ``values`` in its dotted keys.

    A seed of None leaves the overrides' seed. All seeds share one composition, and one resolution
    of interpolations where none refers to the seed: these two take most of the time.
    """
    raw = _with(values or {}, compose_raw(overrides))
    data = resolve(raw)
    alike = not refers_to(raw, "seed")
    for seed in seeds:
        if seed is None or alike:
            yield validate_run(data if seed is None else {**data, "seed": seed})
        else:
            yield validate_run(resolve(_with({"seed": seed}, raw)))


def _with(values: Mapping[str, Any], raw: DictConfig) -> DictConfig:
    if values:
        # The composition is cached and shared by all seeds.
        raw = copy.deepcopy(raw)
    for key, value in values.items():
        try:
            # Not merged: panels replace those of the configuration.
            OmegaConf.update(raw, key, value, merge=False)
        except OmegaConfBaseException as error:
            section = key.rpartition(".")[0]
            method = OmegaConf.select(raw, "method.name")
            raise ConfigError(
                f"{key} cannot be set with method={method}: {section} is null or has no such key. "
                "Leave it out, or take a method that has it"
            ) from error
    return raw


def _split(overrides: Sequence[Override]) -> tuple[dict[str, list[Any]], tuple[Override, ...]]:
    axes: dict[str, list[Any]] = {}
    rest = []
    for override in overrides:
        if override.key in AXIS_KEYS and (override.axis or override.value is not None):
            axes[override.key] = _values(override)
        elif override.key in AXIS_KEYS.values():
            values = override.text.partition("=")[2].strip("[]")
            meant = f"; write 'seeds=[{values}]'" if override.key == "seed" else ""
            raise ConfigError(
                f"{override}: the axes of an experiment take values or lists: {AXES_HINT}{meant}"
            )
        else:
            rest.append(override)
    return axes, tuple(rest)


def _values(override: Override) -> list[Any]:
    given = [parse(f"{override.key}={text}").value for text in override.axis] or override.value
    values = given if isinstance(given, list) else [given]
    if not values:
        raise ConfigError(f"{override}: an axis needs at least one value")
    # Seeds are integers; all other axes name files.
    return [value if isinstance(value, int) else str(value) for value in values]


def _axis(experiment: Experiment, axis: str, scale: str) -> list[Any]:
    # The schema restricts axis and scale to the allowed names.
    values = experiment.axis(axis, scale)  # type: ignore[arg-type]
    if not values:
        raise ConfigError(
            f"conf/experiment/{experiment.name}.yaml has no {axis} for scale={scale}; "
            f"add it under axes, or give it here: '{axis}=[...]'"
        )
    return list(values)


def _refuse_contradictions(rows: Sequence[ExperimentRow], overrides: Sequence[Override]) -> None:
    for override in overrides:
        override.check()
        for row in rows:
            for own in row.overrides:
                if own != override.text and f"{parse(own).key}.".startswith(f"{override.key}."):
                    raise ConfigError(
                        f"{override}: row {row.name} sets {own} itself, the two would contradict "
                        "each other. "
                        "Leave it out, or add a row of your own to a copy of the experiment's file"
                    )
