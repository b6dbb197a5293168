"""Expansion of an experiment into runs: rows times axes, each a validated configuration."""

import contextlib
import difflib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from omegaconf import ListConfig, OmegaConf

from scpo.errors import ConfigError
from scpo.records.identity import run_id, settings_digest
from scpo.records.manifest import Manifest, PlannedRow, PlannedRun, PrimaryComparisons
from scpo.records.run_folders import command_on
from scpo.schema.experiment import Experiment, ExperimentRow
from scpo.schema.method import METHOD_LABELS
from scpo.schema.run import RunConfig
from scpo.strict import Scale
from scpo.suggestions import did_you_mean
from sweeps.compose.configuration import compose_experiment, compose_raw, seeded_runs
from sweeps.compose.effects import repeated, unread_in_rows
from sweeps.compose.overrides import AXES_HINT, Override, file_of, parse, parse_all, where_is
from sweeps.compose.row_checks import (
    Point,
    check_comparisons,
    environments_of_rows,
    given_twice,
    refuse_axes_of_machine,
    refuse_misplaced,
    refuse_two_settings,
)
from sweeps.compose.schema_keys import fields_at

# Axis -> the configuration key that it sets.
AXIS_KEYS = {"env": "env", "model": "model", "seeds": "seed"}
NAMED_IN_LABELS = ("method", "scorer")

# One override for each value of the axis.
Axis = tuple[Override, ...]


@dataclass(frozen=True)
class Cell:
    """One run as a member of one row."""

    row: ExperimentRow
    run_id: str
    config: RunConfig


@dataclass
class Matrix:
    """All runs of an experiment at one scale.

    Rows with equal configurations share a run. ``notes``: remarks for the user, such as which rows
    do. ``asked_as``: the overrides that select the experiment if its name does not suffice.
    ``other_settings``: ``PlannedRow.settings`` of the rows that are not run.
    """

    experiment: Experiment
    scale: Scale
    overrides: tuple[Override, ...]
    asked_as: tuple[str, ...] = ()
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    other_settings: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, RunConfig]:
        """Run id -> configuration, each run once, in the order of the table."""
        return {cell.run_id: cell.config for cell in self.cells}

    @property
    def points(self) -> dict[str, list[Point]]:
        """Row -> benchmark, model and seed of each of its runs."""
        points: dict[str, list[Point]] = {}
        for cell in self.cells:
            point = (cell.config.env.benchmark, cell.config.model.name, cell.config.seed)
            points.setdefault(cell.row.name, []).append(point)
        return points

    @property
    def identity_overrides(self) -> list[str]:
        """Overrides that affect the result, without those of the machine."""
        return [override.text for override in self.overrides if not override.of_machine]

    @property
    def manifest(self) -> Manifest:
        """The experiment's manifest: its rows and the runs of each."""
        primary = None
        if self.experiment.primary is not None:
            primary = PrimaryComparisons.model_validate(self.experiment.primary.model_dump())
        return Manifest(
            experiment=self.experiment.name,
            title=self.experiment.title,
            scale=self.scale,
            overrides=tuple(self.identity_overrides),
            asked_as=self.asked_as,
            primary=primary,
            rows=tuple(self._planned(row) for row in self.experiment.rows),
        )

    def _planned(self, row: ExperimentRow) -> PlannedRow:
        runs = []
        for cell in self.cells:
            if cell.row.name != row.name:
                continue
            planned = PlannedRun(
                id=cell.run_id,
                env=cell.config.env.benchmark,
                model=cell.config.model.name,
                seed=cell.config.seed,
                settings=settings_digest(cell.config),
            )
            runs.append(planned)
        settings = self.other_settings.get(row.name, {})
        return PlannedRow(
            name=row.name,
            label=row.label,
            runs=tuple(runs),
            chosen=bool(runs) or self.scale not in row.scales,
            settings=settings,
        )

    def add(self, row: ExperimentRow, config: RunConfig) -> None:
        """Add a run to a row; ConfigError if nothing in this repository can start it."""
        config.check_started_here()
        name = run_id(config)
        same = [cell for cell in self.cells if cell.run_id == name]
        # A seed may be given twice, or a row may override what distinguishes two values of an axis.
        if any(cell.row == row for cell in same):
            return
        if same:
            self.notes.append(
                f"row {row.name} and row {same[0].row.name} are the same run {name}; it runs once"
            )
        self.cells.append(Cell(row, name, config))


def expand(name: str, overrides: Iterable[str | Override] = ()) -> Matrix:
    """Compose every run of an experiment.

    - An override of an axis (``env=alfworld``, ``'seeds=[0,1]'``) replaces the axis.
    - ``'rows=[scpo,gigpo]'`` selects the rows that have runs.
    - Several values (``key=a,b``) add an axis.
    - Any other override applies to every row, after the row's own overrides, and may not contradict
      them.

    Raises:
        ConfigError: An override is wrong, a run cannot be composed, no row has a run at this scale,
            a row has two settings of one benchmark and model, or a named comparison can never have
            a pair.
    """
    chosen, rest = _split(parse_all(map(str, overrides)))
    selected, rest = _split_rows(rest)
    _refuse_misspelt_seeds(rest)
    of_scale = [override for override in rest if override.key == "scale"]
    of_file, scale = compose_experiment(name, of_scale)
    experiment = of_file.for_scale(scale)
    refuse_misplaced(experiment, scale)
    added, common = split_axes(experiment, rest, scale)
    # With those that are given twice.
    given_values = {word.key: list(_values_of_axis(experiment, word, scale)) for word in rest}
    refuse_axes_of_machine(added)

    # Only the rows of the file are checked, before the axes add others: with method=scpo and
    # method.shaper.theta=0.4,0.6, each new row sets a key of the method without a contradiction.
    first_values = [axis[0] for axis in added]
    _refuse_contradictions(experiment.rows, [*first_values, *common])
    experiment = with_axes(experiment, added) if added else _labelled(experiment, common)
    # Values from the command line replace the experiment's.
    axes = {axis: chosen.get(axis) or _axis(experiment, axis, scale, name) for axis in AXIS_KEYS}
    words = [*_foreign(experiment, chosen, scale), *map(_axis_word, added)]
    matrix = Matrix(experiment, scale, tuple(common), _asked_as(experiment, name, words))

    # The other rows stay in the experiment, so that its manifest keeps the runs that they have.
    rows = _selected(experiment.rows, selected)
    here = [row for row in rows if scale in row.scales]
    _add_runs(matrix, here, axes)
    others = [row for row in experiment.rows if row not in rows and scale in row.scales]
    matrix.other_settings = _settings_of(matrix, others, axes)
    if not matrix.cells:
        which = f"the rows {', '.join(row.name for row in rows)}" if selected else "its rows"
        raise ConfigError(
            f"+experiment={name} scale={scale}: none of {which} runs at this scale; allowed: "
            + ", ".join(f"scale={each}" for each in _scales_of(rows))
        )
    refuse_two_settings(matrix.points, axes)

    matrix.notes += check_comparisons(experiment, matrix.points, chosen)
    matrix.notes += given_twice(of_file, scale)
    matrix.notes += environments_of_rows(here, axes["env"])
    matrix.notes += _notes(matrix, rows, axes | given_values, selected)
    given = [override for override in common if override.key != "scale" and not override.of_machine]
    # These overrides compose other runs than the exported one on purpose. Seeds do not: the note
    # compares the runs at the seed of the exported one.
    if not (given or added or selected or chosen.keys() - {"seeds"}):
        matrix.notes += _no_longer_as_exported(matrix, name)
    return matrix


def _asked_as(experiment: Experiment, asked: str, words: Sequence[str]) -> tuple[str, ...]:
    """Arguments that select the experiment; empty if its name suffices.

    Args:
        experiment: The experiment with the axes of the command line.
        asked: The name or the file of the experiment, as typed.
        words: Further arguments, of axes and their values.
    """
    asked_as = (f"+experiment={asked}", *words)
    return () if asked_as == (f"+experiment={experiment.name}",) else asked_as


def _add_runs(
    matrix: Matrix, rows: Iterable[ExperimentRow], axes: Mapping[str, Sequence[Any]]
) -> None:
    """Add the runs of these rows of the experiment."""
    shared = parse_all(matrix.experiment.shared_overrides(matrix.scale))
    for row in rows:
        for config in _row_runs(row, axes, shared, matrix.overrides):
            _refuse_label_of_another(matrix.experiment.name, row, config)
            _refuse_label_of_unchanged_method(matrix.experiment.name, row, config)
            matrix.add(row, config)


def _settings_of(
    matrix: Matrix, rows: Iterable[ExperimentRow], axes: Mapping[str, Sequence[Any]]
) -> dict[str, dict[tuple[str, str], str]]:
    """Row -> environment and model -> hash of the settings that its runs would have now.

    After an edit of a method's file, runs of earlier calls have other settings than their row.
    """
    shared = parse_all(matrix.experiment.shared_overrides(matrix.scale))
    one_seed = {**axes, "seeds": axes["seeds"][:1]}
    found: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows:
        # A row that cannot be composed here is not run, and keeps the runs that it has.
        with contextlib.suppress(ConfigError):
            for config in _row_runs(row, one_seed, shared, matrix.overrides):
                place = config.env.benchmark, config.model.name
                found.setdefault(row.name, {})[place] = settings_digest(config)
    return found


def _scales_of(rows: Iterable[ExperimentRow]) -> list[str]:
    """Scales at which any of these rows runs."""
    return sorted({scale for row in rows for scale in row.scales})


def _notes(
    matrix: Matrix,
    rows: Sequence[ExperimentRow],
    axes: Mapping[str, Sequence[Any]],
    selected: Override | None,
) -> Iterator[str]:
    """Note rows without runs, values that are given twice, and settings without an effect.

    Args:
        matrix: The complete matrix.
        rows: The selected rows.
        axes: Values of the axes.
        selected: The override that selects rows; None without one.
    """
    left_out = []
    for row in matrix.experiment.rows:
        if row not in rows and matrix.scale in row.scales:
            left_out.append(row.name)
    if left_out:
        yield (
            f"{selected}: no runs of {', '.join(left_out)} (n/a in tables unless they ran earlier)"
        )
    yield from repeated(axes)
    for row in rows:
        if matrix.scale in row.scales:
            yield from repeated({f"row {row.name}, seeds": row.seeds or ()})
    yield from unread_in_rows(list(matrix.runs.values()))


def _no_longer_as_exported(matrix: Matrix, asked: str) -> Iterator[str]:
    """Note an exported experiment that composes another run than its own; ``asked``: its file."""
    exported = matrix.experiment.of_run
    if exported is None:
        return
    # The exported run's id ends in s<seed>-<hash>. Other seeds may be asked for, so the runs are
    # compared at that seed.
    seed = int(exported.rsplit("-", 2)[1].removeprefix("s"))
    ids = [run_id(config.model_copy(update={"seed": seed})) for config in matrix.runs.values()]
    runs_dir = Path(matrix.cells[0].config.machine.runs_dir)
    if exported not in ids:
        yield (
            f"{asked} is no longer the configuration of run {exported}: a file of conf/ that it "
            f"builds on, or {asked} itself, has changed since the export. To restore the run's: "
            f"{command_on(runs_dir, 'sweeps export', exported)}; if the change is meant, delete "
            f"of_run in {asked}"
        )


def _split_rows(
    overrides: Sequence[Override],
) -> tuple[Override | None, tuple[Override, ...]]:
    """Split the selection of rows (``'rows=[a,b]'``) from all other overrides."""
    selected = [override for override in overrides if override.text.startswith("rows=")]
    rest = tuple(override for override in overrides if override not in selected)
    return (selected[-1] if selected else None), rest


def _selected(
    rows: Sequence[ExperimentRow], selection: Override | None
) -> tuple[ExperimentRow, ...]:
    """The selected rows, in the order of the experiment; all without a selection.

    Raises:
        ConfigError: A selected row does not exist, or none is selected.
    """
    if selection is None:
        return tuple(rows)
    known = [row.name for row in rows]
    names = _values(selection)
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{selection}: no row is called {name!r}{did_you_mean(str(name), known)}; allowed: "
                f"{', '.join(known)}"
            )
    return tuple(row for row in rows if row.name in names)


def _row_runs(
    row: ExperimentRow,
    axes: Mapping[str, Sequence[Any]],
    shared: Sequence[Override],
    common: Sequence[Override],
) -> Iterator[RunConfig]:
    """Compose the runs of a row: at each choice of environment and model, and each seed.

    Args:
        row: The row.
        axes: Values of the axes by ``AXIS_KEYS``.
        shared: Overrides of the experiment.
        common: Overrides of the command line.
    """
    own = parse_all(row.overrides)
    fixed = {override.key for override in own}
    # An axis that a row sets itself does not vary that row. Seeds are not varied here, because
    # ``seeded_runs`` sets all of them in one composition.
    groups = {}
    for axis, values in axes.items():
        if axis not in fixed and axis != "seeds":
            groups[axis] = values
    seeds = axes["seeds"] if row.seeds is None else row.seeds

    # The command line replaces overrides of the experiment, but not of its rows.
    given = {override.key for override in common}
    kept = [override for override in shared if override.key not in given]
    for choice in itertools.product(*groups.values()):
        chosen: list[str] = []
        for axis, value in zip(groups, choice, strict=True):
            # A value may bring an override of its own: `webshop env.setting=paper`.
            chosen += f"{axis}={value}".split()
        try:
            # In Hydra the last override wins: the experiment's, the row's, the command line's.
            yield from seeded_runs([*parse_all(chosen), *kept, *own, *common], seeds)
        except ConfigError as error:
            raise ConfigError(f"row {row.name}: {error}") from None


def _refuse_label_of_another(experiment: str, row: ExperimentRow, config: RunConfig) -> None:
    """Refuse a row with the label of a method that it does not run."""
    name = config.method.name
    own = METHOD_LABELS.get(name)
    methods = [method for method, label in METHOD_LABELS.items() if label == row.label]
    if methods and row.label != own:
        raise ConfigError(
            f"experiment {experiment}, row {row.name}: its label {row.label} is that of "
            f"method={methods[0]}, but it runs method={name}: give it the label "
            f"{own or name}, or method={methods[0]} in its overrides"
        )


def _refuse_label_of_unchanged_method(
    experiment: str, row: ExperimentRow, config: RunConfig
) -> None:
    """Refuse a row that changes settings of its method and has the label of the method as it is."""
    if row.label != METHOD_LABELS.get(config.method.name):
        return
    changed = [str(own) for own in parse_all(row.overrides) if own.key.startswith("method.")]
    if changed:
        raise ConfigError(
            f"experiment {experiment}, row {row.name}: its label {row.label} is that of "
            f"method={config.method.name} as it is, but the row has {' '.join(changed)}: give it "
            f'a label of its own, such as "{row.label}, {changed[0].removeprefix("method.")}"'
        )


def _split(overrides: Sequence[Override]) -> tuple[dict[str, list[Any]], tuple[Override, ...]]:
    """Split the values of env, model and seeds from all other overrides.

    Raises:
        ConfigError: One of the three has no value, or ``seed`` is set in their place.
    """
    axes: dict[str, list[Any]] = {}
    rest = []
    for override in overrides:
        _refuse_ambiguous_seeds(override)
        if override.key in AXIS_KEYS and (override.axis or override.value is not None):
            axes[override.key] = _values(override)
        elif override.key in AXIS_KEYS.values():
            # An axis without a value (``env=null``), or ``seed`` instead of ``seeds``.
            values = override.text.partition("=")[2].strip("[]")
            meant = f"; write 'seeds=[{values}]'" if override.key == "seed" else ""
            raise ConfigError(
                f"{override}: the axes of an experiment take values or lists: {AXES_HINT}{meant}"
            )
        else:
            rest.append(override)
    return axes, tuple(rest)


def _refuse_ambiguous_seeds(override: Override) -> None:
    """Refuse ``seeds=3``: the seed 3 or, as in the file of an experiment, three seeds?"""
    number = override.value
    # Lists are clear; None is refused with the axes that have no value.
    if override.key != "seeds" or not isinstance(number, int | float | str):
        return
    # Python counts True as an int.
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(f"{override}: seeds are whole numbers from 0: 'seeds=[0,1,2]'")
    message = f"{override}: the seed {number} is 'seeds=[{number}]'"
    if number > 1:
        several: Sequence[Any] = range(number)
        if number > 10:
            several = (0, 1, "...", number - 1)
        message += f", {number} seeds are 'seeds=[{','.join(map(str, several))}]'"
    raise ConfigError(message)


def _refuse_misspelt_seeds(overrides: Sequence[Override]) -> None:
    """Refuse an unknown key that is most similar to ``seeds``, which is an axis and not a key."""
    keys = set(fields_at((), RunConfig)) - {"seed"}
    for override in overrides:
        near = difflib.get_close_matches(override.key, [*sorted(keys), "seeds"], n=1)
        if near == ["seeds"] and override.key not in keys:
            raise ConfigError(f"{override}: unknown key {override.key}; did you mean seeds?")


def _values(override: Override) -> list[Any]:
    """Values of an axis: of ``env=a,b``, ``'env=[a,b]'`` or ``env=a``."""
    if override.axis:
        values = [parse(f"{override.key}={text}").value for text in override.axis]
    elif isinstance(override.value, list):
        values = override.value
    else:
        values = [override.value]
    if not values:
        raise ConfigError(f"{override}: an axis needs at least one value")
    # Seeds are integers; all other axes name files.
    return [value if isinstance(value, int) else str(value) for value in values]


def _axis(experiment: Experiment, axis: str, scale: str, asked: str) -> list[Any]:
    """Values of an axis; ``asked``: the name or the file of the experiment, as typed."""
    # The schema restricts axis and scale to the allowed names.
    values = experiment.axis(axis, scale)  # type: ignore[arg-type]
    if not values:
        path = asked if asked.endswith(".yaml") else where_is(file_of("experiment", asked))
        others = []
        for each in get_args(Scale):
            if experiment.axis(axis, each):  # type: ignore[arg-type]
                others.append(each)
        meant = "".join(f"scale={each}, which it has, or " for each in others)
        raise ConfigError(
            f"{path} has no {axis} for scale={scale}; give {meant}'{axis}=[...]', or add it under "
            "axes in the file"
        )
    return list(values)


def _refuse_contradictions(rows: Sequence[ExperimentRow], overrides: Sequence[Override]) -> None:
    """Refuse an override of a key that a row sets itself, or of a section of it."""
    for override in overrides:
        override.check()
        for row in rows:
            for own in row.overrides:
                if own != override.text and f"{parse(own).key}.".startswith(f"{override.key}."):
                    raise ConfigError(
                        f"{override}: row {row.name} sets {own} itself, which this contradicts. "
                        "Leave it out, or add a row of your own to a copy of the experiment's file"
                    )


# Axes of the command line: ``key=a,b`` or ``'key=[a,b]'`` repeats each row for each value.


def split_axes(
    experiment: Experiment, overrides: Sequence[Override], scale: Scale
) -> tuple[tuple[Axis, ...], tuple[Override, ...]]:
    """Split overrides into axes and all others.

    A list is an axis unless the value of the key is itself a list.
    """
    axes = []
    rest = []
    for override in overrides:
        if texts := _values_of_axis(experiment, override, scale):
            key = override.text.partition("=")[0]
            # A value that is given twice counts once (see ``_notes``).
            axes.append(tuple(parse(f"{key}={text}") for text in dict.fromkeys(texts)))
        else:
            rest.append(override)
    return tuple(axes), tuple(rest)


def _values_of_axis(experiment: Experiment, override: Override, scale: Scale) -> tuple[str, ...]:
    """Values of an override that is an axis, as Hydra writes them; empty for others."""
    if _is_axis(experiment, override, scale):
        return tuple(_axis_texts(override))
    return override.axis


def _foreign(experiment: Experiment, chosen: dict[str, list[Any]], scale: Scale) -> Iterator[str]:
    """Overrides that choose environments and models which the experiment's file does not have."""
    for axis in ("env", "model"):
        values = chosen.get(axis, [])
        if not set(values) <= set(experiment.axis(axis, scale)):
            yield f"{axis}=[{','.join(map(str, values))}]"


def _axis_word(axis: Axis) -> str:
    """The axis as it is given on a command line: ``method=gigpo,scpo``."""
    key = axis[0].text.partition("=")[0]
    values = ",".join(override.text.partition("=")[2] for override in axis)
    # A single value in brackets is still an axis.
    return f"{key}={values}" if len(axis) > 1 else f"{key}=[{values}]"


def with_axes(experiment: Experiment, axes: Sequence[Axis]) -> Experiment:
    """Cross the rows of an experiment with the axes.

    The result has a name of its own, so that its manifest does not replace the experiment's.
    """
    if not axes:
        return experiment
    short = _short_names(axis[0].key for axis in axes)
    names = [short[axis[0].key] for axis in axes]
    roots = [_root(axis) for axis in axes]
    rows = [
        _row(experiment, row, point, short, roots)
        for row in experiment.rows
        for point in itertools.product(*axes)
    ]
    names_of_rows = _distinct([row.name for row in rows])
    rows = [
        row.model_copy(update={"name": name}) for row, name in zip(rows, names_of_rows, strict=True)
    ]
    return Experiment(
        name="_".join([experiment.name, "by", *map(_slug, names)]),
        title=f"{experiment.title}, by {' and '.join(names)}",
        axes=experiment.axes,
        overrides=experiment.overrides,
        rows=tuple(rows),
    )


def _row(
    experiment: Experiment,
    row: ExperimentRow,
    point: Sequence[Override],
    short: Mapping[str, str],
    roots: Sequence[str],
) -> ExperimentRow:
    """A row at one point of the axes, named by the values: ``gigpo``, ``theta_0_4``.

    The values form the whole name if the experiment has a single row without overrides.
    """
    only = len(experiment.rows) == 1 and not row.overrides
    names = [] if only else [row.name]
    labels = [] if only else [row.label]
    for override, root in zip(point, roots, strict=True):
        value = override.text.partition("=")[2]
        # A chosen file (method, scorer, ...) needs no key in front of its name.
        if override.is_choice and not override.is_host:
            names.append(_slug(value))
        else:
            names += [_slug(short[override.key]), _slug(value)]
        labels.append(_label(override, short, root))

    return row.model_copy(
        update={
            "name": "_".join(names),
            "label": ", ".join(labels),
            "overrides": (*row.overrides, *(override.text for override in point)),
        }
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of rows, with ``_2`` (or the next free number) added to one that is repeated.

    Two values of an axis may differ only in characters that no name has (``v1.0`` and ``v1-0``,
    -1 and 1). Names that are not repeated stay as they are, because records know rows by them.
    """
    taken = set(names)
    distinct = []
    seen = set()
    for name in names:
        own = name
        if name in seen:
            own = next(each for n in itertools.count(2) if (each := f"{name}_{n}") not in taken)
        seen.add(name)
        taken.add(own)
        distinct.append(own)
    return distinct


def _root(axis: Axis) -> str:
    """The folder that all values of an axis of absolute paths are in, for labels without it.

    Empty if there is only one value, or a value is another text (a name on the hub).
    """
    values = [override.text.partition("=")[2] for override in axis]
    if len(values) < 2 or not all(value.startswith("/") for value in values):
        return ""
    root = os.path.commonpath([os.path.dirname(value) for value in values]).rstrip("/") + "/"
    # commonpath leaves out "." and "//", which a value may have: it keeps its full path then.
    return root if all(value.startswith(root) for value in values) else ""


def _label(override: Override, short: Mapping[str, str], root: str = "") -> str:
    """The override in a row's label, without ``root``: ``SCPO``, ``lexical``, ``theta = 0.4``."""
    value = override.text.partition("=")[2].removeprefix(root)
    if not override.is_choice or override.is_host:
        return f"{short[override.key]} = {value}"
    return METHOD_LABELS.get(value, value) if override.key == "method" else value


def _labelled(experiment: Experiment, common: Sequence[Override]) -> Experiment:
    """Label an experiment's only row, if it has no overrides, by those of the command line.

    ``SCPO, states = facts`` instead of "as configured". Settings of the trainer, the environment
    and the like are left out, because the whole table has and names them. A given method names the
    row, too, as it does in an axis of methods.
    """
    if len(experiment.rows) != 1 or experiment.rows[0].overrides:
        return experiment
    given = [override for override in common if override.key.partition(".")[0] in NAMED_IN_LABELS]
    # Later overrides win. Sorted by key: a choice (method) comes before its settings (method.x).
    last = {override.key: override for override in given}
    short = _short_names(last)
    labels = [_label(last[key], short) for key in sorted(last)]
    if not labels:
        return experiment
    row = experiment.rows[0].model_copy(update={"label": ", ".join(labels)})
    if "method" in last and last["method"].is_choice:
        name = _slug(last["method"].text.partition("=")[2])
        row = row.model_copy(update={"name": name})
    return experiment.model_copy(update={"rows": (row,)})


def _is_axis(experiment: Experiment, override: Override, scale: Scale) -> bool:
    """True if an override with a list in brackets is an axis: its key takes a single value."""
    if not isinstance(override.value, list) or not override.sets:
        return False
    if override.is_group or override.is_host:
        return True
    # The configuration of the first row shows whether the key takes a list.
    chosen = (f"scale={scale}", *experiment.shared_overrides(scale), *experiment.rows[0].overrides)
    value = OmegaConf.select(compose_raw(parse_all(chosen)), override.key)
    return not isinstance(value, ListConfig)


def _axis_texts(override: Override) -> tuple[str, ...]:
    if not override.value:
        raise ConfigError(f"{override}: an axis needs at least one value")
    return tuple(map(_text, override.value))


def _text(value: Any) -> str:
    """The value as an override in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        raise ConfigError(
            f"{value}: an axis takes plain values; write a row for it in a file of your own"
        )
    text = str(value)
    if not isinstance(value, str) or re.fullmatch(r"[\w./:-]+", text):
        return text
    return "'" + text.replace("'", "\\'") + "'"


def _short_names(keys: Iterable[str]) -> dict[str, str]:
    """Key -> the fewest of its last parts that no other key ends in: ``theta``.

    ``method.shaper.states`` and ``method.estimator.states`` are ``shaper.states`` and
    ``estimator.states``.
    """
    parts = {key: key.split(".") for key in keys}
    short = {}
    for key, own in parts.items():
        others = [other for name, other in parts.items() if name != key]
        count = 1
        while count < len(own) and any(other[-count:] == own[-count:] for other in others):
            count += 1
        short[key] = ".".join(own[-count:])
    return short


def _slug(text: str) -> str:
    # The name of a row may not be empty.
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "x"
