"""The user's selection of rows, experiments and environments, and the error for missing samples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.sources.collected import Collected, MissingRunsError
from analysis.sources.configurations import configuration_of
from analysis.sources.rows import (
    DEFAULT,
    Family,
    Row,
    Section,
    compared_with_present,
    first_names,
    seed_list,
)
from analysis.sources.run_records import COMMON_SEEDS, Problem, Run
from scpo.errors import ConfigError
from scpo.progress import counted
from scpo.records.archive_index import METRICS
from scpo.schema.method import METHOD_LABELS
from scpo.suggestions import did_you_mean


@dataclass(frozen=True)
class Selection:
    """The user's selection; an empty tuple selects everything.

    Attributes:
        rows: Names of rows, in the order in which they are drawn.
        experiments: Names of experiments; their rows are drawn on the seeds that they plan.
        envs: Names of environments.
        common_seeds: Use only seeds that all trained rows of a section have finished.
    """

    rows: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()
    envs: tuple[str, ...] = ()
    common_seeds: bool = False

    def of(self, data: Collected) -> Collected:
        """The data with the selected rows of the selected sections.

        Raises:
            ConfigError: A name is unknown, or no row meets all options.
        """
        if self == Selection():
            return data
        self._check_names(data.sections)
        asked = [self._selected(part) for part in self._of_envs(data.sections)]
        selected = [part for part in asked if part.rows]
        if self.rows:
            selected = _without_repeats(selected)
        problems = list(data.problems)
        if self.common_seeds:
            selected = _on_common_seeds(data, selected, problems)
        if not selected:
            without_seeds = [p.reason for p in problems if p.path == COMMON_SEEDS]
            if without_seeds:
                raise ConfigError(f"{COMMON_SEEDS}: {'; '.join(without_seeds)}")
            raise ConfigError(
                "no row has all that --rows, --experiment and --env ask for; leave one of them out"
            )
        # The rows of chosen experiments are chosen, too.
        names = self.rows
        if self.experiments and not self.rows:
            names = tuple(dict.fromkeys(row.name for part in selected for row in part.rows))
        if self.rows and self.common_seeds:
            # On common seeds, sections may be equal that had other seeds before.
            selected = _without_repeats(selected)
        told_apart = compared_with_present(_told_apart_by_seeds(selected, data.by_id))
        return replace(
            data,
            sections=tuple(_with_shown_others(data, part) for part in told_apart),
            problems=tuple(problems),
            chosen=names,
            asked_rows=self.rows,
            asked=self.experiments,
            unselected=data.unselected or data.sections,
            common_seeds=self.common_seeds,
        )

    def _check_names(self, parts: Sequence[Section]) -> None:
        """Raise ConfigError if an environment, an experiment or a row is unknown."""
        _check("--env", self.envs, [part.env for part in parts])
        known_experiments: list[str] = []
        for part in parts:
            known_experiments += part.experiments
        _check("--experiment", self.experiments, known_experiments)
        # Only rows of the chosen experiments and environments: another would be left out silently.
        any_row = replace(self, rows=())
        known_rows: list[str] = []
        finished_rows: list[str] = []
        for part in self._of_envs(parts):
            rows = any_row._selected(part).rows
            known_rows += [row.name for row in rows]
            finished_rows += [row.name for row in rows if row.finished]
        options = []
        if self.experiments:
            options.append(f"--experiment {','.join(self.experiments)}")
        if self.envs:
            options.append(f"--env {','.join(self.envs)}")
        whose = f"the runs of {' and '.join(options)}" if options else "these runs"
        _check("--rows", self.rows, known_rows, finished_rows, whose)

    def _of_envs(self, parts: Iterable[Section]) -> list[Section]:
        return [part for part in parts if not self.envs or part.env in self.envs]

    def _selected(self, part: Section) -> Section:
        """The section with the selected rows of the selected experiments; perhaps without any."""
        families = part.families
        rows = list(part.rows)
        experiments = part.experiments
        if self.experiments:
            experiments = tuple(name for name in experiments if name in self.experiments)
            families = tuple(f for f in families if f.experiment in self.experiments)
            named: set[str] = set()
            for family in families:
                named.update(family.rows)
            asked = part.as_asked_by(*self.experiments).rows
            rows = [row for row in asked if row.name in named]
        if self.rows:
            # Chosen experiments decide on the seeds.
            if not self.experiments:
                rows = paired_rows(part, rows, self.rows)
            by_name = {row.name: row for row in rows}
            rows = [by_name[name] for name in self.rows if name in by_name]
        kept = {row.name for row in rows}
        cut = []
        for family in families:
            names = tuple(name for name in family.rows if name in kept)
            cut.append(replace(family, rows=names))
        return replace(
            part,
            rows=tuple(rows),
            families=tuple(cut),
            experiments=experiments,
            asked_rows=self.rows,
        )


def paired_rows(part: Section, rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows, the named ones on the seeds of one experiment if that pairs more of their seeds.

    A row usually shows the seeds of the first experiment that has it, which another row of the
    user's choice may lack.
    """
    chosen = [row for row in rows if row.name in names and row.finished]
    if len(chosen) < 2:
        return list(rows)
    best, most = chosen, _in_common(chosen)
    for family in part.families:
        own = [family.row(row.name) for row in chosen]
        if _in_common(own) > most:
            best, most = own, _in_common(own)
    by_name = {row.name: row for row in best}
    return [by_name.get(row.name, row) for row in rows]


def _in_common(rows: Iterable[Row]) -> int:
    """Number of seeds that all of these rows have finished."""
    return len(set.intersection(*(row.finished_seeds for row in rows)))


def _with_shown_others(data: Collected, part: Section) -> Section:
    """The section with notes that name "the others" only where a shown row is one of these.

    A note such as ``trainer=local (the others: verl)`` compares a row with the usual setting of its
    section. If all trained rows that are selected have a note on this key, none of them has the
    usual value, and the note names "other rows" instead: another block may show them.
    """
    trained = [row.differs.split("; ") for row in part.rows if data.is_trained(row)]

    def noted_at_all(key: str) -> bool:
        """True if every trained row has a note on this key."""
        for notes in trained:
            if not any(note.startswith(f"{key}=") for note in notes):
                return False
        return bool(trained)

    def with_others(row: Row) -> Row:
        notes = []
        for note in row.differs.split("; "):
            named = "the others"
            if noted_at_all(note.partition("=")[0]):
                named = "other rows"
            notes.append(note.replace("(the others: ", f"({named}: "))
        return replace(row, differs="; ".join(notes))

    return part.with_each_row(with_others)


def _without_repeats(parts: Iterable[Section]) -> list[Section]:
    """Merge sections of which one has all rows of the other, with all of their runs.

    Several sections may share rows, such as the default, and have nothing but these if the user
    chose few rows.
    """
    kept: list[Section] = []
    for part in parts:
        larger = next((known for known in kept if _repeats(part, known)), None)
        smaller = [known for known in kept if _repeats(known, part)]
        if larger is not None:
            kept[kept.index(larger)] = _joined([larger, part], larger.rows)
        elif smaller:
            # Named as the first one, which has the usual setting, with the rows of the later one,
            # which has more.
            first, *others = smaller
            kept[kept.index(first)] = _joined([first, part, *others], part.rows)
            kept = [known for known in kept if known not in others]
        else:
            kept.append(part)
    return kept


def _joined(parts: Sequence[Section], rows: tuple[Row, ...]) -> Section:
    """The first section with these rows, and the experiments of all."""
    experiments: dict[str, None] = {}
    commands: dict[str, None] = {}
    families: list[Family] = []
    unnamed: set[str] = set()
    for part in parts:
        experiments |= dict.fromkeys(part.experiments)
        commands |= dict.fromkeys(part.commands)
        families += part.families
        unnamed |= part.unnamed
    return replace(
        parts[0],
        rows=rows,
        experiments=tuple(experiments),
        commands=tuple(commands),
        families=tuple(families),
        unnamed=frozenset(unnamed),
    )


def _on_common_seeds(
    data: Collected, parts: Iterable[Section], problems: list[Problem]
) -> list[Section]:
    """The sections that have common seeds, on these; the others are added to ``problems``."""
    kept = []
    for asked in parts:
        part = with_common_seeds(data, asked)
        if part.rows:
            kept.append(part)
            continue
        finished = [row for row in asked.rows if row.finished]
        # A section without any finished run is left out without a problem.
        if finished:
            place = f"{asked.scale} scale, {asked.env}, {asked.model}{asked.apart}"
            problems.append(Problem(COMMON_SEEDS, without_common_seed(data, finished, place)))
    return kept


def _repeats(part: Section, known: Section) -> bool:
    """True if a known section has all rows of this one, with all of their runs."""
    if (part.scale, part.env, part.model) != (known.scale, known.env, known.model):
        return False
    return bool(part.rows) and all(
        set(row.runs) <= set(known.row(row.name).runs) for row in part.rows
    )


def _told_apart_by_seeds(parts: Sequence[Section], runs: Mapping[str, Run]) -> list[Section]:
    """Name sections by their seeds if their selected rows differ from the first's in no setting.

    The settings that set the whole sections apart may be those of rows that are not selected.
    """
    named = list(parts)
    first: dict[tuple[str, str, str], int] = {}
    for index, part in enumerate(parts):
        main = first.setdefault((part.scale, part.env, part.model), index)
        if main != index and _differ_only_in_seeds(part, parts[main], runs):
            usual = parts[main]
            named[main] = replace(named[main], seeds=_shown_seeds(usual))
            named[index] = replace(
                part,
                seeds=_shown_seeds(part),
                differs=usual.differs,
                differs_alone=usual.differs_alone,
            )
    return named


def _differ_only_in_seeds(part: Section, other: Section, runs: Mapping[str, Run]) -> bool:
    """True if the rows that both sections have differ in seeds and in no setting."""
    shared: list[tuple[Row, Row]] = []
    for row in part.rows:
        same = other.row(row.name)
        if row.finished and same.finished:
            shared.append((row, same))
    if part.reworded != other.reworded or not shared:
        return False
    for row, same in shared:
        first, second = runs[row.finished[0]], runs[same.finished[0]]
        if first.setting != second.setting:
            return False
        # A configuration of verl-agent holds names and paths of its run, so no two are equal.
        foreign = first.foreign or second.foreign
        if not foreign and configuration_of(first.config) != configuration_of(second.config):
            return False
    return any(row.runs != same.runs for row, same in shared)


def _shown_seeds(part: Section) -> str:
    return seed_list(seed for row in part.rows for seed in row.finished_seeds)


def with_common_seeds(data: Collected, part: Section) -> Section:
    """Keep the seeds that all rows with finished runs have in common; drop the other rows."""
    rows = tuple(rows_with_common_seeds(data, part.rows))
    return replace(part, rows=rows, left_out=seeds_left_out(data, part.rows, rows))


def rows_with_common_seeds(data: Collected, rows: Iterable[Row]) -> list[Row]:
    """The rows with finished runs, on the seeds that all of these have; empty without any seed.

    Rows that only prompt keep all of their seeds: no seed of theirs is paired with trained rows.
    """
    finished = [row for row in rows if row.finished]
    trained = [row for row in finished if data.is_trained(row)]
    deciding = trained or finished
    seeds = [row.finished_seeds for row in deciding]
    common = set.intersection(*seeds) if seeds else set()
    if not common:
        return []
    kept: list[Row] = []
    for row in finished:
        if row in deciding:
            runs = tuple(run for run in row.runs if run.seed in common)
            kept.append(replace(row, runs=runs))
        else:
            kept.append(row)
    return kept


def seeds_left_out(data: Collected, rows: Iterable[Row], kept: Sequence[Row]) -> str:
    """Note on the seeds and rows that ``rows_with_common_seeds`` left out; empty without any."""
    shown = {row.name: row for row in kept}
    # Seeds that are left out -> the rows that have these seeds.
    cut: dict[str, list[str]] = {}
    without: list[str] = []
    for row in rows:
        if row.name not in shown:
            without.append(_printed(row))
            continue
        left_out = row.seeds - shown[row.name].seeds
        if left_out:
            cut.setdefault(seed_list(left_out), []).append(_printed(row))
    parts = [f"{seeds} of {first_names(labels)}" for seeds, labels in cut.items()]
    if without:
        parts.append(f"{first_names(without)}, without a finished run")
    if not parts:
        return ""
    common = "no seed"
    if kept:
        # Rows that only prompt may have further seeds.
        deciding = next((row for row in kept if data.is_trained(row)), kept[0])
        common = seed_list(deciding.seeds)
    return f"{common} alone ({COMMON_SEEDS}); left out: {'; '.join(parts)}"


def without_common_seed(data: Collected, rows: Sequence[Row], place: str) -> str:
    """The reason why finished rows of a place are left out, and which row to leave out instead."""
    # By the names that --rows takes.
    names = first_names([row.name for row in rows])
    return f"no seed is finished in all of {names} ({place}){_row_to_drop(data, rows)}"


def _row_to_drop(data: Collected, rows: Sequence[Row]) -> str:
    """Name the row without which the others have most seeds in common; empty if none helps."""
    trained = [row for row in rows if data.is_trained(row)] or rows
    seeds: dict[str, int] = {}
    for row in trained:
        others = rows_with_common_seeds(data, (other for other in trained if other is not row))
        seeds[row.name] = len(others[0].runs) if others else 0
    best = max(seeds, key=seeds.__getitem__)
    if not seeds[best]:
        return ""
    are = "is" if seeds[best] == 1 else "are"
    return f"; without {best}, {counted(seeds[best], 'seed')} {are} (--rows)"


# Labels that our experiments give to rows which are named as a method and have its settings,
# apart from the label of the method and "SCPO (default)".
OUR_LABELS = {
    "gigpo": ("no credit (GiGPO)", "GiGPO, 8 siblings"),
    "scpo": ("SCPO, 8 siblings",),
    "hgpo": ("HGPO, K = 2",),
}


def has_method_label(row: Row) -> bool:
    """True if a row is named as a method and has its label, or one of our experiments' for it.

    Print then has the method's label. Another label is the user's, whose settings may not be the
    method's.
    """
    method = METHOD_LABELS.get(row.name)
    if method is None:
        return False
    usual = (row.name, method, f"{method} (default)", *OUR_LABELS.get(row.name, ()))
    return row.label.casefold() in map(str.casefold, usual)


def _printed(row: Row) -> str:
    """Name of a row as tables print it."""
    return METHOD_LABELS[row.name] if has_method_label(row) else row.label


def _check(
    option: str,
    names: Sequence[str],
    known: Sequence[str],
    likely: Sequence[str] = (),
    whose: str = "these runs",
) -> None:
    """Refuse unknown names.

    Args:
        option: The option.
        names: Its names.
        known: The names that exist.
        likely: Those of them that are suggested first.
        whose: Whose names they are, for the message.

    Raises:
        ConfigError: A name is unknown.
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        if not known:
            raise ConfigError(f"{option} {', '.join(unknown)}: {whose} have none at all")
        available = ", ".join(sorted(set(known)))
        hint = did_you_mean(unknown[0], likely) or did_you_mean(unknown[0], known)
        raise ConfigError(
            f"{option} {', '.join(unknown)}: {whose} have none of this name{hint}\n"
            f"they have {available}"
        )


def missing_samples(data: Collected, needed: str, command: str = "") -> MissingRunsError:
    """The error of an output that needs samples or times of stages.

    Archives and W&B have neither; in this case the error names run folders as the source.

    Args:
        data: Data of one scale.
        needed: Description of what no finished run has.
        command: Command for a run that has it; default: a run of the default method.
    """
    scale = data.scales[0] if data.scales else "mini"
    if not command:
        command = f"python train.py method={DEFAULT}"
        if scale != "mini":
            command += f" scale={scale}"

    # A run may be in many rows.
    ids: set[str] = set()
    for part in data.sections:
        for row in part.rows:
            ids.update(row.finished)
    finished = [data.by_id[run] for run in sorted(ids)]
    # With run folders among the sources, the samples were never made: name the command.
    if not finished or any(run.has_samples for run in finished):
        return MissingRunsError(needed, command)
    archived = all(run.logs == (METRICS,) for run in finished)
    source = "an archive" if archived else "W&B or an archive"
    reason = (
        f"diagnostics: all {counted(len(finished), 'finished run')} were read from {source}, "
        "which holds metrics and no diagnostics (sampled groups, probes, step texts, seconds of "
        "stages)"
    )
    remedy = f"read run folders that have them with --runs-dir, or make one: {command}"
    return MissingRunsError(reason, remedy)
