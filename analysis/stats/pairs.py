"""Seeds by which two rows are paired, and those that are left out.

The module does not load pandas, because the table at the end of a sweep pairs its rows here, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.sources.configurations import same_games
from analysis.sources.rows import Row, stretches
from analysis.sources.run_records import Run, one_processor_type


@dataclass(frozen=True)
class Pairs:
    """Seeds at which both rows have a finished run.

    Attributes:
        planned: Number of seeds that the experiments plan for both rows.
        used: Seeds whose differences are used.
        crossed: Seeds whose two runs had different types of processor. Sums of floats differ
            between types, so these are used only without any other pairs.
        other_games: Seeds whose runs were validated on different games; never used.
        unnamed: Further seeds that both rows have finished, on which no experiment named the
            comparison before their runs; never used.
    """

    planned: int
    used: tuple[int, ...]
    crossed: tuple[int, ...] = ()
    other_games: tuple[int, ...] = ()
    unnamed: tuple[int, ...] = ()

    @property
    def count(self) -> str:
        """Number of used and of planned seeds, e.g. ``18/20``."""
        return f"{len(self.used)}/{self.planned}"

    @property
    def remark(self) -> str:
        """Remark on pairs that are left out, or have two types of processor; empty without any."""
        parts = []
        if self.crossed:
            use = "used, for there are no others" if self.crossing else "left out"
            parts.append(f"{_counted_seeds(self.crossed)} ran on two types of processor, {use}")
        if self.other_games:
            parts.append(f"{_counted_seeds(self.other_games)} played different games, left out")
        if self.unnamed:
            parts.append(
                f"both rows have {_counted_seeds(self.unnamed)}, too, left out, for no "
                "experiment named the comparison on these before their runs"
            )
        return "; ".join(parts)

    @property
    def crossing(self) -> bool:
        """True if the used pairs have different types of processor."""
        return bool(set(self.crossed) & set(self.used))


def pair_rows(
    first: Row, second: Row, runs: Mapping[str, Run], seeds: Iterable[int] | None = None
) -> Pairs:
    """Pair the seeds at which both rows have a finished run.

    Args:
        first: The first row.
        second: The second row.
        runs: All runs by id.
        seeds: Seeds to take; None: all.
    """
    planned = first.seeds & second.seeds
    if seeds is not None:
        planned &= set(seeds)
    finished = {*first.finished, *second.finished}
    same = []
    crossed = []
    other_games = []
    for seed in sorted(planned):
        ids = run_id(first, seed), run_id(second, seed)
        if not set(ids) <= finished:
            continue
        run, other = runs[ids[0]], runs[ids[1]]
        if not same_games(_held_out_games(run), _held_out_games(other)):
            other_games.append(seed)
        elif not one_processor_type(run, other):
            crossed.append(seed)
        else:
            same.append(seed)

    # Pairs with different types of processor are used only without any others.
    used = same or crossed
    return Pairs(len(planned), tuple(used), tuple(crossed), tuple(other_games))


def run_id(row: Row, seed: int) -> str:
    """Id of the row's run of a seed, which it has planned."""
    return next(run.id for run in row.runs if run.seed == seed)


def seed_ranges(seeds: Sequence[int]) -> str:
    """Seeds as ranges, e.g. ``0–3, 7``."""
    parts = []
    for stretch in stretches(seeds):
        first, last = stretch[0], stretch[-1]
        parts.append(str(first) if first == last else f"{first}–{last}")
    return ", ".join(parts)


def _counted_seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {seed_ranges(seeds)}"


def _held_out_games(run: Run) -> dict[str, object]:
    # Training panels may differ on purpose, as in an experiment on the number of games.
    return {name: panel for name, panel in run.panels.items() if name.startswith(("valid", "test"))}
