"""The runs of all sources, with the methods by which builders of tables and figures read them.

``Collected`` notes every file that is read, so that builders need not list the sources of their
outputs.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import pandas as pd

from analysis.sources.configurations import is_prompted, other_values
from analysis.sources.rows import Row, Section, first_names, seed_list
from analysis.sources.run_records import ExperimentRecord, Problem, Run
from analysis.sources.series import Series, panels_of
from scpo.errors import RecordError, ScpoError
from scpo.intervals import Summary, summarise
from scpo.records.files import SAMPLE, change, write_bytes
from scpo.records.status import State

Sample = TypeVar("Sample")

# State of a run whose folder was left out -> its words in a note.
LEFT_OUT: Mapping[str, str] = {State.DAMAGED: "damaged", State.UNREADABLE: "not readable for you"}


@dataclass(frozen=True)
class Collected:
    """All collected records; ``runs`` and ``metrics`` are written as parquet tables.

    Attributes:
        by_id: Every run by its id.
        runs: One line per run, with the columns ``RUN_COLUMNS`` of ``analysis.sources.collect``.
        metrics: The long table (run, step, metric, value), sorted by run, metric and step.
        sections: Rows that may share a table.
        problems: Runs and files that were left out.
        by_metric: Run id -> metric -> series.
        experiments: Records of the experiments.
        chosen: Row names that the user chose (``analysis.selection``); empty: all.
        asked_rows: Names of ``--rows``; ``chosen`` also has the rows of chosen experiments.
        asked: Experiments that the user chose, of which only the seeds are shown; empty: all.
        unselected: Sections of all scales before the user chose; empty: ``sections``.
        common_seeds: The user chose the seeds that all rows of a block have finished.
        cut_seeds: Notes on finished seeds that the choice of common seeds keeps out of the present
            output, each once.
        two_results: Run id -> note on the copy in use, where another one has other numbers.
        used: (run, file) pairs that the present output is made from.
        seen: (run, file) pairs that the present output could choose from.
    """

    by_id: Mapping[str, Run]
    runs: pd.DataFrame
    metrics: pd.DataFrame
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]
    by_metric: Mapping[str, Mapping[str, Series]] = field(repr=False)
    experiments: tuple[ExperimentRecord, ...] = ()
    chosen: tuple[str, ...] = ()
    asked_rows: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    unselected: tuple[Section, ...] = ()
    common_seeds: bool = False
    cut_seeds: dict[str, None] = field(default_factory=dict)
    two_results: Mapping[str, str] = field(default_factory=dict)
    used: set[tuple[str, str]] = field(default_factory=set)
    seen: set[tuple[str, str]] = field(default_factory=set)
    # (run, file) -> problem of each sample that was requested, or None; shared by all scales.
    _samples: dict[tuple[str, str], Problem | None] = field(default_factory=dict, repr=False)

    @property
    def scales(self) -> tuple[str, ...]:
        """Scales that have rows. A table or figure has rows of one scale only."""
        return tuple(sorted({section.scale for section in self.sections}))

    @property
    def experiment_rows(self) -> tuple[tuple[Row, ...], ...]:
        """Rows of each experiment by name of the experiment, whichever rows the user chose."""
        rows: dict[str, dict[str, Row]] = {}
        for section in self.unselected or self.sections:
            for family in section.families:
                own = rows.setdefault(family.experiment, {})
                for row in family.runs:
                    # A row of which no run has started in a section has no method there.
                    if row.name not in own or not own[row.name].method:
                        own[row.name] = row
        return tuple(tuple(rows[name].values()) for name in sorted(rows))

    def at_scale(self, scale: str) -> "Collected":
        """The data for one builder: sections of one scale; ``used`` and ``seen`` are empty."""
        parts = tuple(part for part in self.sections if part.scale == scale)
        every = self.unselected or self.sections
        return replace(self, sections=parts, unselected=every, cut_seeds={}, used=set(), seen=set())

    def to_choose_from(self) -> "Collected":
        """The same data, for a builder that compares candidates: what it reads is ``seen`` only."""
        return replace(self, used=self.seen)

    def unmarked(self, footnotes: Iterable[str]) -> tuple[str, ...]:
        """Notes on ``Row.shared`` of the present output's rows that no footnote has.

        Returns:
            For example ``("SCPO: method.estimator.omega=1.0 (GiGPO: 2.0)",)``.
        """
        texts = list(footnotes)
        used = {run for run, _ in self.used}
        notes: dict[str, None] = {}
        for part in self.sections:
            for row in part.rows:
                marked = any(row.shared in text for text in texts)
                if row.shared and not marked and used.intersection(row.finished):
                    notes[f"{row.label}: {row.shared}"] = None
        return tuple(notes)

    def given(self) -> tuple[str, ...]:
        """Notes on the settings that were given for whole experiments of the present output.

        All rows of such an experiment share them, so no row is marked, and yet they may not be
        those of the scale. Rows that are compared with them may be of another call, without these
        settings; then the note names the rows that have them, and the values of the others.

        Returns:
            For example ``("given on the command line: trainer.steps=4 for all runs of
            main_table",)``; empty if none were given.
        """
        used = {run for run, _ in self.used}
        names: dict[tuple[str, ...], list[str]] = {}
        for record in self.experiments:
            if record.given and record.scale in self.scales and record.run_ids & used:
                names.setdefault(record.given, []).append(record.experiment)
        notes = []
        for words, experiments in names.items():
            notes.append(
                f"given on the command line: {' '.join(words)} for "
                f"{self._given_to(words, experiments, used)}"
            )
        return tuple(notes)

    def _given_to(
        self, words: Sequence[str], experiments: Sequence[str], used: Collection[str]
    ) -> str:
        """The runs that these words were given for, e.g. ``all runs of main_table``.

        Args:
            words: Words of a command line.
            experiments: Experiments that were called with them.
            used: Ids of the runs of the present output.
        """
        planned: set[str] = set()
        for record in self.experiments:
            if record.experiment in experiments and record.given == tuple(words):
                planned |= record.run_ids
        having: dict[str, None] = {}
        lacking: dict[str, None] = {}
        for part in self.sections:
            shown = [(row, [run for run in row.finished if run in used]) for row in part.rows]
            with_words = [run for _, runs in shown for run in runs if run in planned]
            for row, runs in shown if with_words else ():
                others = [run for run in runs if run not in planned]
                if len(others) < len(runs):
                    having[row.label] = None
                for run in others:
                    example = self.by_id[with_words[0]].config
                    own = other_values(words, self.by_id[run].config, example)
                    if own is not None:
                        lacking[f"{row.label}{f': {own}' if own else ''}"] = None
        if not lacking:
            return f"all runs of {', '.join(experiments)}"
        return f"{first_names(having)} of {', '.join(experiments)}, not for {first_names(lacking)}"

    def damaged(self) -> tuple[str, ...]:
        """Notes on runs of the present output's rows that cannot be read or have two results.

        Returns:
            For example ``("damaged and left out: GRPO (seeds 3, 4)",)``; empty without any.
        """
        used = {run for run, _ in self.used}
        rows: dict[str, dict[str, list[int]]] = {}
        two: dict[str, dict[str, set[int]]] = {}
        for part in self.sections:
            for row in part.rows:
                if not used.intersection(row.finished):
                    continue
                for run in row.unfinished(self.left_out):
                    if what := LEFT_OUT.get(run.state):
                        rows.setdefault(what, {}).setdefault(row.label, []).append(run.seed)
                for run in row.runs:
                    if run.id in used and (taken := self.two_results.get(run.id)):
                        two.setdefault(taken, {}).setdefault(row.label, set()).add(run.seed)
        notes = [f"{what} and left out: {_seeds_of(seeds)}" for what, seeds in rows.items()]
        notes += [f"two results of one run: {_seeds_of(two[taken])}, {taken}" for taken in two]
        return tuple(notes)

    @property
    def left_out(self) -> dict[str, State]:
        """Ids of the run folders that could not be read, each with DAMAGED or UNREADABLE."""
        return ids_left_out(self.problems)

    def not_shown(self, runs: Iterable[str]) -> str:
        """Note on the rows of ``--rows`` of which an output shows no run; empty if it shows all.

        Args:
            runs: Ids of the runs that the output shows.
        """
        shown = set(runs)
        labels: dict[str, str] = {}
        seen: set[str] = set()
        for part in self.sections:
            for row in part.rows:
                if row.name in self.asked_rows and row.finished:
                    labels.setdefault(row.name, row.label)
                    if shown & set(row.finished):
                        seen.add(row.name)
        left = [label for name, label in labels.items() if name not in seen]
        return f"rows of --rows that have no place here: {first_names(left)}" if left else ""

    def series(self, run: str, metric: str) -> Series:
        """One metric of one run; empty if it was never logged."""
        if run in self.by_id:
            # Noted even if the metric is missing, because the output depends on that, too.
            self.used.update((run, name) for name in self.by_id[run].logs)
        return self.by_metric.get(run, {}).get(metric, Series())

    def summary(
        self,
        row: Row,
        metric: str,
        which: Literal["before", "last", "best", "mean"],
    ) -> Summary:
        """Summarise a property of ``Series``, named by ``which``, over the row's finished runs."""
        return summarise(getattr(self.series(run, metric), which) for run in row.finished)

    def is_trained(self, row: Row) -> bool:
        """True if a finished run of the row trains; False for prompting, or without such a run."""
        return any(not is_prompted(self.by_id[run].config) for run in row.finished)

    def metric_names(self, run: str) -> tuple[str, ...]:
        """Metrics that a run logged, sorted."""
        return tuple(sorted(self.by_metric.get(run, ())))

    def panels(self, run: str) -> tuple[str, ...]:
        """Names of the validation panels that a run was evaluated on, sorted."""
        return panels_of(self.by_metric.get(run, ()))

    def diagnostics(self, run: str, pattern: str) -> tuple[Path, ...]:
        """Paths of a run's undamaged samples whose names match.

        Builders must note each sample that they draw with ``use``. Damaged samples become
        ``sample_problems``.
        """
        paths = sorted((self.by_id[run].folder / "diagnostics").glob(pattern))
        self.seen.update((run, self._inside(run, path)) for path in paths)
        return tuple(path for path in paths if self._is_whole(run, path))

    def samples(
        self,
        run: str,
        pattern: str,
        read: Callable[[Path], Sample],
    ) -> Iterator[tuple[Path, Sample]]:
        """Yield the paths and contents of a run's samples that can be read.

        Builders must note each sample that they draw with ``use``. Samples with damage or with
        content that ``read`` rejects become ``sample_problems``; the others are still drawn.
        """
        for path in self.diagnostics(run, pattern):
            try:
                content = read(path)
            except RecordError as error:
                problem = Problem(f"{run}/{path.name}", str(error))
                self._samples[run, self._inside(run, path)] = problem
            else:
                yield path, content

    @property
    def sample_problems(self) -> tuple[Problem, ...]:
        """Samples that were requested and left out."""
        samples = [self._samples[key] for key in sorted(self._samples)]
        return tuple(problem for problem in samples if problem is not None)

    def _is_whole(self, run: str, path: Path) -> bool:
        key = (run, self._inside(run, path))
        if key not in self._samples:
            reason = sample_damage(self.by_id[run], path)
            self._samples[key] = Problem(f"{run}/{path.name}", reason) if reason else None
        return self._samples[key] is None

    def use(self, run: str, *paths: Path) -> None:
        """Note files of the run as sources of the present output."""
        self.used.update((run, self._inside(run, path)) for path in paths)

    def _inside(self, run: str, path: Path) -> str:
        return str(path.relative_to(self.by_id[run].folder))


def _seeds_of(rows: Mapping[str, Collection[int]]) -> str:
    """Rows with seeds, e.g. ``GRPO (seeds 3, 4)``."""
    return ", ".join(f"{label} ({seed_list(seeds)})" for label, seeds in rows.items())


def ids_left_out(problems: Iterable[Problem]) -> dict[str, State]:
    """Ids of the runs that these problems left out, each with DAMAGED or UNREADABLE."""
    found: dict[str, State] = {}
    for problem in problems:
        if not problem.harmless:
            found |= dict.fromkeys((Path(problem.path).name, *problem.runs), problem.state)
    return found


def sample_damage(run: Run, path: Path) -> str | None:
    """Describe how a sample differs from what the run wrote; None if it does not.

    Samples of a run without any recorded checksums count as undamaged.
    """
    known = run.sums.get(str(path.relative_to(run.folder)))
    if known is not None:
        changed = change(path, known, whole=True)
        if not changed:
            return None
        return f"{changed}: left out. {SAMPLE}"
    # A live run may have written a sample whose checksum it has not recorded yet.
    if run.sums and run.state == State.DONE:
        return "is no file that the run wrote: left out. Move it away"
    return None


def write_parquet(data: Collected, folder: Path) -> tuple[Path, Path]:
    """Write ``metrics.parquet`` and ``runs.parquet``; equal data gives equal bytes."""
    paths = folder / "metrics.parquet", folder / "runs.parquet"
    for path, table in zip(paths, (data.metrics, data.runs), strict=True):
        write_bytes(path, table.to_parquet(index=False), readable=True)
    return paths


# Missing runs


class MissingRunsError(ScpoError, LookupError):
    """No finished run has what an output needs; ``command`` makes the runs."""

    def __init__(self, needed: str, command: str) -> None:
        super().__init__(f"no {needed}. Make them with:\n{command}")
        self.needed = needed
        self.command = command


def missing_runs(needed: str, parts: Sequence[Section], *experiments: str) -> MissingRunsError:
    """The error with the commands of these experiments.

    Args:
        needed: Description of what is missing.
        parts: Sections of the output, for the scale.
        experiments: Names of experiments; default: the recorded ones of ``parts``, or else the
            ablation.
    """
    recorded = dict.fromkeys(name for part in parts for name in part.sweeps)
    names = experiments or tuple(recorded) or ("ablation",)
    # The default scale is left out, to keep the command short.
    scale = f" scale={parts[0].scale}" if parts and parts[0].scale != "mini" else ""
    commands = [f"python sweep.py +experiment={name}{scale}" for name in names]
    return MissingRunsError(needed, "\n".join(commands))
