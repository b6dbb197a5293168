"""Main table: every method on both benchmarks, published and measured, and what SCPO adds to each, paired by seed.

A cell belongs to one method, one benchmark and one setting. The two benchmarks stand in one row
where one experiment asked for both; whatever was run under another setting stands in a block of its
own, which says what differs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scpo.intervals import Summary
from scpo.schema import FAMILIES

from analysis.naming import names
from analysis.naming.methods import (
    CLOSED,
    METHODS,
    PROMPTING,
    SIZES,
    in_order,
    is_method,
    method_of,
)
from analysis.naming.names import Footnotes
from analysis.paper.published import main_table
from analysis.rendering.table import (
    COPIED,
    NONE,
    RERUN,
    Block,
    Number,
    Table,
    difference,
    marked,
    percent,
    with_best_in_bold,
    with_columns,
)
from analysis.sources.collect import Collected
from analysis.sources.rows import DEFAULT, Section, missing_runs
from analysis.stats.seed_statistics import best_of_bias
from analysis.tables.comparison import minus, state_key, value

LAST, BEST = "last", "best"
# The numbers' columns: benchmark, name in the paper, checkpoint.
PLACES = (
    *(("ALFWorld", column, LAST) for column in names.COLUMNS),
    ("ALFWorld", names.ALL, BEST),
    *(("WebShop", column, which) for which in (LAST, BEST) for column in ("Score", "Succ")),
)
COLUMNS = tuple(f"{column}, best" if which == BEST else column for _, column, which in PLACES)
HOME, SHOP = "alfworld", "webshop"  # begins the names of the shop's settings
EXPERIMENTS = {"main_table", "prompting"}
PANELS = (
    ("valid_seen", "test"),
    ("valid_unseen", None),
    ("train_games", "train_games"),
)  # ALFWorld's, WebShop's
OVERALL = (names.ALL, "Score", "Succ")
Panels = tuple[str, str | None]
Cells = tuple[str | Number, ...]
CAPTION = (
    "Main results: success rate (%) by task family and overall on ALFWorld, average score and "
    "success rate (%) on WebShop; mean ± standard deviation over the finished seeds (seeds: "
    "finished/planned, of ALFWorld; of WebShop where they differ). Columns without a word are of "
    "the last checkpoint, which every comparison uses; those named “best” of the checkpoint with "
    "the highest overall success of the same run, which is optimistic: {bias} “SCPO − method” is "
    "the mean difference at the last checkpoint over the seeds that both have, with its 95 % "
    "Student-t interval where there are several; of task families, six chances of a false alarm, "
    "the mean alone."
)
PUBLISHED_NOTE = (
    " Numbers with ᶜ are copied from the paper as printed, those of rows marked * as it quotes "
    "them from their authors; numbers with ʳ were re-run here. The paper does not name its "
    "checkpoint: its overall numbers are in the columns “best”, because the default of its "
    "sensitivity plot, which shows best checkpoints, equals its headline; “re-run − copied” "
    "compares them with both. Best per column in bold, among copied and among re-run rows."
)


@dataclass(frozen=True)
class Measured:
    """What stands in one block of rows: a section of ALFWorld, one of WebShop, or both."""

    model: str
    home: Section | None
    shop: Section | None
    notes: Footnotes = field(compare=False)

    @property
    def parts(self) -> tuple[Section, ...]:
        """The sections that there are."""
        return tuple(part for part in (self.home, self.shop) if part)

    @property
    def methods(self) -> list[str]:
        """Rows that are methods, in the table's order."""
        return in_order(row for part in self.parts for row in part.rows if row.runs)

    def words(self, name: str) -> tuple[str, str]:
        """Kind and label of a method, with the mark of what sets its runs apart."""
        rows = [row for part in self.parts if (row := part.row(name)).runs]
        marks = dict.fromkeys(self.notes.mark(row.differs) for row in rows)
        known = method_of(rows[0])
        return known.kind, known.label + "".join(marks)

    def count(self, name: str) -> str:
        """Seeds of the row, of both benchmarks where they differ (ALFWorld; WebShop)."""
        counts = [part.row(name).count for part in self.parts]
        return "; ".join(counts if len(set(counts)) > 1 else counts[:1])


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run of a main-table row has finished."""
    notes = Footnotes()
    measured = list(_measured(data.sections, notes))
    if not measured:
        raise missing_runs("finished runs of the main table", data.sections, "main_table")
    scale = data.scales[0]
    own = (block for part in measured for block in _panel_blocks(data, part, PANELS))
    blocks = tuple(_paper_blocks(data, measured) if scale == "paper" else own)
    caption = CAPTION.format(bias=_bias(data, measured)) + (
        PUBLISHED_NOTE if scale == "paper" else ""
    )
    numbers = COLUMNS
    words: tuple[str, ...] = ("Type", "Method", "Numbers", "Seeds", "State key")
    key = words.index("State key")
    if {row[key] for block in blocks for row in block.rows} <= {
        "",
        "–",
    }:  # no estimator tells states apart
        blocks = with_columns(blocks, [k for k in range(len(words) + len(numbers)) if k != key])
        words = words[:key]
    return Table(
        words=words,
        numbers=numbers,
        blocks=blocks,
        caption=names.with_note(f"{caption}{notes.text}{_variants(measured)}", scale),
        label=f"tab:main-{scale}",
    )


def _measured(parts: Iterable[Section], notes: Footnotes) -> Iterator[Measured]:
    """A section of ALFWorld with the one of WebShop that the same experiment asked for; what is left, by itself."""
    ready = [
        part
        for part in parts
        if _is_main(part) and any(row.finished and is_method(row) for row in part.rows)
    ]
    for model in dict.fromkeys(part.model for part in ready):
        mine = [part for part in ready if part.model == model]
        left, paired = [part for part in mine if part.env != HOME], set[str]()
        for home in (part for part in mine if part.env == HOME):
            asked = set(home.experiments) - paired
            shop = next(
                (part for part in left if part.env == SHOP and asked & set(part.experiments)), None
            )
            if shop:
                left.remove(shop)
                paired |= asked & set(shop.experiments)
            yield Measured(model, home, shop, notes)
        for part in left:
            yield Measured(model, None, part, notes)


def _is_main(part: Section) -> bool:
    """An ablation alone, whose default is a row of the main table too, makes no main table."""
    methods = sum(map(is_method, part.rows))
    return bool(EXPERIMENTS & set(part.experiments)) or methods > 1 or methods == len(part.rows)


def _paper_blocks(data: Collected, measured: list[Measured]) -> Iterator[Block]:
    """The published rows of each size, with the rows of the model's first setting under them; then all others."""
    first = {part.model: part for part in reversed(measured)}
    yield _published_block(
        "Closed-source LLMs", data, "closed", [first[model] for model in CLOSED if model in first]
    )
    for size in SIZES:
        mine = [first[size]] if size in first else []
        yield _published_block(names.model(size), data, size, mine)
        for part in mine:
            yield from _differences(data, part, PANELS[0])
            yield from _panel_blocks(data, part, PANELS[1:])
    for part in measured:
        if part is not first[part.model] or part.model not in (*SIZES, *CLOSED):
            yield from _panel_blocks(data, part, PANELS)


def _published_block(title: str, data: Collected, size: str, parts: list[Measured]) -> Block:
    """Published rows of one model size, each with the measured rows of the same method under it."""
    published = _published_rows(size)
    measured = {name: part for part in parts for name in part.methods}
    lines = [_line(data, part, name, PANELS[0]) for name, part in measured.items()]
    own = dict(zip(measured, with_best_in_bold(lines), strict=True))
    rows: list[Cells] = []
    for name in dict.fromkeys((*METHODS, *measured)):
        rows += [published[name]] if name in published else []
        if name in measured:
            rows.append(own[name])
            rows += _against(data, measured[name], name, published.get(name))
    measured_too = ", copied and re-run here" if parts else ", copied"
    return Block(
        f"{title}{measured_too}{''.join(dict.fromkeys(map(_differing, parts)))}", tuple(rows)
    )


def _published_rows(size: str) -> dict[str, Cells]:
    numbers = main_table()
    found: dict[str, Cells] = {}
    for name, method in METHODS.items():
        known = {
            key[2:]: one for key, one in numbers.items() if key[:2] == (size, method.published)
        }
        if known:
            quoted = any(one.quoted for one in known.values())
            # Overall numbers are those of the best checkpoint (see the caption), families have one
            # column.
            cells = []
            for env, column, which in PLACES:
                overall = column in OVERALL
                place = (env, column)
                printed = place in known and (which == BEST or not overall)
                cells.append(known[place].number if printed else NONE)
            spread = any(one.number.std for one in known.values())
            label = f"{method.label}*" if quoted else method.label
            words = (
                method.kind,
                label,
                "quoted" if quoted else "published",
                "3" if spread else "",
                "",
            )
            found[name] = (*words, *marked(cells, COPIED))
    return dict(zip(found, with_best_in_bold(list(found.values())), strict=True))


def _line(data: Collected, part: Measured, name: str, panels: Panels) -> Cells:
    """A row that was re-run here, with its label like every other."""
    kind, label = part.words(name)
    key = state_key(data, [section.row(name) for section in part.parts])
    cells = marked(_cells(data, part, name, panels), RERUN)
    return (kind, label, RERUN, part.count(name), key, *cells)


def _against(
    data: Collected, part: Measured, name: str, published: Cells | None
) -> Iterator[Cells]:
    if not published:
        return
    measured = _cells(data, part, name, PANELS[0])
    numbers = [cell for cell in published if isinstance(cell, Number)]
    # The one printed overall number is compared with both checkpoints, so it is looked up by name.
    printed: dict[tuple[str, str], Number] = {}
    for (env, column, _), cell in zip(PLACES, numbers, strict=True):
        if cell.mean != NONE.mean:
            printed[env, column] = cell
    cells = []
    for (env, column, _), cell in zip(PLACES, measured, strict=True):
        cells.append(_minus(cell, printed.get((env, column), NONE)))
    yield (*part.words(name), "re-run − copied", "", "", *cells)


def _minus(measured: Number, published: Number) -> Number:
    if NONE.mean in (measured.mean, published.mean):
        return NONE
    return Number(f"{float(measured.mean) - float(published.mean):+.1f}".replace("-", "−"))


def _panel_blocks(data: Collected, part: Measured, panels: Iterable[Panels]) -> Iterator[Block]:
    """Measured rows alone, a block for each panel that was evaluated, and what SCPO adds there."""
    for pair in panels:
        rows = [_line(data, part, name, pair) for name in part.methods]
        if any(cell != NONE for row in rows for cell in row if isinstance(cell, Number)):
            yield Block(f"Measured, {_settings(part)}: {_panel_names(part, pair)}", tuple(rows))
            yield from _differences(data, part, pair)


def _differences(data: Collected, part: Measured, panels: Panels) -> Iterator[Block]:
    """SCPO minus every method that was trained beside it, paired by seed."""
    lines = (_difference_line(data, part, name, panels) for name in part.methods)
    if rows := tuple(line for line in lines if line):
        title = f"SCPO minus each method, {_settings(part)}: {_panel_names(part, panels)}"
        yield Block(f"{title}; mean difference [95 % interval]; seeds: pairs", rows)


def _difference_line(data: Collected, part: Measured, name: str, panels: Panels) -> Cells | None:
    """Overall with interval, families without; None where no seed has both methods."""
    kind, label = part.words(name)
    summaries: list[Summary] = []
    for section, metrics in zip((part.home, part.shop), _metrics(panels), strict=True):
        summaries += [minus(data, section, DEFAULT, name, metric) for metric in metrics]
    if kind == PROMPTING or not any(one.n for one in summaries):
        return None
    by_place = dict(zip((place for place in PLACES if place[2] == LAST), summaries, strict=True))
    counts: dict[str, None] = {}
    cells = []
    for place in PLACES:
        summary = by_place.get(place)
        if summary is None:  # comparisons use the last checkpoint
            cells.append(NONE)
        elif place[1] in FAMILIES:
            cells.append(percent(summary, sign=True, spread=False))
        else:
            cells.append(difference(summary))
            if summary.n:
                counts[str(summary.n)] = None
    return (kind, f"SCPO − {label}", "paired by seed", "; ".join(counts), "", *cells)


def _panel_names(part: Measured, panels: Panels) -> str:
    home = part.home and f"ALFWorld {names.panel_label(panels[0])}"
    shop = (
        part.shop
        and panels[1]
        and f"{names.benchmark(part.shop.env)} {names.panel_label(panels[1])}"
    )
    return "; ".join(name for name in (home, shop) if name)


def _settings(part: Measured) -> str:
    """Scale and model, and what sets the runs apart where the same benchmark was run otherwise too."""
    return f"{part.parts[0].scale} scale, {names.model(part.model)}{_differing(part)}"


def _differing(part: Measured) -> str:
    return "".join(
        f", {names.benchmark(one.env)} with {one.differs}" for one in part.parts if one.differs
    )


def _metrics(panels: Panels) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of ALFWorld's columns and of WebShop's."""
    home = tuple(names.success_metric(panels[0], column) for column in names.COLUMNS)
    return home, (f"val/{panels[1]}/score", f"val/{panels[1]}/success_rate")


def _cells(data: Collected, part: Measured, name: str, panels: Panels) -> tuple[Number, ...]:
    """A method's numbers by place; one that is prompted was evaluated once, and has no best checkpoint."""
    home, shop = _metrics(panels)
    metrics = dict(
        zip([place[:2] for place in PLACES if place[2] == LAST], (*home, *shop), strict=True)
    )
    cells = []
    for env, column, which in PLACES:
        section, judged = (part.home, home[-1]) if env == "ALFWorld" else (part.shop, shop[-1])
        if section is None or (which == BEST and part.words(name)[0] == PROMPTING):
            cells.append(NONE)
        else:
            cells.append(value(data, section.row(name), metrics[env, column], judged, which))
    return tuple(cells)


def _variants(measured: Iterable[Measured]) -> str:
    """What the sections hold beside methods."""
    rows = {
        row.name
        for part in measured
        for one in part.parts
        for row in one.rows
        if row.runs and not is_method(row)
    }
    return (
        f" Variants of a method ({len(rows)} rows) stand in the tables and figures of their "
        f"experiments."
        if rows
        else ""
    )


def _bias(data: Collected, measured: list[Measured]) -> str:
    """What taking the best checkpoint adds by luck alone, at the paper's numbers and at those of these runs."""
    panel = PANELS[0][0]
    said = (
        "at a constant rate of 90 %, the best of 30 checkpoints of 128 episodes reads "
        f"{_luck(0.9, 30, 128)} too high"
    )
    runs = [run for part in measured if part.home for row in part.home.rows for run in row.finished]
    for run in runs:
        series = data.series(run, names.success_metric(panel))
        episodes = data.series(run, f"val/{panel}/episodes").last
        if len(series.steps) > 1 and episodes:
            own = _luck(series.values[-1], len(series.steps), int(episodes))
            said += (
                f"; here, {len(series.steps)} checkpoints of {episodes:.0f} "
                f"at {100 * series.values[-1]:.0f} %, {own}"
            )
            break
    return f"{said} (simulated)."


def _luck(rate: float, checkpoints: int, episodes: int) -> str:
    return f"{100 * best_of_bias(rate, checkpoints, episodes):.1f} points"
