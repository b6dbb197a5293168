"""An experiment becomes runs: its rows times its axes, each a validated configuration with an id."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from omegaconf import DictConfig, OmegaConf

from scpo.errors import ConfigError
from scpo.schema import MACHINE_SECTIONS, Experiment, ExperimentRow, RunConfig
from sweeps.compose.configuration import (
    AXES_HINT,
    check_option,
    compose_experiment,
    compose_raw,
    parse,
    refers_to,
    resolve,
    validate_run,
)
from sweeps.compose.identity import run_id

AXIS_KEYS = {"env": "env", "model": "model", "seeds": "seed"}  # axis -> the configuration key that it sets


@dataclass(frozen=True)
class Cell:
    """One run as a member of one row."""

    row: ExperimentRow
    run_id: str
    config: RunConfig


@dataclass
class Matrix:
    """All runs of an experiment at one scale. Rows with equal configurations share a run; ``notes`` says which."""

    experiment: Experiment
    scale: str
    overrides: tuple[str, ...]
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def runs(self) -> dict[str, RunConfig]:
        """Run id -> configuration, each run once, in the order of the table."""
        return {cell.run_id: cell.config for cell in self.cells}

    @property
    def identity_overrides(self) -> list[str]:
        """The overrides that say what runs, without those that say where and how."""
        return [word for word in self.overrides if key_of(word).partition(".")[0] not in MACHINE_SECTIONS]

    def add(self, row: ExperimentRow, config: RunConfig) -> None:
        """Put a run into a row; a ConfigError if nothing here can start it."""
        config.check_started_here()
        name = run_id(config)
        twins = [cell for cell in self.cells if cell.run_id == name]
        if any(cell.row == row for cell in twins):
            return
        if twins:
            self.notes.append(f"row {row.name} and row {twins[0].row.name} are the same run {name}; it runs once")
        self.cells.append(Cell(row, name, config))


def expand(name: str, words: Sequence[str] = ()) -> Matrix:
    """Compose every run of an experiment.

    An override of an axis (``env=alfworld``, ``'seeds=[0,1]'``) replaces the axis; any other applies to every row,
    after the row's own overrides, and may not contradict them.
    """
    chosen, overrides = _split(words)
    scales = [word for word in overrides if key_of(word) == "scale"]
    experiment, scale = compose_experiment(name, scales)
    _refuse_contradictions(experiment.rows, overrides)
    axes = {axis: chosen.get(axis) or _axis(experiment, axis, scale) for axis in AXIS_KEYS}
    matrix = Matrix(experiment, scale, tuple(overrides))
    for row in experiment.rows:
        if scale in row.scales:
            for config in _row_runs(row, axes, experiment.overrides, overrides):
                matrix.add(row, config)
    return matrix


def _row_runs(
    row: ExperimentRow, axes: dict[str, list[Any]], shared: Sequence[str], overrides: Sequence[str]
) -> Iterator[RunConfig]:
    fixed = {key_of(word) for word in row.overrides}  # an axis that a row sets itself does not vary that row
    groups = {axis: values for axis, values in axes.items() if axis != "seeds" and axis not in fixed}
    for choice in product(*groups.values()):
        words = [f"{axis}={value}" for axis, value in zip(groups, choice, strict=True)]
        words += [word for word in shared if key_of(word) not in map(key_of, overrides)]
        try:
            yield from seeded_runs([*words, *row.overrides, *overrides], [None] if "seed" in fixed else axes["seeds"])
        except ConfigError as error:
            raise ConfigError(f"row {row.name}: {error}") from None


def seeded_runs(words: list[str], seeds: Iterable[Any], values: Mapping[str, Any] | None = None) -> Iterator[RunConfig]:
    """A run's configuration at each seed (None: the seed that the words give), with ``values`` in its dotted keys.

    One composition serves them all, and one resolution where nothing refers to the seed: these are what costs time.
    """
    raw = _with(compose_raw(tuple(words)), values or {})
    data = resolve(raw)
    alike = not refers_to(raw, "seed")
    for seed in seeds:
        if seed is None:
            yield validate_run(data)
        elif alike:
            yield validate_run({**data, "seed": seed})
        else:
            yield validate_run(resolve(_with(raw, {"seed": seed})))


def _with(raw: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """A copy, for what is composed is not to be written to."""
    if not values:
        return raw
    raw = raw.copy()
    for key, value in values.items():
        OmegaConf.update(raw, key, value)
    return raw


def _split(words: Sequence[str]) -> tuple[dict[str, list[Any]], list[str]]:
    axes: dict[str, list[Any]] = {}
    rest = []
    for word in words:
        key = key_of(word)
        if key in AXIS_KEYS and parse(word).value() is not None:
            axes[key] = _values(word)
        elif key in AXIS_KEYS.values():
            raise ConfigError(f"{word}: the axes of an experiment take values or lists: {AXES_HINT}")
        else:
            rest.append(word)
    return axes, rest


def _values(word: str) -> list[Any]:
    value = parse(word).value()
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ConfigError(f"{word}: an axis needs at least one value")
    return [one if isinstance(one, int) else str(one) for one in values]


def _axis(experiment: Experiment, axis: str, scale: str) -> list[Any]:
    values = experiment.axis(axis, scale)  # type: ignore[arg-type]  # both are what the schema allows
    if not values:
        raise ConfigError(
            f"conf/experiment/{experiment.name}.yaml has no {axis} for scale={scale}; "
            f"add it under axes, or give it here: '{axis}=[...]'"
        )
    return list(values)


def _refuse_contradictions(rows: Sequence[ExperimentRow], overrides: Sequence[str]) -> None:
    for word in overrides:
        check_option(word)
        for row in rows:
            for own in row.overrides:
                if own != word and f"{key_of(own)}.".startswith(f"{key_of(word)}."):
                    raise ConfigError(
                        f"{word}: row {row.name} sets {own} itself, the two would contradict each other. "
                        "Leave it out, or add a row of your own to a copy of the experiment's file"
                    )


def key_of(word: str) -> str:
    """The configuration key that an override sets."""
    return str(parse(word).get_key_element()).lstrip("+~").replace("/", ".").partition("@")[0]
