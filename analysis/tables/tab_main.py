"""Main table: every method on both benchmarks, published and measured under each other, with their difference."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from analysis.families import ALL, COLUMNS, panel_label, success_metric, with_note
from analysis.methods import CLOSED, METHODS, PROMPTING, SIZES
from analysis.missing import missing_runs
from analysis.published import main_table
from analysis.rows import Row, Section
from analysis.seed_statistics import Series, best_of_bias, summarise
from analysis.sources.collect import Collected
from analysis.table import NONE, Block, Number, Table, percent, with_best_in_bold

SHOP_COLUMNS = ("Score", "Succ")
BENCHMARKS = (("ALFWorld", COLUMNS), ("WebShop", SHOP_COLUMNS))
EXPERIMENTS = {"main_table", "prompting"}
PANELS = (("valid_seen", "test"), ("valid_unseen", None), ("train_games", "train_games"))  # ALFWorld's, WebShop's
EMPTY = Row("", "", ())
CAPTION = (
    "Main results: success rate (%) by task family and overall on ALFWorld, average score and success rate (%) on "
    "WebShop; mean ± standard deviation over the finished seeds (seeds: finished/planned). “Last” is the last "
    "checkpoint, which every comparison uses; “best” is the checkpoint with the highest overall success of the same "
    "run, and optimistic: {bias}"
)
PUBLISHED_NOTE = (
    " Published rows stand as printed, those marked * as the paper quotes them from their authors. Best per column in "
    "bold, among published and among measured rows."
)


@dataclass(frozen=True)
class Measured:
    """The sections of one model, one for each benchmark; a benchmark without runs has none."""

    model: str
    home: Section | None
    shop: Section | None

    @property
    def names(self) -> tuple[str, ...]:
        """Rows of the main table that one of the benchmarks has, in the table's order."""
        rows = {row.name for part in (self.home, self.shop) if part for row in part.rows}
        return tuple(name for name in METHODS if name in rows)

    def row(self, part: Section | None, name: str) -> Row:
        return next((row for row in part.rows if row.name == name), EMPTY) if part else EMPTY

    def count(self, name: str) -> str:
        """Seeds of the row, of both benchmarks where they differ (ALFWorld; WebShop)."""
        counts = [self.row(part, name).count for part in (self.home, self.shop) if part]
        return "; ".join(counts if len(set(counts)) > 1 else counts[:1])


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run of a main-table row has finished."""
    measured = _by_model(data.sections)
    if not measured:
        raise missing_runs("finished runs of the main table", data.sections, "main_table")
    scale = data.scales[0]
    blocks = _paper_blocks(data, measured) if scale == "paper" else _mini_blocks(data, measured)
    caption = CAPTION.format(bias=_bias(data, measured))
    return Table(
        words=("Type", "Method", "Numbers", "Seeds"),
        numbers=(*COLUMNS, *SHOP_COLUMNS),
        blocks=tuple(blocks),
        caption=caption + PUBLISHED_NOTE if scale == "paper" else with_note(caption, scale),
        label=f"tab:main-{scale}",
    )


def _by_model(parts: Iterable[Section]) -> list[Measured]:
    """Sections of other settings get blocks of their own, after the first one of their model."""
    ready = [
        part for part in parts if _is_main(part) and any(row.finished and row.name in METHODS for row in part.rows)
    ]
    found = []
    for model in dict.fromkeys(part.model for part in ready):
        homes = [part for part in ready if (part.model, part.env) == (model, "alfworld")]
        shops = [part for part in ready if part.model == model and part.env.startswith("webshop")]
        found += [Measured(model, home, shop) for home, shop in zip_longest(homes, shops)]
    return found


def _is_main(part: Section) -> bool:
    """An ablation alone, whose default is a row of the main table too, makes no main table."""
    return bool(EXPERIMENTS & set(part.experiments)) or sum(row.name in METHODS for row in part.rows) > 1


def _paper_blocks(data: Collected, measured: list[Measured]) -> Iterator[Block]:
    closed = [part for part in measured if part.model in CLOSED]
    yield _published_block("Closed-source LLMs", data, "closed", closed)
    for size in SIZES:
        parts = [part for part in measured if part.model == size]
        yield _published_block(f"Qwen2.5-{size}-Instruct", data, size, parts)
        for part in parts:
            yield from _panel_blocks(data, part, PANELS[1:])
    for part in measured:
        if part.model not in (*SIZES, *CLOSED):
            yield from _panel_blocks(data, part, PANELS)


def _published_block(title: str, data: Collected, size: str, parts: list[Measured]) -> Block:
    """Published rows of one model size, each with the measured rows of the same method under it."""
    published = _published_rows(size)
    last = _last_rows(data, parts)
    rows: list[tuple[str | Number, ...]] = []
    for name in METHODS:
        rows += [published[name]] if name in published else []
        for part in parts:
            if (name, part) in last:
                rows.append(last[name, part])
                rows += _best_and_difference(data, part, name, published.get(name))
    settings = "; ".join(dict.fromkeys(_setting(part) for part in parts))
    return Block(f"{title}{': measured on ' + settings if settings else ''}", tuple(rows))


def _published_rows(size: str) -> dict[str, tuple[str | Number, ...]]:
    numbers = main_table()
    names = {}
    for name, method in METHODS.items():
        known = {key[2:]: value for key, value in numbers.items() if key[:2] == (size, method.published)}
        if known:
            quoted = any(value.quoted for value in known.values())
            cells = (known[env, column].number if (env, column) in known else NONE for env, column in _columns())
            spread = any(value.number.std for value in known.values())
            label = f"{method.label}*" if quoted else method.label
            names[name] = (method.kind, label, "quoted" if quoted else "published", "3" if spread else "", *cells)
    return dict(zip(names, with_best_in_bold(list(names.values())), strict=True))


def _columns() -> Iterator[tuple[str, str]]:
    return ((env, column) for env, columns in BENCHMARKS for column in columns)


def _last_rows(data: Collected, parts: list[Measured]) -> dict[tuple[str, Measured], tuple[str | Number, ...]]:
    rows: dict[tuple[str, Measured], tuple[str | Number, ...]] = {}
    for part in parts:
        for name in part.names:
            method = METHODS[name]
            what = "measured" if method.kind == PROMPTING else "measured, last"
            rows[name, part] = ("", "", what, part.count(name), *_cells(data, part, name, PANELS[0], "last"))
    return dict(zip(rows, with_best_in_bold(list(rows.values())), strict=True))


def _best_and_difference(
    data: Collected, part: Measured, name: str, published: tuple[str | Number, ...] | None
) -> Iterator[tuple[str | Number, ...]]:
    if METHODS[name].kind != PROMPTING:
        yield ("", "", "measured, best", part.count(name), *_cells(data, part, name, PANELS[0], "best"))
    if published:
        measured = _cells(data, part, name, PANELS[0], "last")
        printed = [cell for cell in published if isinstance(cell, Number)]
        differences = (_difference(one, other) for one, other in zip(measured, printed, strict=True))
        yield ("", "", "last − published", "", *differences)


def _difference(measured: Number, published: Number) -> Number:
    if NONE.mean in (measured.mean, published.mean):
        return NONE
    return Number(f"{float(measured.mean) - float(published.mean):+.1f}".replace("-", "−"))


def _mini_blocks(data: Collected, measured: list[Measured]) -> Iterator[Block]:
    for part in measured:
        yield from _panel_blocks(data, part, PANELS)


def _panel_blocks(data: Collected, part: Measured, panels: Iterable[tuple[str, str | None]]) -> Iterator[Block]:
    """Measured rows alone, a block for each panel that was evaluated."""
    for pair in panels:
        rows: list[tuple[str | Number, ...]] = []
        for name in part.names:
            checkpoints = ("last",) if METHODS[name].kind == PROMPTING else ("last", "best")
            for which in checkpoints:
                cells = _cells(data, part, name, pair, which)
                rows.append((METHODS[name].kind, METHODS[name].label, f"measured, {which}", part.count(name), *cells))
        if any(cell != NONE for row in rows for cell in row if isinstance(cell, Number)):
            yield Block(f"Measured, {_setting(part)}: {_panel_names(part, pair)}", tuple(rows))


def _panel_names(part: Measured, pair: tuple[str, str | None]) -> str:
    home, shop = part.home and f"ALFWorld {panel_label(pair[0])}", part.shop and pair[1] and f"WebShop {pair[1]}"
    return "; ".join(name for name in (home, shop) if name)


def _setting(part: Measured) -> str:
    known = [section for section in (part.home, part.shop) if section]
    places = ", ".join(f"{section.env} [setting {section.setting}]" for section in known)
    return f"{known[0].scale} scale, {part.model}, {places}"


def _cells(
    data: Collected, part: Measured, name: str, panels: tuple[str, str | None], which: str
) -> tuple[Number, ...]:
    home, shop = part.row(part.home, name), part.row(part.shop, name)
    at_home = [success_metric(panels[0], column) for column in COLUMNS]
    in_shop = [f"val/{panels[1]}/score", f"val/{panels[1]}/success_rate"]
    judged = (success_metric(panels[0], ALL), in_shop[1])
    first = (_number(data, home, metric, judged[0], which) for metric in at_home)
    return (*first, *(_number(data, shop, metric, judged[1], which) for metric in in_shop))


def _number(data: Collected, row: Row, metric: str, judged: str, which: str) -> Number:
    """Mean over seeds at the last checkpoint, or at each run's best by the metric ``judged``."""
    values = []
    for run in row.finished:
        series = data.series(run, metric)
        values.append(series.last if which == "last" else _at_best(series, data.series(run, judged)))
    return percent(summarise(values))


def _at_best(series: Series, judged: Series) -> float | None:
    if judged.best is None:
        return None
    return series.at(judged.steps[judged.values.index(judged.best)])


def _bias(data: Collected, measured: list[Measured]) -> str:
    """What taking the best checkpoint adds by luck alone, at the paper's numbers and at those of these runs."""
    panel = PANELS[0][0]
    said = (
        f"at a constant rate of 90 %, the best of 30 checkpoints of 128 episodes reads {_luck(0.9, 30, 128)} too high"
    )
    runs = [run for part in measured if part.home for row in part.home.rows for run in row.finished]
    for run in runs:
        series, episodes = data.series(run, success_metric(panel)), data.series(run, f"val/{panel}/episodes").last
        if len(series.steps) > 1 and episodes:
            own = _luck(series.values[-1], len(series.steps), int(episodes))
            said += (
                f"; here, {len(series.steps)} checkpoints of {episodes:.0f} at {100 * series.values[-1]:.0f} %, {own}"
            )
            break
    return f"{said} (simulated)."


def _luck(rate: float, checkpoints: int, episodes: int) -> str:
    return f"{100 * best_of_bias(rate, checkpoints, episodes):.1f} points"
