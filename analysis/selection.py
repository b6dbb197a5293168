"""What a user chooses to draw: rows, experiments and environments; and what to do where runs lack samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scpo.errors import ConfigError
from scpo.progress import counted
from scpo.records.archive_index import METRICS

from analysis.sources.collect import Collected
from analysis.sources.rows import DEFAULT, MissingRunsError, Section
from analysis.sources.run_records import Run


@dataclass(frozen=True)
class Selection:
    """Names that the user gave; an empty list selects everything.

    Attributes:
        rows: Row names, in the order in which they shall be drawn.
        experiments: Experiments whose rows, and whose seeds of them, are drawn.
        envs: Environments.
        common_seeds: Only the seeds that all rows of a section have finished.
    """

    rows: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()
    envs: tuple[str, ...] = ()
    common_seeds: bool = False

    def of(self, data: Collected) -> Collected:
        """The same data with the selected rows of the selected sections.

        Raises:
            ConfigError: A name is unknown, or no row has all that was asked for.
        """
        if self == Selection():
            return data
        _check("--env", self.envs, [part.env for part in data.sections])
        _check(
            "--experiment",
            self.experiments,
            [name for part in data.sections for name in part.experiments],
        )
        _check("--rows", self.rows, [row.name for part in data.sections for row in part.rows])
        parts = []
        for part in data.sections:
            if not self.envs or part.env in self.envs:
                selected = self._rows_of(part)
                if self.common_seeds:
                    selected = with_common_seeds(selected)
                if selected.rows:
                    parts.append(selected)
        if not parts:
            raise ConfigError(
                "no row has all that --rows, --experiment and --env ask for; leave one of them out"
            )
        chosen = self.rows
        if self.experiments and not self.rows:
            chosen = tuple(dict.fromkeys(row.name for part in parts for row in part.rows))
        return replace(data, sections=tuple(parts), chosen=chosen)

    def _rows_of(self, part: Section) -> Section:
        families = part.families
        rows = list(part.rows)
        if self.experiments:
            families = tuple(family for family in families if family.experiment in self.experiments)
            asked = part.as_asked_by(*self.experiments).rows
            rows = [row for row in asked if any(row.name in family.rows for family in families)]
        if self.rows:
            by_name = {row.name: row for row in rows}
            rows = [by_name[name] for name in self.rows if name in by_name]
        kept = {row.name for row in rows}
        families = tuple(
            replace(family, rows=tuple(name for name in family.rows if name in kept))
            for family in families
        )
        experiments = self.experiments or part.experiments
        return replace(
            part,
            rows=tuple(rows),
            families=families,
            experiments=tuple(name for name in part.experiments if name in experiments),
        )


def with_common_seeds(part: Section) -> Section:
    """The section with the seeds that all of its rows have finished; rows without any are left out."""
    rows = [row for row in part.rows if row.finished]
    finished = [{run.seed for run in row.runs if run.id in row.finished} for row in rows]
    common = set.intersection(*finished) if finished else set()
    kept = tuple(
        replace(row, runs=tuple(run for run in row.runs if run.seed in common))
        for row in rows
        if common
    )
    return replace(part, rows=kept)


def _check(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        available = ", ".join(sorted(set(known)))
        raise ConfigError(
            f"{option} {', '.join(unknown)}: these runs have none of this name; they have "
            f"{available}"
        )


def missing_samples(data: Collected, needed: str, command: str = "") -> MissingRunsError:
    """The error of an output that needs samples or stage times, which archives and W&B do not hold.

    Args:
        data: The data of one scale.
        needed: What no finished run has.
        command: What makes a run that has it; default: one run of the default method.
    """
    ids = {
        run for part in data.sections for row in part.rows for run in row.finished
    }  # a run may be in many rows
    finished = [data.by_id[run] for run in sorted(ids)]
    scale = data.scales[0] if data.scales else "mini"
    make = command or f"python train.py method={DEFAULT}" + (
        f" scale={scale}" if scale != "mini" else ""
    )
    if not finished:
        return MissingRunsError(needed, make)
    without = [run for run in finished if not _has_samples(run)]
    if len(without) < len(finished):
        return MissingRunsError(needed, make)
    place = "an archive" if all(run.logs == (METRICS,) for run in without) else "W&B or an archive"
    reason = (
        f"diagnostics: all {counted(len(finished), 'finished run')} were read from {place}, which "
        f"holds metrics and no "
        "diagnostics (sampled groups, probes, step texts, seconds of stages)"
    )
    return MissingRunsError(
        reason, f"read run folders that have them with --runs-dir, or make one: {make}"
    )


def _has_samples(run: Run) -> bool:
    return run.logs != (METRICS,) and run.project is None
