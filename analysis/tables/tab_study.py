"""The study's rows by every measure: areas under the curves, held-out success at fixed steps, steps to 50 and 80 %."""

from collections.abc import Iterator, Sequence

from analysis.naming.names import place, with_note
from analysis.rendering.table import NONE, Block, Number, Table, difference, number
from analysis.sources.collect import Collected
from analysis.sources.rows import Family, Row, Section, missing_runs
from analysis.stats.comparisons import MAIN, REFERENCES, compare, label_of
from analysis.stats.measures import LEVELS, MEASURES, Measure, by_seed, held_out, steps_to, success_at
from scpo.intervals import summarise

SCALE = "study"
MOST_STEPS = 4  # columns of success at a step
AREAS = ("validation_area", "training_area")
CAPTION = (
    "Success (%) on held-out games (those of all validation panels together): area under the curve over training, "
    "which is a mean success rate; success after fixed training steps; training steps until it first reaches 50 and "
    "80 %, on the straight lines between validations (– where a seed never does). Mean ± standard deviation over the "
    "finished seeds (seeds: finished/planned). “Minus GiGPO” and “minus SCPO”: difference of the areas under "
    "validation in points, paired by seed, with the 95 % Student interval, each by itself; the comparisons that were "
    "named before the runs, corrected for their number, stand in tab_study_effects."
)


def build(data: Collected) -> Table:
    """One block for each experiment; MissingRunsError if nothing has finished that was validated while it trained."""
    found = [(part, family, _rows(data, part, family)) for part in data.sections for family in part.families]
    ready = [item for item in found if item[2]]
    if not ready:
        raise missing_runs("finished runs of the study", data.sections, MAIN)
    ready.sort(key=lambda item: item[1].experiment != MAIN)
    measures = _measures(data, ready[0][2])
    return Table(
        words=("Row", "Seeds"),
        numbers=(*(f"minus {label}" for label in REFERENCES.values()), *(measure.label for measure in measures)),
        blocks=tuple(
            Block(_title(part, family), tuple(_line(data, part, row, measures) for row in rows))
            for part, family, rows in ready
        ),
        caption=with_note(CAPTION, ready[0][0].scale),
        label=f"tab:study-{ready[0][0].scale}",
    )


def _rows(data: Collected, part: Section, family: Family) -> list[Row]:
    of_family = [row for row in part.rows if row.name in family.rows and row.finished]
    return [row for row in of_family if len(held_out(data, row.finished[0]).steps) > 1]


def _measures(data: Collected, rows: Sequence[Row]) -> list[Measure]:
    """The columns: at most ``MOST_STEPS`` validations, the last one among them."""
    steps = held_out(data, rows[0].finished[0]).steps[1:]
    every = -(-len(steps) // MOST_STEPS)
    chosen = sorted(steps[::-1][::every])
    return [*(MEASURES[name] for name in AREAS), *map(success_at, chosen), *map(steps_to, LEVELS)]


def _title(part: Section, family: Family) -> str:
    apart = f", with {part.differs}" if part.differs else ""
    return f"{family.title}: {place(part.scale, part.env, part.model)}{apart}"


def _line(data: Collected, part: Section, row: Row, measures: Sequence[Measure]) -> tuple[str | Number, ...]:
    return (label_of(row), row.count, *_differences(data, part, row), *(_cell(data, row, one) for one in measures))


def _differences(data: Collected, part: Section, row: Row) -> Iterator[Number]:
    for name in REFERENCES:
        reference = part.row(name)
        if not reference.finished or reference.finished == row.finished:
            yield NONE
        else:
            yield difference(compare(data, part, row, reference, MEASURES["validation_area"]).difference)


def _cell(data: Collected, row: Row, measure: Measure) -> Number:
    values = list(by_seed(data, row, measure).values())
    if None in values:
        return NONE
    return number(summarise(values), measure.factor, measure.digits)
