"""Runs as pandas data frames, for notebooks: ``scpo.load_runs`` and ``scpo.compare``.

Both use the readers of the tables and figures. So damaged runs are left out here, too, and a run
that an experiment plans has the name of its row.
"""

import difflib
import functools
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pandas as pd

from analysis.rendering.table import BY_CHANCE
from analysis.sources.code_versions import (
    ITS_SEEDS,
    SEVERAL,
    SEVERAL_PROCESSORS,
    STUDY,
    WITHDRAWN,
    CodeOf,
    mixed_code,
    moved_by_entropy_alone,
    several_versions,
)
from analysis.sources.collect import collect
from analysis.sources.collected import Collected
from analysis.sources.configurations import configuration_of, short_hash
from analysis.sources.near_misses import folder_meant
from analysis.sources.rows import Row, RowRun, Section, seed_list
from analysis.sources.run_records import SINGLE, Run, one_type
from analysis.sources.series import Series, make_series
from analysis.sources.settings import (
    COMPARED_BY,
    own_method_differences,
    setting_differences,
    variants,
)
from analysis.sources.shared_settings import estimator_differences
from analysis.sources.unrecorded import full_name, names_apart, variant_note, variant_notes
from analysis.sources.wandb_project import ADDRESS, Settings
from analysis.stats.seed_statistics import holm, p_value, paired
from scpo.errors import ConfigError, RecordError
from scpo.intervals import summarise
from scpo.progress import counted
from scpo.records.archive_index import METRICS
from scpo.records.status import State

COLUMNS = (
    "run", "method", "seed", "row", "step", "metric", "value", "env", "model", "scale", "setting",
    "differs", "configuration",
)  # fmt: skip

# Success on a whole panel, without its task families.
OVERALL = re.compile(r"val/[^/]+/success_rate")

# How the warning about pairs of two settings begins.
OTHER_SETTINGS = "different settings: "

# Found at the end of those parts of a row's note that compare the row with others of its table:
# "(the others: verl)" or "3 more settings", but not "(default: 0.5)".
COMPARES_WITH_TABLE = re.compile(
    r"\((?!default: )[^()]*(?:\([^()]*\)[^()]*)?: [^()]*\)$|^\d+ more settings?$"
)

# How ``compare`` reads one number from a curve: at a training step, or by one of ``READINGS``.
At: TypeAlias = int | Literal["last", "best", "mean", "area"]
READINGS = ("last", "best", "mean", "area")

# The columns that name one value of a frame.
VALUE_OF = ["run", "metric", "step"]

# Columns of numbers -> what they are, and their type as ``astype`` takes it.
NUMBERS = {
    "seed": ("seeds are whole numbers", "int"),
    "step": ("steps are whole numbers", "int"),
    "value": ("values are numbers", "float"),
}

# Types of an argument that is one item although it can be iterated over.
SINGLE_ITEMS = (str, bytes, Mapping, pd.DataFrame)

# What an argument that takes metrics needs, for errors.
A_METRIC = 'give the name of a metric, with * for any text, or a list of names, e.g. "val/*"'

# Number of characters of a wrong argument that an error shows.
LONGEST_SHOWN = 100


def load_runs(
    source: str | Path | Iterable[str | Path],
    *,
    metrics: str | Iterable[str] | None = None,
    finished: bool = True,
    refresh: bool = False,
) -> pd.DataFrame:
    """Read every logged value of every run, one row each.

    Args:
        source: A folder of run folders, an archive (``docs/study``), a W&B project
            (``"wandb:entity/project"`` or its address), or several of them. A project is
            downloaded once into ``.cache/scpo/wandb`` and then read from there. Offline folders of
            W&B are not read: ``wandb sync`` uploads them to a project.
        metrics: Names to keep, with ``*`` for any text, e.g. ``"val/*/success_rate"``; None: all.
        finished: Leave out unfinished runs, which have no last checkpoint to compare.
        refresh: Download runs from W&B again that have changed since the last download.

    Returns:
        A data frame with the columns ``run, method, seed, row, step, metric, value`` and ``env,
        model, scale, setting, differs, configuration``, sorted by run, metric and step. The last
        six show which runs must not be pooled.

        - ``row`` is the name of the run's row in the tables (``scpo``, ``chronological``, ...). If
          a run is in rows of several names, it has the name that most runs of its configuration
          have; if several names are equally frequent, the first table's. For a run in no
          experiment, ``row`` is the choices in its id, or else its method, followed by what differs
          if such runs have several configurations (``scpo_alpha_2.0``).
        - ``setting`` is equal for runs that share a table.
        - ``differs`` names the settings, besides the method, in which the row's runs differ from
          the other rows of its table.
        - ``configuration`` is equal for runs that differ only in the seed, in any table;
          ``attrs["configurations"]`` has each as JSON.

        ``attrs["left_out"]`` lists runs and files that were left out, with the reasons.

    Raises:
        ConfigError: An argument has another type, or is an empty list.
        RecordError: A folder does not exist, a project cannot be read, the sources hold no runs, or
            all of their runs are damaged.

    Warns:
        UserWarning: A run was left out because it is damaged or not finished, a run was trained as
            the study's withdrawn first edition was, a file was changed but nothing of it left out,
            or no run has one of ``metrics``.
    """
    sources, names = _checked_arguments(source, metrics, finished, refresh)
    data = _collected(sources, refresh=refresh)
    runs = _runs_frame(data)
    if finished:
        runs = runs[runs["finished"]]
    # Damaged runs are left out even with ``finished=False``: none of their numbers is read.
    left_out = _left_out(data, runs[runs["state"] != State.DAMAGED])
    for message in _reading_warnings(data, runs, left_out):
        warnings.warn(message, UserWarning, stacklevel=2)
    logged = data.metrics[data.metrics["run"].isin(runs.index)]
    # The collected data has categoricals here, whose `groupby` shows categories without lines, too.
    logged = logged.astype({"run": str, "metric": str})
    if names is not None:
        logged = _of_metrics(logged, names)
    joined = logged.join(runs.drop(columns=["state", "finished"]), on="run")
    table = joined[list(COLUMNS)].reset_index(drop=True)
    table.attrs["left_out"] = left_out
    # As texts, because pandas copies ``attrs`` with every selection, and texts copy fast.
    texts = (configuration_of(run.config) for run in data.by_id.values() if not run.foreign)
    table.attrs["configurations"] = {short_hash(text): text for text in texts}
    codes = {}
    for run, own in data.by_id.items():
        weights = {path: sorted(content) for path, content in own.weights.items()}
        codes[run] = [own.code, str(own.folder), own.commit, weights]
    table.attrs["code"] = json.dumps(codes)
    processors = {run: (own.processor, own.torch_capability) for run, own in data.by_id.items()}
    table.attrs["processors"] = json.dumps(processors)
    return table


def _reading_warnings(
    data: Collected, runs: pd.DataFrame, left_out: Sequence[str]
) -> Iterator[str]:
    """Yield warnings about what was left out, changed files, and withdrawn runs."""
    if left_out:
        yield (
            f"runs or files were left out, for {counted(len(left_out), 'reason')} "
            f"(attrs['left_out']); the first: {left_out[0]}"
        )
    for problem in data.problems:
        if problem.harmless:
            yield f"nothing was left out, but {problem.path}: {problem.reason}"
    if withdrawn := _withdrawn(data, runs):
        yield withdrawn


def _of_metrics(logged: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Lines of these metrics (``*`` for any text); warns if there are none."""
    wanted = _pattern(names)
    # On an empty column `map` returns objects instead of booleans, which would select columns.
    matches = logged["metric"].map(lambda name: wanted.fullmatch(name) is not None).astype(bool)
    chosen = logged[matches]
    # If no run has any line, the warning about what was left out has the reasons.
    if chosen.empty and not logged.empty:
        known = sorted(set(logged["metric"]))
        close = difflib.get_close_matches(names[0], known, n=5, cutoff=0.3)
        message = (
            f"no run has a metric {', '.join(names)}; among the {len(known)} that they have: "
            f"{', '.join(close or known[:5])}"
        )
        # stacklevel 3 names the line that called `load_runs`.
        warnings.warn(message, UserWarning, stacklevel=3)
    return chosen


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Pattern of metrics with one of these names, in which ``*`` is any text."""
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))


def _withdrawn(data: Collected, runs: pd.DataFrame) -> str:
    """Warning about runs that were trained as the study's first edition; empty without any."""
    study = runs.index[runs["scale"] == STUDY]
    moved = [run for run in study if moved_by_entropy_alone(data.by_id[run])]
    return f"{counted(len(moved), 'run')} {WITHDRAWN}" if moved else ""


def _left_out(data: Collected, runs: pd.DataFrame) -> list[str]:
    """One reason for each run or file that is not among ``runs``."""
    reasons: dict[str, str] = {}
    for problem in data.problems:
        # The problem SINGLE is a note for tables: here, runs in no experiment are not left out.
        if problem.path != SINGLE and not problem.harmless:
            reasons.setdefault(problem.path, problem.reason)
    for run in data.runs[~data.runs["finished"]].itertuples():
        # The problems list damaged runs already, with the details.
        if run.state != State.DAMAGED:
            reasons[run.id] = f"not finished ({run.state})"
    return [f"{path}: {reason}" for path, reason in reasons.items() if path not in runs.index]


def _checked_arguments(
    source: Any, metrics: Any, finished: Any, refresh: Any
) -> tuple[list[str | Path], list[str] | None]:
    """The sources and the names of metrics of ``load_runs``, as lists; None for all metrics.

    Raises:
        ConfigError: An argument has another type, or is an empty list.
    """
    for name, value in (("finished", finished), ("refresh", refresh)):
        if not isinstance(value, bool):
            raise ConfigError(f"load_runs({name}): got {_shown(value)}; give True or False")
    sources = _listed(
        source,
        str | Path,
        "load_runs(source)",
        'name a folder of run folders, an archive, "wandb:<entity>/<project>", or a list of them, '
        'e.g. load_runs("runs")',
    )
    if metrics is None:
        return sources, None
    return sources, _listed(metrics, str, "load_runs(metrics)", A_METRIC)


def _listed(value: Any, allowed: Any, argument: str, needed: str) -> list[Any]:
    """One item or several, as a list.

    Args:
        value: The item, or an iterable of items.
        allowed: Type of an item.
        argument: The argument, for the error.
        needed: What to give, for the error.

    Raises:
        ConfigError: An item has another type, or there is no item.
    """
    # The items of a mapping would be its keys, and those of a data frame its columns.
    single = not isinstance(value, Iterable) or isinstance(value, SINGLE_ITEMS)
    items = [value] if single else list(value)
    # An empty list is itself the item that the error names.
    for item in items or [value]:
        if not isinstance(item, allowed):
            raise ConfigError(f"{argument}: got {_shown(item)}; {needed}")
    return items


def _shown(value: object) -> str:
    """The value in an error: on one line, and cut off if it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _collected(sources: Sequence[str | Path], *, refresh: bool) -> Collected:
    """Read the runs of folders, archives and W&B projects.

    Raises:
        RecordError: As in ``load_runs``.
    """
    folders: list[Path] = []
    projects: list[str] = []
    for source in sources:
        project = ADDRESS.fullmatch(source) if isinstance(source, str) else None
        if project:
            projects.append(project[1])
            continue
        # A path may contain a colon, but this prefix always means a project.
        if str(source).startswith("wandb:"):
            raise RecordError(f'{source} names no W&B project; write "wandb:<entity>/<project>"')
        folders.append(_existing_folder(source))

    data = collect(folders, projects, Settings(refresh=refresh))
    if data.runs.empty:
        reason = f": {data.problems[0].reason}" if data.problems else ""
        places = ", ".join(map(str, sources))
        raise RecordError(f"no runs were found in {places}{folder_meant(folders) or reason}")
    if data.metrics.empty and (data.runs["state"] == State.DAMAGED).any():
        # The damaged metrics file of an archive is named first: it has the numbers of all runs.
        files = [problem for problem in data.problems if problem.path.endswith(METRICS)]
        first = (*files, *data.problems)[0]
        raise RecordError(f"all runs are damaged: {first.path}: {first.reason}")
    return data


def _existing_folder(source: str | Path) -> Path:
    folder = Path(source)
    if folder.is_file():
        raise RecordError(
            f"{source} is a file; name a folder of run folders or an archive"
            f"{folder_meant([folder])}"
        )
    if not folder.is_dir():
        hint = folder_meant([folder])
        if not hint and re.fullmatch(r"[^/]+/[^/]+", str(source)):
            hint = f'; a W&B project is "wandb:{source}"'
        raise RecordError(f"there is no folder {source}{hint}")
    return folder


def _runs_frame(data: Collected) -> pd.DataFrame:
    """Data frame with a row per run id: method, seed, row, setting, ... and ``finished``."""
    runs = data.runs.set_index("id")
    unshown = [
        run for run, names in zip(data.runs["id"], data.runs["rows"], strict=True) if not names
    ]
    own_names = names_apart(unshown, data.by_id, data.experiments)
    row_names = _row_names(data)
    own_names |= _other_configurations(data, row_names)
    row_names |= {run: name for run, (name, _) in own_names.items()}
    columns = runs[["method", "seed", "env", "model", "scale", "state", "finished"]]

    # A section of a table knows more than a single run, for example that each of its rows has its
    # own learning rate, so its setting replaces the run's own.
    settings: dict[str, str | None] = {}
    differs = {run: note for run, (_, note) in own_names.items()}
    variant_of = variant_notes(data.by_id, data.experiments)
    chosen = _sections_of_runs(data, row_names)
    for number, part in enumerate(data.sections):
        code_notes = _code_of_rows(data, part)
        method_notes = _method_notes(data, part)
        for row in part.all_rows():
            for run in row.runs:
                if chosen.get(run.id) != number or row.name != row_names[run.id]:
                    continue
                settings.setdefault(run.id, part.setting)
                own = variant_of.get(run.id) or method_notes.get(row.name, "")
                notes = (own, row.differs, code_notes[row.name])
                differs.setdefault(run.id, "; ".join(text for text in notes if text))

    ids = list(runs.index)
    return columns.assign(
        row=[row_names[run] for run in ids],
        setting=[settings.get(run, runs.loc[run, "setting"]) for run in ids],
        differs=[differs.get(run, "") for run in ids],
        configuration=[_configuration_hash(data.by_id[run]) for run in ids],
    )


def _sections_of_runs(data: Collected, row_names: Mapping[str, str]) -> dict[str, int]:
    """Run id -> number of its section, for runs that a section shows under the name of their row.

    Several sections may show a run. The setting that most runs of its configuration have comes
    first, so that a row keeps all of its seeds although another experiment has some of them next
    to rows of another setting; then the first section.
    """
    hashes = {run: _configuration_hash(own) for run, own in data.by_id.items()}
    places: dict[str, list[int]] = {}
    # Configuration -> setting -> ids of the runs.
    shown: dict[str, dict[str | None, set[str]]] = {}
    for number, part in enumerate(data.sections):
        for row in part.all_rows():
            for run in row.runs:
                if row_names.get(run.id) == row.name:
                    places.setdefault(run.id, []).append(number)
                    of_configuration = shown.setdefault(hashes[run.id], {})
                    of_configuration.setdefault(part.setting, set()).add(run.id)

    def runs_of_configuration(run: str, number: int) -> int:
        return len(shown[hashes[run]][data.sections[number].setting])

    chosen = {}
    for run_id, numbers in places.items():
        # Among equals, max returns the first.
        chosen[run_id] = max(numbers, key=functools.partial(runs_of_configuration, run_id))
    return chosen


def _method_notes(data: Collected, part: Section) -> dict[str, str]:
    """Row name -> settings of its method that differ from those of the method's own row.

    Without such a row in the section, from those of the method's first row.
    """
    configs: dict[str, tuple[Row, Mapping[str, Any]]] = {}
    for row in part.all_rows():
        runs = (data.by_id[run.id] for run in row.runs if run.id in data.by_id)
        run = next((run for run in runs if not run.foreign and not run.damage), None)
        if run is not None:
            configs.setdefault(row.name, (row, run.config))
    references: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, (row, config) in configs.items():
        if name == row.method or row.method not in references:
            references[row.method] = (name, config)
    notes = {}
    for name, (row, config) in configs.items():
        reference, other = references[row.method]
        # The tables' own notes name the keys of COMPARED_BY.
        noted = [f"method.{key}" for key in COMPARED_BY if f"method.{key}=" in row.differs]
        notes[name] = own_method_differences(config, other, reference, noted)
    return notes


def _row_names(data: Collected) -> dict[str, str]:
    """Run id -> name of its row, for the runs that are in a table.

    If rows of several names have a run, it gets the name that most runs of its configuration have,
    so that a row keeps all of its seeds although another experiment has one of them under another
    name. If several names are equally frequent, it gets the first table's.
    """
    hashes = {run: _configuration_hash(own) for run, own in data.by_id.items()}
    known: dict[str, list[str]] = dict(zip(data.runs["id"], data.runs["rows"], strict=True))
    # Configuration -> name -> number of runs.
    counts: dict[str, Counter[str]] = {}
    for run, names in known.items():
        counts.setdefault(hashes[run], Counter()).update(names)
    chosen = {}
    for run, names in known.items():
        if names:
            # Among equals, max returns the first.
            chosen[run] = max(names, key=counts[hashes[run]].__getitem__)
    return chosen


def _other_configurations(
    data: Collected, row_names: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Names for runs whose row has another configuration in an earlier table of the same setting.

    Returns:
        Id -> name of the row, e.g. ``gigpo_omega_3.0``, and what differs from the earlier row.
    """
    # (scale, environment, model, setting, row name) -> configuration -> its runs, in order.
    rows: dict[tuple[str | None, ...], dict[str, list[str]]] = {}
    for part in data.sections:
        for row in part.all_rows():
            place = (part.scale, part.env, part.model, part.setting, row.name)
            for own in row.runs:
                run = data.by_id.get(own.id)
                if run and not run.foreign and row_names.get(own.id) == row.name:
                    text = configuration_of(run.config)
                    rows.setdefault(place, {}).setdefault(text, []).append(own.id)
    apart = {}
    for (*_, name), configurations in rows.items():
        first, *others = configurations
        for text, variant in zip(others, variants(others, first), strict=True):
            by_ids = names_apart(configurations[text], data.by_id, data.experiments)
            for run_id, (own_name, _) in by_ids.items():
                # As a single run would be called, unless that is what the earlier row is called.
                shown = full_name(str(name), variant) if own_name == name else own_name
                apart[run_id] = (shown, variant_note(variant))
    return apart


def _configuration_hash(run: Run) -> str:
    # A configuration of verl-agent holds names and paths of its run, so no two are equal.
    return run.setting if run.foreign else short_hash(configuration_of(run.config))


def _code_of_rows(data: Collected, part: Section) -> dict[str, str]:
    """Row name -> note if the code differs between the row's seeds in all experiments."""
    runs: dict[str, dict[RowRun, None]] = {}
    for row in part.all_rows():
        runs.setdefault(row.name, {}).update(dict.fromkeys(row.runs))
    notes = {}
    for name, own in runs.items():
        notes[name] = mixed_code(Row(name, name, tuple(own)), data.by_id)
    return notes


def compare(
    first: pd.DataFrame,
    second: pd.DataFrame,
    metric: str | Iterable[str] | None = None,
    *,
    at: At = "last",
) -> pd.DataFrame:
    """Paired differences ``first - second`` over the seeds that both have, as in every table.

    Args:
        first: Rows of ``load_runs`` with one run per seed, e.g. ``runs[runs.row == "scpo"]``. A
            value that is repeated, as in a concatenation of two frames, is taken once.
        second: The same for the runs that are subtracted.
        metric: One name or several, with ``*`` for any text; None: success on every validation
            panel that both have.
        at: ``"last"`` logged value, ``"best"`` one (optimistic, and more so the more validations a
            run has), ``"mean"`` of all, ``"area"`` under the curve divided by its length, or a
            training step.

    Returns:
        A data frame with a row per metric: means of both over the pairs (``first``, ``second``),
        their ``difference``, its 95 % Student-t interval (``low``, ``high``), ``p`` of the paired
        t-test, ``p_holm`` corrected over the rows of this call, the number of ``pairs`` and their
        ``seeds``. NaN if there are too few pairs: an interval needs two. ``p`` is also NaN if all
        pairs have the same difference other than 0: without a spread a t-test is undefined (SciPy
        returns p = 0).

    Raises:
        ConfigError: An argument has another type, a column is missing, a seed has several runs on
            one side, a run has two different values of a compared metric at one step, ``at`` is
            unknown, or the two share no metric or no seed.

    Warns:
        UserWarning: Both sides have the same runs, the runs of the two differ in more than the
            method (another scorer, more steps, other code, ...), runs of one side have several
            configurations, the values of a pair are of different training steps (for ``"best"``,
            ``"mean"`` and ``"area"`` also of unequal numbers of validations), a seed of both sides
            makes no pair because one has no value, or all pairs have the same difference. Runs of a
            seed that only one side has are not considered.
    """
    at = _checked_at(at)
    _check_side("first", first)
    _check_side("second", second)
    names = _metrics(first, second, metric)
    _check_values("first", first, names)
    _check_values("second", second, names)
    lines = []
    for name in names:
        lines.append(_paired(name, _by_seed(first, name, at), _by_seed(second, name, at)))
    for message in _warnings(first, second, lines, at):
        warnings.warn(message, UserWarning, stacklevel=2)
    if not any(line["pairs"] for line in lines):
        if isinstance(at, int) and set(first["seed"]) & set(second["seed"]):
            logged = first[first["metric"] == lines[0]["metric"]]["step"]
            steps = ", ".join(str(int(step)) for step in sorted(set(logged)))
            raise ConfigError(f"{lines[0]['metric']} was not logged at step {at}; steps: {steps}")
        raise ConfigError(
            f"no seed has both: the first has seeds {_seeds(first)}, the second {_seeds(second)}, "
            f"and the metrics are {', '.join(str(line['metric']) for line in lines)}"
        )
    table = pd.DataFrame(lines).set_index("metric")
    table.insert(list(table.columns).index("p") + 1, "p_holm", holm(table["p"].tolist()))
    return table


def _checked_at(at: At) -> At:
    """``at``, as an int if it is a step of another type, such as ``runs.step.max()`` of NumPy.

    Raises:
        ConfigError: It is neither one of ``READINGS`` nor a whole number.
    """
    if isinstance(at, str) and at in READINGS:
        return at
    if isinstance(at, Real) and not isinstance(at, bool) and float(at).is_integer():
        return int(at)
    raise ConfigError(
        f"at={_shown(at)} is unknown; allowed are {', '.join(READINGS)} or a training step"
    )


def _warnings(
    first: pd.DataFrame, second: pd.DataFrame, lines: Sequence[Mapping[str, Any]], at: At
) -> list[str]:
    """What a reader of the comparison must know of the runs that it pairs."""
    seeds = {seed for line in lines for seed in line["seeds"]}
    # If nothing is paired, the error has the reason.
    without_value = _without_value(first, second, lines, at) if seeds else ""
    # Without any pair, all runs are compared: their differences include the reason.
    if seeds:
        first, second = (table[table["seed"].isin(seeds)] for table in (first, second))
    same = _same_runs(first, second)
    messages = (
        same,
        _pooled("first", first),
        _pooled("second", second),
        _apart(first, second),
        _other_code(first, second),
        _other_processors(first, second),
        without_value,
        _unlike_steps(first, second, [line["metric"] for line in lines], at),
        "" if same else _without_spread(lines),
    )
    return [message for message in messages if message]


def _paired(
    metric: str, values: dict[int, float | None], others: dict[int, float | None]
) -> dict[str, Any]:
    """One row of the comparison, over the seeds with both values."""
    differences = paired(values, others)
    seeds = list(differences)
    summary = summarise(differences.values())
    low, high = summary.interval()
    return {
        "metric": metric,
        "first": _mean(values, seeds),
        "second": _mean(others, seeds),
        "difference": summary.mean,
        "low": low,
        "high": high,
        "p": p_value(summary),
        "pairs": summary.n,
        "seeds": seeds,
    }


def _same_runs(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Warning about runs that are on both sides, whose difference is 0 in any case."""
    common = sorted(set(first["run"]) & set(second["run"]))
    if not common:
        return ""
    return (
        f"{counted(len(common), 'run')} on both sides, as {common[0]}: a run minus itself is 0. "
        "Select two rows, e.g. runs[runs.row == 'scpo'] and runs[runs.row == 'gigpo']"
    )


def _without_spread(lines: Iterable[Mapping[str, Any]]) -> str:
    """Warning about metrics whose pairs all have the same difference; else empty."""
    alike = [line for line in lines if line["pairs"] > 1 and line["low"] == line["high"]]
    if not alike:
        return ""
    text = f"no spread in {', '.join(line['metric'] for line in alike)}: all pairs have the same "
    text += f"difference, {BY_CHANCE}"
    untested = [line["metric"] for line in alike if math.isnan(line["p"])]
    if untested:
        text += f"; p of {', '.join(untested)} is NaN, because a t-test needs a spread"
    return text


def _pooled(name: str, table: pd.DataFrame) -> str:
    """Warning about a side whose runs differ in more than the seed; else empty."""
    hashes = list(dict.fromkeys(table["configuration"]))
    if len(hashes) == 1:
        return ""
    text = "; ".join(_variants(hashes, _configurations(table)))
    return (
        f"the runs of the {name} differ in more than the seed: {text}. Select one configuration, "
        "by the column 'row' or 'configuration'"
    )


def _apart(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Warning about pairs of runs that differ in more than the method; else empty.

    Configurations compare the two sides directly, while notes (column ``differs``) compare a row
    with its table. So notes are used in full only if a configuration is unknown.
    """
    known = _configurations(first) | _configurations(second)
    all_known = True
    texts: dict[str, None] = {}
    for run, other in _pairs_of_runs(first, second):
        all_known &= _are_known(run, other, known)
        if text := _difference_of_pair(run, other, known):
            texts[text] = None

    if not all_known:
        notes = [] if texts else _differing_notes(first, second)
    elif any(text.startswith(OTHER_SETTINGS) for text in texts):
        notes = []
    else:
        notes = _notes_of_one_side(first, second)
    texts |= dict.fromkeys(notes)
    if not texts:
        return ""
    return f"the two differ in more than the method: {'; '.join(texts)}"


def _pairs_of_runs(first: pd.DataFrame, second: pd.DataFrame) -> list[tuple[Any, Any]]:
    """A line of each of the two runs of every common seed; without any, of one run of each side."""
    runs = first.drop_duplicates("run").set_index("seed")
    others = second.drop_duplicates("run").set_index("seed")
    pairs = [(runs.loc[seed], others.loc[seed]) for seed in runs.index.intersection(others.index)]
    return pairs or [(runs.iloc[0], others.iloc[0])]


def _are_known(run: Any, other: Any, known: Mapping[str, str]) -> bool:
    """True if ``known`` (hash -> configuration) has the configurations of both runs."""
    return run["configuration"] in known and other["configuration"] in known


def _difference_of_pair(run: Any, other: Any, known: Mapping[str, str]) -> str:
    """How two runs differ besides in the method; empty if they do not.

    Args:
        run: A line of ``load_runs`` of the first run.
        other: One of the second run.
        known: Hash -> configuration, as far as they are known.
    """
    hashes = (run["configuration"], other["configuration"])
    # None, the setting before any run of a table has started, agrees with every setting.
    one_setting = len({run["setting"], other["setting"]} - {None}) < 2
    if one_setting:
        if hashes[0] == hashes[1]:
            return ""
        if run["row"] == other["row"]:
            # Runs of one row should be equal, so their method's settings are named, too.
            return " against ".join(_variants(hashes, known))
        return _differing_keys(run, other, known)

    keys = _differing_keys(run, other, known)
    if not keys and hashes[0] != hashes[1] and _are_known(run, other, known):
        # They differ in settings of the method that are part of the column ``setting``.
        keys = " against ".join(_variants(hashes, known))
    return f"{OTHER_SETTINGS}{keys or 'other tables or games (column setting)'}"


def _differing_keys(run: Any, other: Any, known: Mapping[str, str]) -> str:
    """Settings in which two runs differ besides those of two methods; empty if not known."""
    if not _are_known(run, other, known):
        return ""
    configs = [json.loads(known[each["configuration"]]) for each in (run, other)]
    texts = [setting_differences(*configs), own_method_differences(*configs)]
    if run["method"] != other["method"]:
        texts.append(estimator_differences(*configs))
    return "; ".join(filter(None, texts))


def _differing_notes(first: pd.DataFrame, second: pd.DataFrame) -> list[str]:
    """The notes of both sides, sorted; empty if both have the same notes."""
    notes, other_notes = _notes(first), _notes(second)
    if notes == other_notes:
        return []
    return sorted((notes | other_notes) - {""})


def _notes_of_one_side(first: pd.DataFrame, second: pd.DataFrame) -> list[str]:
    """Parts of notes that only one side has, sorted.

    Differences that the configurations of the two sides show already are left out.
    """
    parts = sorted(_unusual(_notes(first)) ^ _unusual(_notes(second)))
    if set(first["method"]) == set(second["method"]):
        # The configurations show how the settings of one method differ.
        return [part for part in parts if not part.startswith("method.")]
    return parts


def _unusual(notes: Iterable[str]) -> set[str]:
    """The parts of notes that do not compare a row with the others of its table."""
    parts = {part for note in notes for part in note.split("; ") if part}
    return {part for part in parts if not COMPARES_WITH_TABLE.search(part)}


def _notes(table: pd.DataFrame) -> set[str]:
    """Notes of the column ``differs``, without those on code, about which ``_other_code`` warns.

    A frame that was read from a file keeps its notes on code, because it has no other record of it.
    """
    # Reading a CSV file turns empty texts into missing values.
    notes = {"" if pd.isna(note) else note for note in table["differs"].unique()}
    if "code" not in table.attrs:
        return notes
    return {note.partition(ITS_SEEDS)[0].removesuffix("; ") for note in notes}


def _other_code(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Warning about different code of the runs of one side, or else of the two; else empty."""
    sides = {"first": _codes(first), "second": _codes(second)}
    mixed = {name: several_versions(codes) for name, codes in sides.items()}
    texts = [f"the seeds of the {name} {SEVERAL} {text}" for name, text in mixed.items() if text]
    if texts:
        return "; ".join(texts)
    versions = several_versions([*sides["first"], *sides["second"]])
    return f"the two {SEVERAL} {versions}" if versions else ""


def _other_processors(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Warning about pairs that ran on two types of processor; else empty."""
    known: dict[str, tuple[str | None, str]] = {}
    for table in (first, second):
        for run, (name, capability) in json.loads(table.attrs.get("processors", "{}")).items():
            if name is not None:
                known[run] = (name, capability)
    sides = [side[["run", "seed", "env"]].drop_duplicates() for side in (first, second)]
    pairs = sides[0].merge(sides[1], on=["seed", "env"])
    crossed = []
    for seed, run, other in zip(pairs["seed"], pairs["run_x"], pairs["run_y"], strict=True):
        if run in known and other in known and not one_type((known[run], known[other])):
            crossed.append(seed)
    return f"the two ran {seed_list(crossed)} {SEVERAL_PROCESSORS}" if crossed else ""


def _codes(table: pd.DataFrame) -> list[CodeOf]:
    """The code of each run; empty for a frame that was read from a file."""
    known = json.loads(table.attrs.get("code", "{}"))
    codes = []
    for run in dict.fromkeys(table["run"]):
        if run in known:
            code, folder, commit, weights = known[run]
            codes.append(CodeOf(code, Path(folder), commit, weights))
    return codes


def _configurations(table: pd.DataFrame) -> dict[str, str]:
    """Hash -> configuration; empty for a frame that was read from a file."""
    known: dict[str, str] = table.attrs.get("configurations", {})
    return known


def _variants(hashes: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """How each of these configurations differs, e.g. ``alpha=2.0``; their hashes if unknown."""
    if not known.keys() >= set(hashes):
        return [f"configuration {name}" for name in hashes]
    texts = []
    for pairs in variants([known[name] for name in hashes]):
        texts.append(", ".join(f"{key}={value}" for key, value in pairs) or "the usual values")
    return texts


def _without_value(
    first: pd.DataFrame, second: pd.DataFrame, lines: Iterable[Mapping[str, Any]], at: At
) -> str:
    """Warning about common seeds that make no pair, because a side has no value; else empty."""
    common = set(first["seed"]) & set(second["seed"])
    # (sides, seeds) -> metrics, because the metrics of one validation lack the same steps.
    lacking: dict[str, list[str]] = {}
    for line in lines:
        metric = line["metric"]
        sides = []
        for name, table in (("first", first), ("second", second)):
            values = _by_seed(table, metric, at)
            seeds = [str(seed) for seed in sorted(common) if values.get(seed) is None]
            if seeds:
                sides.append(f"the {name} lacks it on seeds {', '.join(seeds)}")
        if sides:
            lacking.setdefault("; ".join(sides), []).append(metric)
    if not lacking:
        return ""
    where = f"at step {at}" if isinstance(at, int) else f"for at={at!r}"
    texts = [f"{', '.join(metrics)} ({sides})" for sides, metrics in lacking.items()]
    return f"pairs were left out, for a side has no value {where}: {'; '.join(texts)}"


def _unlike_steps(first: pd.DataFrame, second: pd.DataFrame, metrics: Sequence[str], at: At) -> str:
    """Warning about the first metric with pairs of different training steps; else empty.

    ``last`` and ``best`` depend on the last step of a curve, ``mean`` and ``area`` also on its
    first step. For a validation metric, all but ``last`` depend on the number of steps, too: the
    area replaces a missing validation by a straight line, and the best of more validations is
    higher by chance.
    """
    if isinstance(at, int):
        return ""
    for metric in metrics:
        own, others = (_series_by_seed(table, metric) for table in (first, second))
        pairs = [(seed, own[seed], others[seed]) for seed in sorted(own.keys() & others.keys())]
        validated = metric.startswith("val/")
        # Steps of the first and the second in words -> seeds.
        unlike: dict[str, list[str]] = {}
        for seed, series, other in pairs:
            steps = _covered(series, at, validated=validated)
            other_steps = _covered(other, at, validated=validated)
            if steps != other_steps:
                unlike.setdefault(f"{steps} and {other_steps}", []).append(str(seed))
        if not unlike:
            continue
        text = "; ".join(f"{steps} (seeds {', '.join(seeds)})" for steps, seeds in unlike.items())
        numbers = [(len(series.steps), len(other.steps)) for _, series, other in pairs]
        if at == "best" and any(number != other for number, other in numbers):
            text += "; the best of more values is higher by chance"
        common = set(pairs[0][1].steps)
        for _, series, other in pairs:
            common &= set(series.steps) & set(other.steps)
        advice = f"; at={max(common)} compares the last step that all have" if common else ""
        return (
            f"at={at!r} compares {metric} of different training steps, of first and second: "
            f"{text}{advice}"
        )
    return ""


def _covered(series: Series, at: At, *, validated: bool) -> str:
    """The steps that a reading of a curve depends on, in words."""
    if not series.steps:
        return "none"
    first, last = series.steps[0], series.steps[-1]
    if at == "last" or (at == "best" and not validated):
        return str(last)
    if validated:
        return f"{first} to {last} at {len(series.steps)} steps"
    return f"{first} to {last}"


def _check_side(name: str, table: Any) -> None:
    """Raise ConfigError unless these are lines of ``load_runs`` with one run per seed."""
    if not isinstance(table, pd.DataFrame):
        raise ConfigError(
            f"{name} is {_shown(table)}; pass the lines of one row, e.g. runs[runs.row == 'scpo']"
        )
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise ConfigError(
            f"{name} has no column {', '.join(missing)}; it must be lines of load_runs"
        )
    if table.empty:
        raise ConfigError(
            f"{name} has no lines, so its selection matched no run; `runs.row.unique()` lists the "
            "rows that there are"
        )

    # A frame that was read from a file may have text here: such seeds would pair with nothing.
    for column, (what, kind) in NUMBERS.items():
        known = table[column]
        if pd.api.types.is_numeric_dtype(known):
            continue
        other = [value for value in known.dropna().unique() if not isinstance(value, Real)]
        if other:
            raise ConfigError(
                f"{name} has the {column} {other[0]!r}, a {type(other[0]).__name__}; {what}, as "
                f"load_runs gives them: {name}.assign({column}={name}.{column}.astype({kind}))"
            )
    runs = table[["run", "seed", "row"]].drop_duplicates("run")
    twice = runs[runs["seed"].duplicated(keep=False)]
    if len(twice):
        rows = ", ".join(sorted(set(twice["row"])))
        raise ConfigError(
            f"{name} has {len(runs)} runs of {runs['seed'].nunique()} seeds (rows: {rows}); a "
            "comparison takes one run a seed: select one row and one setting, e.g. "
            "runs[(runs.row == 'scpo') & (runs.setting == ...)]"
        )


def _check_values(name: str, table: pd.DataFrame, metrics: Collection[str]) -> None:
    """Raise ConfigError if a run has two different values of one of ``metrics`` at one step.

    ``load_runs`` takes each run from one source, but its user may concatenate frames of two sources
    that have different numbers of one run.
    """
    lines = table[table["metric"].isin(metrics)][[*VALUE_OF, "value"]].dropna()
    # Curves leave out infinite values, as they do missing ones.
    values = lines[lines["value"].abs() < math.inf].drop_duplicates()
    repeated = values[values.duplicated(VALUE_OF, keep=False)].sort_values(VALUE_OF, kind="stable")
    if len(repeated):
        earlier, later = repeated.head(2).itertuples(index=False)
        raise ConfigError(
            f"{name} has two values of {earlier.metric} at step {earlier.step} of run "
            f"{earlier.run}: {earlier.value} and {later.value}. Load only the source that is meant "
            "(load_runs of a list of sources takes each run from one of them), or drop the second "
            "value: "
            f"{name}.drop_duplicates({VALUE_OF})"
        )


def _metrics(
    first: pd.DataFrame, second: pd.DataFrame, metric: str | Iterable[str] | None
) -> list[str]:
    """Names of the metrics to compare, each once.

    Raises:
        ConfigError: A side lacks one, or ``metric`` is neither a name nor a list of names.
    """
    common = set(first["metric"]) & set(second["metric"])
    if metric is None:
        names = sorted(name for name in common if OVERALL.fullmatch(name))
    else:
        names = []
        for pattern in _listed(metric, str, "compare(metric)", A_METRIC):
            # A pattern without a match stays as it is, so that the error below names it.
            names += sorted(filter(_pattern([pattern]).fullmatch, common)) or [pattern]
    unknown = [name for name in names if name not in common]
    if unknown or not names:
        wanted = ", ".join(unknown) or "val/*/success_rate"
        available = ", ".join(sorted(common)) or "none"
        raise ConfigError(f"the two do not both have the metric {wanted}; common are {available}")
    return list(dict.fromkeys(names))


def _by_seed(table: pd.DataFrame, metric: str, at: At) -> dict[int, float | None]:
    return {seed: _read(series, at) for seed, series in _series_by_seed(table, metric).items()}


def _series_by_seed(table: pd.DataFrame, metric: str) -> dict[int, Series]:
    curves: dict[int, Series] = {}
    lines_of_metric = table[table["metric"] == metric].dropna(subset=["step", "value"])
    for seed, lines in lines_of_metric.groupby("seed", observed=True):
        curves[int(seed)] = make_series(zip(lines["step"], lines["value"], strict=True))
    return curves


def _read(series: Series, at: At) -> float | None:
    if at == "last":
        return series.last
    if at == "best":
        return series.best
    if at == "mean":
        return series.mean
    if at == "area":
        return series.area
    return series.at(int(at))


def _mean(values: Mapping[int, float | None], seeds: Sequence[int]) -> float:
    return float(pd.Series([values[seed] for seed in seeds], dtype=float).mean())


def _seeds(table: pd.DataFrame) -> str:
    return ", ".join(map(str, sorted(set(table["seed"])))) or "none"
