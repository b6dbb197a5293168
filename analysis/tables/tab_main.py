"""Main table: every method on both benchmarks, published and measured, with SCPO's differences.

A cell belongs to one method, one benchmark and one setting. If one experiment ran both benchmarks,
they are in one row. Runs under another setting get a block of their own, whose title names the
difference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from analysis import names
from analysis.names import (
    CLOSED,
    METHODS,
    PROMPTING,
    SIZES,
    Footnotes,
    in_order,
    method_of,
    method_rows,
)
from analysis.paper.published import Printed, main_table
from analysis.rendering.table import (
    COPIED,
    NONE,
    RERUN,
    Block,
    Cells,
    Number,
    Table,
    difference,
    marked,
    percent,
    with_best_in_bold,
    with_columns,
)
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import DEFAULT, Row, Section, compared_with_present, with_new_runs
from analysis.sources.run_records import Run
from analysis.sources.settings import method_settings, setting_differences
from analysis.stats.seed_statistics import best_of_bias, checkpoints
from analysis.stats.study_rows import LEARNING_RATE, different_rates
from analysis.tables.comparison import minus, state_key, value
from scpo.intervals import Summary, decimal
from scpo.schema.env import FAMILIES

LAST, BEST = "last", "best"

# Names of the benchmarks among the published numbers, and in our configurations.
ALFWORLD, WEBSHOP = "ALFWorld", "WebShop"
HOME, SHOP = "alfworld", "webshop"

# Columns as (benchmark, column, checkpoint); overall numbers have one for each checkpoint.
PLACES = (
    *((ALFWORLD, column, LAST) for column in names.COLUMNS),
    (ALFWORLD, names.ALL, BEST),
    (WEBSHOP, "Score", LAST),
    (WEBSHOP, "Succ", LAST),
    (WEBSHOP, "Score", BEST),
    (WEBSHOP, "Succ", BEST),
)
LAST_PLACES = tuple((env, column) for env, column, which in PLACES if which == LAST)
COLUMNS = tuple(f"{column}, best" if which == BEST else column for _, column, which in PLACES)
WORDS = ("Type", "Method", "Numbers", "Seeds", "State key")
STATE_KEY = WORDS.index("State key")
OVERALL = (names.ALL, "Score", "Succ")

# Experiments whose rows are those of the main table.
EXPERIMENTS = {"main_table", "prompting"}

# Pairs of ALFWorld's and WebShop's panels, the paper's first; None if WebShop has no such panel.
PANELS = (
    ("valid_seen", "test"),
    ("valid_unseen", None),
    ("train_games", "train_games"),
)
Panels: TypeAlias = tuple[str, str | None]
CAPTION = (
    "Main results: {shown}; mean ± standard deviation over the finished seeds (seeds: "
    "finished/planned{both}). {checkpoints} “SCPO − method” is the mean difference at the last "
    "checkpoint over the seeds that both have, with its 95 % Student-t interval where there are "
    "several, each by itself and not corrected for their number{families}."
)
SHOWN = {
    ALFWORLD: "success rate (%) by task family and overall on ALFWorld",
    WEBSHOP: "average score and success rate (%) on WebShop",
}
BOTH = ", of ALFWorld; of WebShop where they differ"
CHECKPOINTS = (
    "Columns without a word are of the last checkpoint, which every comparison uses; those named "
    "“best” of the checkpoint with the highest overall success of the same run, the earliest of "
    "equal ones, which is optimistic: {bias}"
)
ONLY_LAST = "All columns are of the last checkpoint."
OF_FAMILIES = (
    "; task families have the mean only, because six intervals would be six chances of a false "
    "alarm"
)
PUBLISHED_NOTE = (
    " Numbers with ᶜ are copied from the paper as printed, those of rows marked * as it quotes "
    "them from their authors; numbers with ʳ were re-run here. The paper does not name its "
    "checkpoint: its overall numbers are in the columns “best”, because the default of its "
    "sensitivity plot, which shows best checkpoints, equals its headline; “re-run − copied” "
    "compares them with both. Best per column in bold, among copied and among re-run rows."
)

RATES_NOTE = (
    " “(rates 4e-3, 2e-3)”: the learning rates of SCPO and of the method, where they differ."
)
MEASURED_NOTE = " Numbers with ʳ were measured in these runs; none is copied from the paper."


@dataclass(frozen=True)
class Measured:
    """Rows of one block: a section of ALFWorld, one of WebShop, or both."""

    model: str
    home: Section | None
    shop: Section | None
    notes: Footnotes = field(compare=False)

    @property
    def parts(self) -> tuple[Section, ...]:
        """The sections that exist."""
        return tuple(part for part in (self.home, self.shop) if part)

    @property
    def methods(self) -> list[str]:
        """Rows that are methods, in the table's order."""
        return in_order(row for part in self.parts for row in method_rows(part) if row.runs)

    def words(self, name: str) -> tuple[str, str]:
        """Kind and label of a method, with marks of footnotes on different settings."""
        started = [(part, part.row(name)) for part in self.parts if part.row(name).runs]
        method = method_of(started[0][1])
        marks: dict[str, None] = {}
        for part, row in started:
            marks[self.notes.mark(self._differing(part, row))] = None
            # A prompting method plays one seed: validation draws the same samples at every seed.
            if method.kind != PROMPTING:
                marks[self.notes.mark(part.aside(row))] = None
        return method.kind, method.label + "".join(marks)

    def words_of_difference(self, name: str, runs: Mapping[str, Run]) -> str:
        """SCPO − method, with what sets the two apart: their learning rates and other settings.

        Not with the marks of the rows above, which compare a row with all others of its block.
        """
        marks: dict[str, None] = {}
        rates: dict[str, list[str]] = {}
        label = method_of(self._started(name)).label
        for part in self.parts:
            first, second = part.row(DEFAULT), part.row(name)
            if not (first.finished and second.finished):
                continue
            scpo, other = runs[first.finished[0]].config, runs[second.finished[0]].config
            rates.setdefault(different_rates(scpo, other), []).append(names.benchmark(part.env))
            texts = []
            if apart := setting_differences(scpo, other, without=(LEARNING_RATE,)):
                texts.append(f"SCPO: {apart.replace('(the others:', f'({label}:')}")
            own = method_settings(other, scpo)
            unusual = "; ".join(filter(None, (own, second.unusual)))
            texts.append(self._differing(part, replace(second, differs=unusual)))
            texts.append(part.aside(second))
            marks |= dict.fromkeys(map(self.notes.mark, texts))
        of_rates = []
        for text, places in rates.items():
            if text:
                # Both benchmarks are named if the rates are not the same on them.
                on = f" on {' and '.join(places)}" if len(rates) > 1 else ""
                of_rates.append(f"{text}{on}")
        default: dict[str, None] = {}
        for part in self.parts:
            row = part.row(DEFAULT)
            if row.unusual:
                unusual = self._differing(part, replace(row, differs=row.unusual))
                default[self.notes.mark(unusual)] = None
        own = method_of(self._started(DEFAULT)).label
        return f"{own}{''.join(default)} − {label}{''.join(marks)}{';'.join(of_rates)}"

    def _started(self, name: str) -> Row:
        return next(part.row(name) for part in self.parts if part.row(name).runs)

    def _differing(self, part: Section, row: Row) -> str:
        """Note on a row; it names the benchmark if the estimator is the host's on the other one."""
        everywhere = {other.row(row.name).shared for other in self.parts}
        if row.shared and len(everywhere) > 1:
            return f"on {names.benchmark(part.env)}: {row.differs}"
        return row.differs

    def count(self, name: str) -> str:
        """Seeds of the row; of both benchmarks (ALFWorld; WebShop) if they differ."""
        counts = [part.row(name).count for part in self.parts]
        if len(set(counts)) == 1:
            return counts[0]
        return "; ".join(counts)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run of a main-table row has finished."""
    notes = Footnotes()
    finished = [part for part in data.sections if _is_main(part) and _has_finished(part)]
    measured = list(_measured(with_new_runs(finished, method_rows), notes))
    if not measured:
        raise missing_runs("finished runs of the main table", data.sections, "main_table")
    scale = data.scales[0]
    blocks: list[Block] = []
    if scale == "paper":
        blocks += _paper_blocks(data, measured)
    else:
        for part in measured:
            blocks += _panel_blocks(data, part, PANELS)
    words, shown = _without_empty_state_key(blocks)
    table = Table(
        words=words,
        numbers=COLUMNS,
        blocks=shown,
        caption="",
        label=f"tab:main-{scale}",
    ).without_empty_columns()
    caption = _caption(data, measured, table.numbers)
    if any(" (rates " in str(row[1]) for block in shown for row in block.rows):
        caption += RATES_NOTE
    caption += PUBLISHED_NOTE if scale == "paper" else MEASURED_NOTE
    parts = [section for part in measured for section in part.parts]
    remarks = names.own_seeds(parts) + names.more_seeds(parts) + names.variants(finished)
    caption = names.with_note(f"{caption}{notes.text}{remarks}", scale)
    return replace(table, caption=caption, footnotes=notes.texts)


def _without_empty_state_key(
    blocks: Sequence[Block],
) -> tuple[tuple[str, ...], tuple[Block, ...]]:
    """Names of the columns of words, and the blocks, without the state key if no row has one."""
    keys = {row[STATE_KEY] for block in blocks for row in block.rows}
    if not keys <= {"", "–"}:
        return WORDS, tuple(blocks)
    columns = [index for index in range(len(WORDS) + len(COLUMNS)) if index != STATE_KEY]
    words = tuple(word for word in WORDS if word != WORDS[STATE_KEY])
    return words, with_columns(blocks, columns)


# Sections


def _measured(parts: Iterable[Section], notes: Footnotes) -> Iterator[Measured]:
    """Pair each section of ALFWorld with the section of WebShop of the same experiment.

    A section without a partner is yielded by itself.
    """
    ready = compared_with_present(parts)
    # Models in the order in which their sections appear.
    for model in dict.fromkeys(part.model for part in ready):
        own = [part for part in ready if part.model == model]
        unpaired = [part for part in own if part.env != HOME]
        # Experiments of the pairs so far: each pairs at most one section of each benchmark.
        paired: set[str] = set()
        for home in own:
            if home.env != HOME:
                continue
            experiments = set(home.experiments) - paired
            shop = _partner(unpaired, experiments)
            if shop:
                unpaired.remove(shop)
                paired |= experiments & set(shop.experiments)
            yield Measured(model, home, shop, notes)
        for part in unpaired:
            yield Measured(model, None, part, notes)


def _partner(parts: Iterable[Section], experiments: set[str]) -> Section | None:
    """The first section of WebShop that one of these experiments has; None without any."""
    for part in parts:
        if part.env == SHOP and experiments & set(part.experiments):
            return part
    return None


def _is_main(part: Section) -> bool:
    """True if a section is of ``EXPERIMENTS``, or has several methods, or only methods.

    False for a single ablation, although its default is a row of the main table, too.
    """
    if EXPERIMENTS & set(part.experiments):
        return True
    methods = len(method_rows(part))
    return methods > 1 or methods == len(part.rows)


def _has_finished(part: Section) -> bool:
    return any(row.finished for row in method_rows(part))


# Blocks


def _paper_blocks(data: Collected, measured: list[Measured]) -> Iterator[Block]:
    """Yield the blocks of the paper's scale: closed-source models, then each model size.

    Each of these blocks has the published rows, and under each one the measured row of the model's
    first setting. Measured rows of other panels follow their size; those of other settings and
    models come last.
    """
    # Reversed, because the last entry of a key wins, which is then the model's first setting.
    first = {part.model: part for part in reversed(measured)}
    closed = [first[model] for model in CLOSED if model in first]
    yield _published_block("Closed-source LLMs", data, "closed", closed)
    for size in SIZES:
        own = [first[size]] if size in first else []
        yield _published_block(names.model(size), data, size, own)
        for part in own:
            yield from _differences(data, part, PANELS[0])
            yield from _panel_blocks(data, part, PANELS[1:])
    for part in measured:
        if part is not first[part.model] or part.model not in (*SIZES, *CLOSED):
            yield from _panel_blocks(data, part, PANELS)


def _published_block(title: str, data: Collected, size: str, parts: list[Measured]) -> Block:
    """Block of the published rows of one size, with measured rows of each method below."""
    published = _published_rows(size)
    measured = {name: part for part in parts for name in part.methods}
    lines = [_line(data, part, name, PANELS[0]) for name, part in measured.items()]
    # The best are marked separately among the measured and among the published rows.
    own = dict(zip(measured, with_best_in_bold(lines), strict=True))
    rows: list[Cells] = []
    for name in dict.fromkeys((*METHODS, *measured)):
        if name in published:
            rows.append(published[name])
        if name in measured:
            rows.append(own[name])
        if name in measured and name in published:
            rows.append(_rerun_minus_copied(data, measured[name], name, published[name]))

    sources = "copied and re-run here" if parts else "copied"
    # Each difference once, although several parts may have it.
    differing = "".join(dict.fromkeys(map(_differing, parts)))
    return Block(f"{title}, {sources}{differing}", tuple(rows))


def _published_rows(size: str) -> dict[str, Cells]:
    """Rows of one model size as the paper prints them, by method."""
    table = main_table()
    rows: dict[str, Cells] = {}
    for name, method in METHODS.items():
        printed: dict[tuple[str, str], Printed] = {}
        for (row_size, row_method, env, column), number in table.items():
            if (row_size, row_method) == (size, method.published):
                printed[env, column] = number
        if printed:
            rows[name] = _published_row(method.kind, method.label, printed)
    in_bold = with_best_in_bold(list(rows.values()))
    return dict(zip(rows, in_bold, strict=True))


def _published_row(kind: str, label: str, printed: dict[tuple[str, str], Printed]) -> Cells:
    """Row of a method as the paper prints it; ``printed`` has its numbers by benchmark, column."""
    cells = []
    for env, column, which in PLACES:
        # Overall numbers are shown at the best checkpoint (see the caption). The number of a task
        # family is shown in its only column, although that is of the last checkpoint.
        shown = which == BEST or column not in OVERALL
        number = printed.get((env, column))
        cells.append(number.number if number and shown else NONE)
    source = "published"
    if any(number.quoted for number in printed.values()):
        label = f"{label}*"
        source = "quoted"
    # Deviations in the paper are over three seeds.
    seeds = "3" if any(number.number.std for number in printed.values()) else ""
    return (kind, label, source, seeds, "", *marked(cells, COPIED))


def _line(data: Collected, part: Measured, name: str, panels: Panels) -> Cells:
    """A row that was re-run here."""
    kind, label = part.words(name)
    key = state_key(data, [section.row(name) for section in part.parts])
    cells = marked(_cells(data, part, name, panels), RERUN)
    return (kind, label, RERUN, part.count(name), key, *cells)


def _rerun_minus_copied(data: Collected, part: Measured, name: str, published: Cells) -> Cells:
    """The re-run row minus the published one, in the units of the table."""
    measured = _cells(data, part, name, PANELS[0])
    numbers = [cell for cell in published if isinstance(cell, Number)]
    # Without the checkpoint in the key: a printed overall number is compared with both.
    printed: dict[tuple[str, str], Number] = {}
    for (env, column, _), cell in zip(PLACES, numbers, strict=True):
        if cell.mean != NONE.mean:
            printed[env, column] = cell
    cells = []
    for (env, column, _), cell in zip(PLACES, measured, strict=True):
        cells.append(_minus(cell, printed.get((env, column), NONE)))
    return (*part.words(name), "re-run − copied", "", "", *cells)


def _minus(measured: Number, published: Number) -> Number:
    if NONE.mean in (measured.mean, published.mean):
        return NONE
    return Number(decimal(measured.value - published.value, 1, sign=True))


def _panel_blocks(data: Collected, part: Measured, panels: Iterable[Panels]) -> Iterator[Block]:
    """Yield a block of measured rows per evaluated panel, each followed by SCPO's differences."""
    for pair in panels:
        rows = tuple(_line(data, part, name, pair) for name in part.methods)
        if _has_numbers(rows):
            yield Block(f"Measured, {_settings(part)}: {_panel_names(part, pair)}", rows)
            yield from _differences(data, part, pair)


def _has_numbers(rows: Iterable[Cells]) -> bool:
    return any(isinstance(cell, Number) and cell != NONE for row in rows for cell in row)


def _differences(data: Collected, part: Measured, panels: Panels) -> Iterator[Block]:
    """Yield a block of SCPO minus every trained method, paired by seed."""
    lines = []
    for name in part.methods:
        line = _difference_line(data, part, name, panels)
        if line:
            lines.append(line)
    if lines:
        title = (
            f"SCPO minus each method, {_settings(part)}: {_panel_names(part, panels)}; "
            "mean difference [95 % interval]; seeds: pairs"
        )
        yield Block(title, tuple(lines))


def _difference_line(data: Collected, part: Measured, name: str, panels: Panels) -> Cells | None:
    """Row of differences: overall ones with intervals, those of families without.

    None for a prompting method, for SCPO itself, and if no seed has both methods.
    """
    kind, _ = part.words(name)
    if kind == PROMPTING:
        return None
    summaries: list[Summary] = []
    for section, metrics in zip((part.home, part.shop), _metrics(panels), strict=True):
        summaries += [minus(data, section, DEFAULT, name, metric) for metric in metrics]
    if not any(summary.n for summary in summaries):
        return None
    by_place = dict(zip(LAST_PLACES, summaries, strict=True))
    pair_counts: dict[str, None] = {}
    cells = []
    for env, column, which in PLACES:
        summary = by_place[env, column]
        if which == BEST:
            # Comparisons use the last checkpoint only.
            cells.append(NONE)
        elif column in FAMILIES:
            cells.append(percent(summary, sign=True, spread=False))
        else:
            cells.append(difference(summary))
            if summary.n:
                pair_counts[str(summary.n)] = None
    words = part.words_of_difference(name, data.by_id)
    return (kind, words, "paired by seed", "; ".join(pair_counts), "", *cells)


# Cells


def _cells(data: Collected, part: Measured, name: str, panels: Panels) -> tuple[Number, ...]:
    """Numbers of a method in the order of ``PLACES``.

    A prompting method is evaluated only once and has no best checkpoint.
    """
    home, shop = _metrics(panels)
    metrics = dict(zip(LAST_PLACES, (*home, *shop), strict=True))
    prompting = part.words(name)[0] == PROMPTING
    cells = []
    for env, column, which in PLACES:
        if env == ALFWORLD:
            section, judged = part.home, home[-1]
        else:
            section, judged = part.shop, shop[-1]
        if section is None or (which == BEST and prompting):
            cells.append(NONE)
        else:
            cells.append(value(data, section.row(name), metrics[env, column], judged, which))
    return tuple(cells)


def _metrics(panels: Panels) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Metrics of ALFWorld's columns and of WebShop's; overall success is the last of each.

    If WebShop has no such panel, no run has logged its metrics, and its cells are empty.
    """
    home, shop = panels
    of_home = tuple(names.success_metric(home, column) for column in names.COLUMNS)
    return of_home, (f"val/{shop}/score", f"val/{shop}/success_rate")


# Texts


def _panel_names(part: Measured, panels: Panels) -> str:
    """The panels of the benchmarks that ``part`` has, for the title of a block."""
    home, shop = panels
    texts = []
    if part.home:
        texts.append(f"ALFWorld {names.panel_label(home)}")
    if part.shop and shop:
        texts.append(f"{names.benchmark(part.shop.env)} {names.panel_label(shop)}")
    return "; ".join(texts)


def _settings(part: Measured) -> str:
    """Scale and model, with the differences from the model's first setting."""
    return f"{part.parts[0].scale} scale, {names.model(part.model)}{_differing(part)}"


def _differing(part: Measured) -> str:
    """How each section differs from the first one of its benchmark; empty if none does."""
    texts = []
    for section in part.parts:
        notes = (names.rewording(section), section.seeds, section.differs)
        difference_text = "; ".join(filter(None, notes))
        if difference_text:
            word = "on" if difference_text == section.seeds else "with"
            texts.append(
                f", {names.benchmark(section.env)} {word} {difference_text}"
                f"{names.asked_by(section, method_rows(section))}"
            )
    return "".join(texts)


def _caption(data: Collected, measured: list[Measured], columns: Sequence[str]) -> str:
    """Caption of a table with these columns of numbers."""
    shown = set()
    best = False
    for (env, _, which), column in zip(PLACES, COLUMNS, strict=True):
        if column in columns:
            shown.add(env)
            best = best or which == BEST
    return CAPTION.format(
        shown=", ".join(text for env, text in SHOWN.items() if env in shown),
        both=BOTH if len(shown) > 1 else "",
        checkpoints=CHECKPOINTS.format(bias=_bias(data, measured)) if best else ONLY_LAST,
        families=OF_FAMILIES if ALFWORLD in shown else "",
    )


def _bias(data: Collected, measured: list[Measured]) -> str:
    """Text on the bias of best checkpoints: for numbers like the paper's, and for a row here.

    That row is the one on ALFWorld with the highest mean at its last checkpoint. The checkpoint
    before training is not counted: its rate is another one.
    """
    text = (
        "at a constant rate of 90 %, the best of 30 checkpoints of 128 episodes reads "
        f"{_bias_text(0.9, 30, 128)} too high"
    )
    panel = PANELS[0][0]
    metric = names.success_metric(panel)
    trained = list(_trained_home_rows(measured))
    rates = [data.summary(row, metric, "last") for row in trained]
    known = [(rate.mean, row) for rate, row in zip(rates, trained, strict=True) if rate.n]
    if known:
        rate, row = max(known, key=lambda entry: entry[0])
        counts = [checkpoints(data.series(run, metric)) for run in row.finished]
        played = [data.series(run, f"val/{panel}/episodes").last for run in row.finished]
        episodes = max((number for number in played if number), default=None)
        if max(counts) > 1 and episodes:
            text += (
                f"; here, {max(counts)} checkpoints of {episodes:.0f} at {100 * rate:.0f} %, the "
                f"mean of {method_of(row).label} at the last checkpoint and the highest on "
                f"{names.benchmark(HOME)}’s {names.panel_label(panel)}, "
                f"{_bias_text(rate, max(counts), int(episodes))}"
            )
    return f"{text} (simulated; a checkpoint before training is not counted)."


def _trained_home_rows(measured: Iterable[Measured]) -> Iterator[Row]:
    """Yield the finished rows on ALFWorld that train."""
    for part in measured:
        for row in method_rows(part.home) if part.home else ():
            if row.finished and method_of(row).kind != PROMPTING:
                yield row


def _bias_text(rate: float, checkpoints: int, episodes: int) -> str:
    """Bias of the best of these checkpoints in percentage points, e.g. ``4.2 points``."""
    return f"{100 * best_of_bias(rate, checkpoints, episodes):.1f} points"
