"""Tables in docs/meaning.md: how well identities agree with the simulator's states in training."""

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.sources.collected import Collected
from scpo.records.status import State


@dataclass(frozen=True)
class Agreement:
    """One table.

    Attributes:
        markers: Lines of the document that it is written between.
        experiment: The experiment whose runs it shows.
        intro: What it shows; ``{seeds}`` is filled in.
        head: Head of its first column.
        steps: Training steps of its columns.
        lines: Label, metric, experiment (None: ``experiment``) and row of each line.
    """

    markers: tuple[str, str]
    experiment: str
    intro: str
    head: str
    steps: tuple[int, ...]
    lines: tuple[tuple[str, str, str | None, str], ...]


MADE = "written by `python -m analysis meaning` -->"
ALFWORLD = Agreement(
    markers=(f"<!-- agreement: {MADE}", "<!-- end of agreement -->"),
    experiment="meaning",
    intro=(
        "Agreement with the simulator's states in the trained runs, all observations reworded "
        "(`states/*` in their logs), {seeds}:"
    ),
    head="training step",
    steps=(1, 5, 12, 20, 40),
    lines=(
        ("`history`: cosine of the step term", "cosine", None, "crbc_history"),
        ("`learned`: cosine", "cosine", None, "crbc_learned"),
        ("`learned`: recall", "recall", None, "crbc_learned"),
        ("`entities`: cosine", "cosine", None, "crbc_entities"),
        ("`effects`: cosine", "cosine", None, "crbc_effects"),
        ("`effects`, with pronouns: cosine", "cosine", "meaning_arms", "effects_pronouns"),
    ),
)
WEBSHOP = Agreement(
    markers=(f"<!-- agreement on WebShop: {MADE}", "<!-- end of agreement on WebShop -->"),
    experiment="meaning_webshop",
    intro=(
        "Agreement with the simulator's states in the trained runs on WebShop, every page "
        "reworded, {seeds}:"
    ),
    head="WebShop, training step",
    steps=(1, 6, 12, 20, 40),
    lines=tuple(
        (f"`{name}`: {metric}", metric, None, f"crbc_{name}")
        for metric, names in (
            ("cosine", ("exact", "history", "learned", "effects")),
            ("precision", ("learned", "history", "effects")),
            ("recall", ("learned", "history", "effects")),
        )
        for name in names
    ),
)
TABLES = (ALFWORLD, WEBSHOP)


def agreement_text(data: Collected, table: Agreement) -> str:
    """Write one table with the seeds that its means are over."""
    done = {name for name, run in data.by_id.items() if run.state == State.DONE}
    finished = {
        (record.experiment, row.name): [run.id for run in row.runs if run.id in done]
        for record in data.experiments
        for row in record.rows
    }
    # Label, metric and the known values at each step; lines without any value are left out.
    lines = []
    for label, metric, experiment, name in table.lines:
        runs = finished.get((experiment or table.experiment, name), [])
        logged = [data.series(run, f"states/{metric}") for run in runs]
        known: list[list[float]] = []
        for step in table.steps:
            values = [series.at(step) for series in logged]
            known.append([value for value in values if value is not None])
        if any(known):
            lines.append((label, metric, known))
    if not lines:
        return "Not run yet."
    seeds = max(len(cell) for _, _, known in lines for cell in known)
    fewer: dict[tuple[str, int], set[int]] = {}
    for _, metric, known in lines:
        for step, cell in zip(table.steps, known, strict=True):
            if len(cell) < seeds:
                fewer.setdefault((metric, step), set()).add(len(cell))
    words = f"means over {seeds} seeds" + "".join(_fewer(fewer))
    return "\n".join(
        [
            table.intro.format(seeds=words),
            "",
            f"| {' | '.join([table.head, *map(str, table.steps)])} |",
            "|---" * (len(table.steps) + 1) + "|",
            *(f"| {' | '.join([label, *map(_mean, known)])} |" for label, _, known in lines),
        ]
    )


def _fewer(fewer: dict[tuple[str, int], set[int]]) -> Iterator[str]:
    # The cosine has no value at a step where the step term by the simulator's states is 0.
    for (metric, step), counts in fewer.items():
        least, most = min(counts), max(counts)
        number = f"{least}" if least == most else f"{least} to {most}"
        yield f", those of the {metric} at training step {step} over the {number} that have a value"


def _mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.2f}" if values else "–"
