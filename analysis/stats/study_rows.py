"""Rows of the study: each configuration once per benchmark, with all its runs.

Several experiments have the same configuration under different names: ``scpo`` of the main table,
``exact_scorer`` of the scorers and ``scpo_gigpo`` of the hosts are one configuration at
``scale=study``. It is counted once. Otherwise, one result would enter a correction several times,
and a row would be compared with itself.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.names import place as place_name
from analysis.selection import has_method_label, rows_with_common_seeds, seeds_left_out
from analysis.sources.collected import Collected
from analysis.sources.configurations import configuration_of, is_prompted, values_of
from analysis.sources.rows import ROLLOUTS, Row, RowRun, more_rollouts, seed_list
from analysis.sources.run_records import ExperimentRecord, Run, is_implied
from analysis.sources.sections import benchmarks, record_rows
from analysis.sources.settings import own_settings
from scpo.records.status import State
from scpo.schema.method import METHOD_LABELS
from scpo.strict import MACHINE_SECTIONS

# The experiment whose rows and comparisons come first.
MAIN = "main_table"

# Experiments that choose settings on tuning seeds and are not reported.
TUNING = ("learning_rates",)

# The experiment in which rows that are compared with each other train at one learning rate.
SAME_RATE = "same_rate"

# Key of the setting that is tuned for each method.
LEARNING_RATE = "trainer.optimizer.learning_rate"

# Prefix of experiments that add pairs to comparisons which the first pairs left open.
WIDE = "wide_"

# Prefix of experiments on reworded observations, which are a study of their own.
MEANING = "meaning"


def is_of_meaning(experiment: str) -> bool:
    """True for experiments of the study of reworded observations."""
    return experiment == MEANING or experiment.startswith(f"{MEANING}_")


@dataclass(frozen=True)
class StudyRow:
    """One configuration on one benchmark.

    Attributes:
        env: Benchmark.
        model: Policy.
        row: Its runs of all experiments, one per seed, under its title.
        names: (experiment, row name) of each experiment with this configuration.
        configuration: The configuration without seed and machine, as JSON; None while no run has
            started.
        settings: (key, text) of each setting that its title names, e.g. ``games=64``.
    """

    env: str
    model: str
    row: Row
    names: tuple[tuple[str, str], ...]
    configuration: str | None
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def benchmark(self) -> tuple[str, str]:
        """Its environment and model."""
        return self.env, self.model

    @property
    def title(self) -> str:
        """Label of the row in print."""
        return self.row.label

    def title_without(self, common: Mapping[str, str]) -> str:
        """The title without the settings that ``common_settings`` names."""
        named = "".join(f", {text}" for _, text in self.settings)
        kept = "".join(f", {text}" for key, text in self.settings if key not in common)
        return f"{self.title.removesuffix(named)}{kept}"

    @property
    def learning_rate(self) -> float | None:
        """Learning rate of its runs; None while no run has started, or if nothing is trained."""
        return rate_of(json.loads(self.configuration or "{}"))

    def called(self, name: str) -> bool:
        """True if an experiment has it under this row name."""
        return any(own == name for _, own in self.names)

    def called_as(self, other: "StudyRow") -> bool:
        """True if every experiment that has the other row has this one under the same name."""
        return set(other.names) <= set(self.names)


def by_benchmark(rows: Iterable[StudyRow]) -> dict[tuple[str, str], list[StudyRow]]:
    """Environment and model -> their rows, in order of appearance."""
    groups: dict[tuple[str, str], list[StudyRow]] = {}
    for row in rows:
        groups.setdefault(row.benchmark, []).append(row)
    return groups


def reported(data: Collected, *, meaning: bool = False) -> list[ExperimentRecord]:
    """Experiments of the data's scale without the tuning ones, the main table first.

    Args:
        data: The collected runs.
        meaning: Take the study of reworded observations instead of all other experiments.
    """
    records = []
    for record in data.experiments:
        # By prefix: the record of an earlier call with other overrides has a hash after the name.
        if record.scale not in data.scales or record.experiment.startswith(TUNING):
            continue
        if is_of_meaning(record.experiment) == meaning:
            records.append(record)
    return sorted(records, key=lambda record: record.experiment != MAIN)


def titles_apart(
    titles: Sequence[str], blocks: Sequence[Sequence[StudyRow]], records: Sequence[ExperimentRecord]
) -> list[str]:
    """The titles of blocks of rows, different ones for blocks that share a title.

    Two sources may have records of one experiment, each with seeds of its own, and one source has a
    record of each call with other overrides or after an edit.

    Args:
        titles: The titles.
        blocks: The rows of each block.
        records: The experiment of each block.

    Returns:
        Titles that are shared have the seeds of their rows added; if these are shared too, the name
        of the record, such as ``main_table_0a1b2c``; and if this is shared, a number.
    """
    with_seeds = []
    for title, rows in zip(titles, blocks, strict=True):
        seeds = ""
        if titles.count(title) > 1:
            seeds = f", {seed_list(seed for row in rows for seed in row.row.seeds)}"
        with_seeds.append(f"{title}{seeds}")
    with_records = []
    for title, record in zip(with_seeds, records, strict=True):
        name = f", record {record.experiment}" if with_seeds.count(title) > 1 else ""
        with_records.append(f"{title}{name}")
    apart: list[str] = []
    for index, title in enumerate(with_records):
        earlier = with_records[:index].count(title)
        apart.append(f"{title} ({earlier + 1})" if earlier else title)
    return apart


def study_rows(data: Collected, *, meaning: bool = False) -> list[StudyRow]:
    """The configurations of all reported experiments, each once per benchmark.

    A row of an experiment that the user chose has its label there, and only the seeds of the chosen
    experiments. A run of train.py with a row's configuration does not count in that row: no
    experiment planned it.
    """
    merged: list[StudyRow] = []
    # Runs that no experiment planned come last, so that they meet the rows of all experiments.
    records = sorted(
        reported(data, meaning=meaning), key=lambda record: is_implied(record.experiment)
    )
    for record in records:
        for row in rows_of(data, record):
            # Compared one by one: rows that have not started are equal if they share a run, which
            # gives no key to group by.
            index = next((i for i, known in enumerate(merged) if _same(known, row)), None)
            if index is None:
                merged.append(row)
            elif not is_implied(record.experiment) or _is_implied(merged[index]):
                merged[index] = _joined(merged[index], row)
    merged = [_on_chosen_seeds(data, _named_as_chosen(data, row)) for row in merged]
    titled = []
    for row in merged:
        title = _title(data, row, merged)
        if more := rollouts_beyond_plan(data, row):
            title += f", {more[0]:.0f} rollouts a step"
        titled.append(_with_title(row, title))
    # The study of reworded observations has the same rows at every dose, in experiments by dose.
    return titled if meaning else _with_unique_titles(data, titled)


def _is_implied(row: StudyRow) -> bool:
    """True if no experiment planned the row's runs."""
    return all(is_implied(experiment) for experiment, _ in row.names)


def rows_of(data: Collected, record: ExperimentRecord) -> list[StudyRow]:
    """The rows of one experiment, with its planned seeds only."""
    rows = []
    for env, model in benchmarks(record):
        for row in record_rows(record, data.by_id, env, model):
            if row.runs:
                names = ((record.experiment, row.name),)
                rows.append(StudyRow(env, model, row, names, _configuration(data, row)))
    return rows


def find(rows: Iterable[StudyRow], like: StudyRow) -> StudyRow:
    """The row of ``study_rows`` into which a row of one experiment was merged."""
    rows = tuple(rows)
    same = next((row for row in rows if _same(row, like)), None)
    # Rows that have not started are recognised by a common run, which the user's choice of
    # experiments may have removed.
    here = (row for row in rows if row.benchmark == like.benchmark)
    return same or next(row for row in here if row.called_as(like))


def shown_rows(data: Collected, record: ExperimentRecord) -> list[StudyRow]:
    """The rows of one experiment that the user chose, in the chosen order."""
    rows = [row for row in rows_of(data, record) if selected(data, row)]
    if data.chosen:
        place = {name: index for index, name in enumerate(data.chosen)}
        rows.sort(key=lambda row: place.get(row.row.name, len(place)))
    return rows


def not_shown(data: Collected, shown: Iterable[StudyRow]) -> str:
    """Sentence on the rows of ``--rows`` that an output does not show; empty without any.

    The study's outputs read the runs of all rows, for their titles and corrections.
    """
    note = data.not_shown(run for row in shown for run in row.row.finished)
    return f" Note: {note}." if note else ""


def on_common_seeds(data: Collected, rows: Sequence[StudyRow]) -> list[StudyRow]:
    """The rows on the seeds that all of them have finished; empty without such a seed.

    Args:
        data: The collected runs.
        rows: Rows with finished runs.
    """
    # Rows of several experiments may share a name, but no title.
    own = [replace(row.row, name=row.title, label=row.title) for row in rows]
    common = rows_with_common_seeds(data, own)
    if common and (note := seeds_left_out(data, own, common)):
        data.cut_seeds[f"{place_name(data.scales[0], rows[0].env, rows[0].model)}: {note}"] = None
    # ``common`` holds all of the rows in the same order, or is empty.
    kept = []
    for row, cut in zip(rows, common, strict=False):
        kept.append(replace(row, row=replace(row.row, runs=cut.runs)))
    return kept


def common_settings(rows: Sequence[StudyRow]) -> dict[str, str]:
    """Settings that the titles of several rows name and that all of these rows have.

    Without the learning rate, which belongs to the method and so to each row.

    Args:
        rows: Rows of ``study_rows`` that are shown under one heading, which can name them once.

    Returns:
        Key -> text, e.g. ``games=64``.
    """
    named = [dict(row.settings) for row in rows if row.settings]
    values = [values_of(row.configuration) for row in rows if row.configuration is not None]
    if len(named) < 2 or len(values) < len(rows):
        return {}
    common = {}
    for key, text in named[0].items():
        in_titles = all(key in settings for settings in named)
        is_shared = len({own.get(key) for own in values}) == 1
        if in_titles and is_shared and key != LEARNING_RATE:
            common[key] = text
    return common


def with_common_seeds(
    data: Collected, rows: Iterable[StudyRow], shown: Sequence[StudyRow]
) -> list[StudyRow]:
    """The rows, of which the shown ones have only the seeds that all shown ones have finished.

    Args:
        data: The collected runs.
        rows: The rows of ``study_rows``.
        shown: Those of them that are shown under each other, all with finished runs. They are left
            without runs if no seed is finished in all of them.
    """
    kept = on_common_seeds(data, shown)
    if not kept:
        kept = [replace(row, row=replace(row.row, runs=())) for row in shown]
    results = list(rows)
    for before, after in zip(shown, kept, strict=True):
        results[results.index(before)] = after
    return results


def selected(data: Collected, row: StudyRow) -> bool:
    """True if the user's choice of rows, experiments and environments includes a row.

    The choice affects only the rows that are shown. Corrections are over the whole study.
    """
    experiments: set[str] = set()
    for part in data.sections:
        experiments.update(part.experiments)
    names = {name for experiment, name in row.names if experiment in experiments}
    if row.env not in {part.env for part in data.sections}:
        return False
    if data.chosen:
        return bool(names & set(data.chosen))
    return bool(names)


def started(data: Collected, row: Row) -> Run | None:
    """The run with the lowest seed among those with a known configuration; None without any."""
    for planned in sorted(row.runs, key=lambda run: run.seed):
        run = data.by_id.get(planned.id)
        if run is not None and run.state != State.DAMAGED:
            return run
    return None


def _named_as_chosen(data: Collected, row: StudyRow) -> StudyRow:
    """The row with its name and label in the first chosen experiment that has it, if any."""
    for experiment in data.asked:
        for record in data.experiments:
            if record.experiment != experiment or record.scale not in data.scales:
                continue
            for planned in record.rows:
                name = (experiment, planned.name)
                if name in row.names and any(run.env == row.env for run in planned.runs):
                    others = tuple(other for other in row.names if other != name)
                    named = replace(row.row, name=planned.name, label=planned.label)
                    return replace(row, row=named, names=(name, *others))
    return row


def _on_chosen_seeds(data: Collected, row: StudyRow) -> StudyRow:
    """The row on the seeds that the chosen experiments plan for it; unchanged if none has it."""
    seeds: set[int] = set()
    for record in data.experiments if data.asked else ():
        if record.experiment not in data.asked or record.scale not in data.scales:
            continue
        for planned in record.rows:
            if (record.experiment, planned.name) in row.names:
                seeds.update(run.seed for run in planned.runs if run.env == row.env)
    if not seeds:
        return row
    runs = tuple(run for run in row.row.runs if run.seed in seeds)
    return replace(row, row=replace(row.row, runs=runs))


def _same(row: StudyRow, other: StudyRow) -> bool:
    """True if two rows are one configuration on one benchmark."""
    if row.benchmark != other.benchmark:
        return False
    if row.configuration is not None and row.configuration == other.configuration:
        return True
    # Rows that have not started have no configuration yet, but run ids hold a hash of it.
    return bool({run.id for run in row.row.runs} & {run.id for run in other.row.runs})


def _configuration(data: Collected, row: Row) -> str | None:
    run = started(data, row)
    return None if run is None else configuration_of(run.config)


def _joined(first: StudyRow, second: StudyRow) -> StudyRow:
    """Merge two rows; the first, which is the main table's if any is, gives name and label."""
    runs: dict[int, RowRun] = {run.seed: run for run in (*second.row.runs, *first.row.runs)}
    row = replace(first.row, runs=tuple(runs[seed] for seed in sorted(runs)))
    return replace(
        first,
        row=row,
        names=(*first.names, *second.names),
        configuration=first.configuration or second.configuration,
    )


def _title(data: Collected, row: StudyRow, rows: Sequence[StudyRow] = ()) -> str:
    """The method's label, followed by the row's own label if it is a variant.

    Args:
        data: The collected runs.
        row: The row.
        rows: All rows of the study. The title of a variant begins with that of the row which its
            experiment calls by the method's name: in the sensitivity to θ, SCPO with the lexical
            scorer.
    """
    if has_method_label(row.row):
        return METHOD_LABELS[row.row.name]
    if row.row.name in METHOD_LABELS:
        return row.row.label
    run = started(data, row.row)
    name = run.head.method.name if run else ""
    method = METHOD_LABELS.get(name, "")
    label = row.row.label
    if not method or method in label:
        return label
    experiment = row.names[0][0]
    for other in rows:
        if other.benchmark == row.benchmark and (experiment, name) in other.names:
            method = _title(data, other)
    if label.startswith(("with ", "without ")):
        return f"{method} {label}"
    return f"{method}, {label}"


def rate_of(config: Mapping[str, Any]) -> float | None:
    """Learning rate of a configuration; None if nothing is trained."""
    # The scale's settings of training are recorded for runs that only prompt, too.
    if is_prompted(config):
        return None
    optimizer = (config.get("trainer") or {}).get("optimizer") or {}
    rate: float | None = optimizer.get("learning_rate")
    return rate


def rates_in_print(first: float | None, second: float | None) -> str:
    """Two learning rates, e.g. `` (rates 4e-3, 2e-3)``; empty if equal, or if one is None."""
    if first is None or second is None or first == second:
        return ""
    return f" (rates {rate_text(first)}, {rate_text(second)})"


def different_rates(config: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """``rates_in_print`` of two configurations."""
    return rates_in_print(rate_of(config), rate_of(other))


def rate_text(rate: float) -> str:
    """A learning rate in the form ``5e-4``."""
    mantissa, _, exponent = f"{rate:e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def rollouts_beyond_plan(data: Collected, row: StudyRow) -> tuple[float, int] | None:
    """Rollouts per training step of a row and the planned number, if it has more than planned."""

    def rollouts(run: str) -> float | None:
        return data.series(run, ROLLOUTS).mean

    return more_rollouts(row.row, data.by_id, rollouts)


def _with_title(row: StudyRow, title: str) -> StudyRow:
    return replace(row, row=replace(row.row, label=title))


def _with_unique_titles(data: Collected, rows: Sequence[StudyRow]) -> list[StudyRow]:
    """Append the settings that differ to each title that several rows of a benchmark share.

    The main table's row keeps its title, and the others are named by what differs from it. Without
    it, a row of few training steps would add the usual number of steps to the title of every other
    row. Of two editions of the main table, the first one's row keeps its title. If one row of the
    experiments that the user chose has a title, it keeps that title instead of the main table's.
    """
    groups: dict[tuple[str, str, str], list[str]] = {}
    usual: dict[tuple[str, str, str], str] = {}
    chosen: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.configuration is not None:
            place = (*row.benchmark, row.title)
            groups.setdefault(place, []).append(row.configuration)
            if any(experiment == MAIN for experiment, _ in row.names):
                usual.setdefault(place, row.configuration)
            if any(experiment in data.asked for experiment, _ in row.names):
                chosen.setdefault(place, []).append(row.configuration)
    for place, configurations in chosen.items():
        if len(configurations) == 1:
            usual[place] = configurations[0]
    unique = []
    for row in rows:
        place = (*row.benchmark, row.title)
        configurations = groups.get(place, [])
        keeps_title = row.configuration == usual.get(place)
        if row.configuration is None or len(configurations) < 2 or keeps_title:
            unique.append(row)
        else:
            known = [usual[place], row.configuration] if place in usual else configurations
            settings = own_settings(row.configuration, known)
            titled = _with_title(row, ", ".join((row.title, *settings.values())))
            unique.append(replace(titled, settings=tuple(settings.items())))
    return unique


def comparable(data: Collected, first: StudyRow, second: StudyRow) -> bool:
    """True if two rows differ only in method, scorer and settings of the method's own.

    Learning rate and upper clip range are chosen for each method and so belong to the method. Rows
    with other differences (siblings, games) are compared only if an experiment names the
    comparison.
    """
    if first.benchmark != second.benchmark:
        return False
    runs = (started(data, first.row), started(data, second.row))
    if runs[0] is None or runs[1] is None:
        return False
    return _setting(runs[0].config) == _setting(runs[1].config)


def _setting(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without seed, scorer, method, the method's own settings, and machine."""
    apart = ("seed", "method", "scorer", *MACHINE_SECTIONS)
    setting = {key: value for key, value in config.items() if key not in apart}
    trainer = dict(setting.get("trainer") or {})
    for section, of_method in (("optimizer", "learning_rate"), ("loss", "clip_high")):
        if isinstance(trainer.get(section), dict):
            trainer[section] = dict(trainer[section])
            trainer[section].pop(of_method, None)
    return {**setting, "trainer": trainer}
