"""Printed names of benchmarks, models, panels, task families, runs and methods."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.selection import has_method_label
from analysis.sources.rows import DEFAULT, Row, Section, first_names, seed_list
from scpo.benchmarks import BENCHMARKS, TRAINED_ON
from scpo.progress import counted
from scpo.schema.agent import AGENT_LABELS
from scpo.schema.env import FAMILIES
from scpo.schema.method import METHOD_LABELS, method_label

MODELS = {
    "tiny": "tiny language model",
    "choice": "choice policy",
    **{size: f"Qwen2.5-{size}-Instruct" for size in ("0.5B", "1.5B", "3B", "7B")},
}
TASKS = {
    family.id: family.label for known in BENCHMARKS.values() for family in known.families.values()
}

# Marks of footnotes in order; then each twice, three times, ...
MARKS = "†‡§¶"

ALL = "All"
COLUMNS = (*FAMILIES, ALL)

PANELS = {
    TRAINED_ON: "games trained on",
    "valid_seen": "held out, seen rooms",
    "valid_unseen": "held out, unseen rooms",
    "test": "held out",
}

MINI_NOTE = (
    "Mini scale: a small policy trained for minutes. Two seeds at this scale do not separate the "
    "methods, and no number measured here may be compared with the paper's."
)
STUDY_NOTE = (
    "Study scale: a policy that chooses among listed commands, after a short imitation start. It "
    "compares methods on one policy and says nothing about language models; no number measured "
    "here may be compared with the paper's."
)
STUDY_TITLE = "study scale: a choice policy after a short imitation start, not a language model"

# Reservations that go with every number of a scale.
NOTES = {
    "mini": MINI_NOTE,
    "study": STUDY_NOTE,
    "paper": "",
}

# Scale -> the panel of ALFWorld on which methods are compared.
JUDGED = BENCHMARKS["alfworld"].judged


# Labels


def benchmark(name: str) -> str:
    """Label of a benchmark."""
    return BENCHMARKS[name].label if name in BENCHMARKS else name


def panel_title(env: str, panel: str) -> str:
    """Title of a panel in figures of a benchmark."""
    titles = BENCHMARKS[env].panel_titles if env in BENCHMARKS else {}
    if titles:
        return titles.get(panel, panel)
    return PANELS.get(panel, panel)


def panel_label(panel: str) -> str:
    """Title of a panel, with its name in the records."""
    if panel not in PANELS:
        return panel
    return f"{PANELS[panel]} ({panel})"


def panel_order(panels: set[str]) -> tuple[str, ...]:
    """Known panels in the order in which they are printed, then the others."""
    known = list(PANELS)

    def rank(name: str) -> tuple[int, str]:
        return (known.index(name) if name in PANELS else len(known), name)

    return tuple(sorted(panels, key=rank))


def model(name: str) -> str:
    """Label of a model."""
    return MODELS.get(name, name)


def task(name: str) -> str:
    """Label of a task family; a shop's goal is its category."""
    return TASKS.get(name, name.replace("_", " "))


def place(scale: str, env: str, model_name: str) -> str:
    """Scale, benchmark and model, e.g. ``study scale, ALFWorld, choice policy``."""
    return f"{scale} scale, {benchmark(env)}, {model(model_name)}"


def setting(part: Section) -> str:
    """Benchmark and model of a section, with its differences from the usual setting."""
    apart = "".join(f", {text}" for text in (rewording(part), part.seeds) if text)
    return f"{benchmark(part.env)}, {model(part.model)}{apart}{part.apart}"


def asked_by(part: Section, rows: Iterable[Row]) -> str:
    """``; of one_by_method``: experiments with all finished runs of these rows of a section.

    Empty for the usual setting, and if no experiment has all of the runs. The usual section may
    show some of the same runs; the experiment's name explains why these are shown again.
    """
    shown = {run for row in rows for run in row.finished}
    own: dict[str, None] = {}
    for family in part.families:
        if shown <= {run for row in family.runs for run in row.finished}:
            own[family.experiment] = None
    return f"; of {first_names(own)}" if own and part.differs else ""


def rewording(part: Section) -> str:
    """``reworded observations, dose 0.25``; empty for a section on the game's own texts."""
    return f"reworded observations, dose {part.reworded:g}" if part.reworded else ""


def run(run_id: str) -> str:
    """Short name of a run: method, choices and seed. ``sources.json`` has its whole id."""
    match = re.fullmatch(r"[^-]+-[^-]+-([^-]+)((?:-[^-]+)*)-s(\d+)-[0-9a-f]+", run_id)
    if not match:
        return run_id
    method, choices, seed = match.groups()
    words = choices.replace("_", " ").split("-")[1:]
    return ", ".join([method_label(method), *words, f"seed {seed}"])


def run_of_row(sections: Iterable[Section], run_id: str) -> str:
    """Name of a run by the label of its row, e.g. ``SCPO, − monotonicity, seed 3``."""
    for part in sections:
        for row in part.all_rows():
            for own in row.runs:
                if own.id == run_id:
                    return f"{_with_method(row)}, seed {own.seed}"
    return run(run_id)


def _with_method(row: Row) -> str:
    """Label of a row; that of a variant names its method, too."""
    if is_method(row):
        return method_of(row).label
    method = method_label(row.method)
    return row.label if row.label.startswith(method) else f"{method}, {row.label}"


def with_note(caption: str, scale: str) -> str:
    """A caption with the reservation of its scale."""
    return f"{caption} {NOTES[scale]}".strip()


def success_metric(panel: str, column: str = ALL) -> str:
    """Metric of a column of a success table."""
    if column == ALL:
        return f"val/{panel}/success_rate"
    return f"val/{panel}/{FAMILIES[column]}/success_rate"


class Footnotes:
    """Marks of footnotes: the same text has the same mark everywhere in a table or figure."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """Mark of a text, empty for no text."""
        if not text:
            return ""
        repeats, place = divmod(len(self._marks), len(MARKS))
        return self._marks.setdefault(text, MARKS[place] * (repeats + 1))

    @property
    def texts(self) -> dict[str, str]:
        """Text of each mark."""
        return {mark: text for text, mark in self._marks.items()}

    @property
    def text(self) -> str:
        """All footnotes, as the end of a caption."""
        return "".join(f" {mark} {text}." for text, mark in self._marks.items())


# Methods


@dataclass(frozen=True)
class Method:
    """One row of the main table.

    Attributes:
        label: Label in print.
        kind: PROMPTING or TRAINED.
        published: Its name in ``paper_figures/published/main.csv``.
    """

    label: str
    kind: str
    published: str


PROMPTING, TRAINED = "Prompting", "RL"
CLOSED_MODELS = {
    "gpt_4o": "GPT-4o",
    "gemini_2_5_pro": "Gemini-2.5-Pro",
}

# Names in the paper's table that differ from our labels.
PRINTED_AS = {"plain": "Qwen2.5"}


def _method(name: str, label: str) -> Method:
    prompting = name in CLOSED_MODELS or name in AGENT_LABELS
    kind = PROMPTING if prompting else TRAINED
    return Method(label, kind, PRINTED_AS.get(name, label))


METHODS = {name: _method(name, label) for name, label in (CLOSED_MODELS | METHOD_LABELS).items()}
CLOSED = tuple(CLOSED_MODELS.values())
SIZES = ("1.5B", "7B")

ABLATION = (
    DEFAULT,
    "chronological",
    "no_monotonicity",
    "shortest_reference",
)
CONTROLS = (
    "random_match",
    "uniform_bonus",
    "exact_scorer",
    "forward_matcher",
    "gigpo",
)


def is_method(row: Row) -> bool:
    """True if a row is named as a method, registered here or not; False for a variant of one."""
    return row.name in METHODS or row.name == row.method


def method_of(row: Row) -> Method:
    """The row's method, with the row's label unless ``has_method_label``."""
    if has_method_label(row) or row.name in CLOSED_MODELS:
        return METHODS[row.name]
    kind = METHODS[row.method].kind if row.method in METHODS else TRAINED
    return Method(row.label, kind, row.label)


def _is_row_of_method(row: Row, rows: Iterable[Row]) -> bool:
    """True if a row is a method's row among these rows, under the method's name or another one."""
    if is_method(row):
        return True
    # One that is named as the method comes first. No run without an experiment hides a row of one.
    others = [other for other in rows if other.runs and (other.is_planned or not row.is_planned)]
    named = any(other.name == row.method for other in others)
    return row.only_of_experiments and not named


def method_rows(part: Section) -> list[Row]:
    """Rows of a section that tables of methods have.

    These are the methods, the variants of which no experiment has a table of its own, and the rows
    that the user chose by name.
    """
    rows = []
    for row in part.rows:
        is_asked = row.name in part.asked_rows
        if is_asked or row.is_single or _is_row_of_method(row, part.rows):
            rows.append(row)
    return rows


def variants(parts: Iterable[Section]) -> str:
    """Sentence on the rows that tables of methods leave out, as variants; empty without any."""
    left: set[str] = set()
    for part in parts:
        shown = method_rows(part)
        left |= {row.name for row in part.rows if row.runs and row not in shown}
    if not left:
        return ""
    return (
        f" Variants of a method ({counted(len(left), 'row')}) are in the tables and figures of "
        "their experiments."
    )


def more_seeds(parts: Iterable[Section]) -> str:
    """``more_seeds_of`` the methods' rows of these sections."""
    return more_seeds_of((part, method_rows(part)) for part in parts)


def more_seeds_of(shown_rows: Iterable[tuple[Section, Iterable[Row]]]) -> str:
    """Sentence about finished seeds that other experiments have of the rows that are shown.

    Empty if there are none.
    """
    labels: dict[str, dict[str, None]] = {}
    seeds: dict[str, set[int]] = {}
    shown: set[int] = set()
    for part, rows_of_part in shown_rows:
        if part.left_out:
            # Its note on the seeds that are left out names its own further seeds.
            continue
        for row in rows_of_part:
            own, further = part.more_seeds(row)
            for experiment, more in further.items():
                labels.setdefault(experiment, {})[method_of(row).label] = None
                seeds.setdefault(experiment, set()).update(more)
                shown |= own
    if not labels:
        return ""
    texts = []
    for experiment, rows in labels.items():
        texts.append(f"{experiment}: {', '.join(rows)} on {seed_list(seeds[experiment])}")
    return (
        f" Rows show the seeds of one experiment. Other experiments have further seeds of rows "
        f"that are shown on {seed_list(shown)} ({'; '.join(texts)}): --experiment "
        f"{next(iter(labels))} shows its own."
    )


def own_seeds(parts: Iterable[Section]) -> str:
    """Sentence about the seeds of sections that differ in nothing else; empty without any."""
    texts: dict[str, list[str]] = {}
    for part in parts:
        if not part.seeds:
            continue
        labels: dict[str, list[str]] = {}
        for row in part.rows:
            if row.finished:
                seeds = seed_list(row.finished_seeds)
                labels.setdefault(seeds, []).append(method_of(row).label)
        if labels:
            rows = ", ".join(f"{first_names(own)} on {seeds}" for seeds, own in labels.items())
            place = f"{benchmark(part.env)}, {model(part.model)}"
            texts.setdefault(place, []).append(rows)
    if not texts:
        return ""
    places = "; ".join(f"{place}: {'; '.join(rows)}" for place, rows in texts.items())
    return f" The same rows on different seeds are shown apart ({places})."


def in_order(rows: Iterable[Row]) -> list[str]:
    """Names of the rows: registered methods, then others, SCPO last."""
    names = dict.fromkeys(row.name for row in rows)
    known = [name for name in METHODS if name in names and name != DEFAULT]
    unknown = sorted(name for name in names if name not in METHODS)
    last = [DEFAULT] if DEFAULT in names else []
    return [*known, *unknown, *last]


def compared(rows: Sequence[Row], chosen: Sequence[str] = ()) -> tuple[Row, ...]:
    """Rows that a figure compares, out of all comparable rows of a section.

    These are the rows that the user chose; else the methods, if there are several; else all rows,
    such as one method with its variants. A section also has the rows of sweeps over a setting,
    which have figures of their own.
    """
    methods: dict[str, Row] = {}
    for row in rows:
        if _is_row_of_method(row, rows):
            methods[row.name] = replace(row, label=method_of(row).label)
    if chosen:
        by_name = {row.name: methods.get(row.name, row) for row in rows}
        return tuple(by_name[name] for name in chosen if name in by_name)
    if len(methods) > 1:
        return tuple(methods[name] for name in in_order(methods.values()))
    return tuple(rows)


def left_out(rows: Sequence[Row], drawn: Iterable[Row]) -> str:
    """Sentence that names the rows which are not drawn; empty if all are."""
    shown = {row.name for row in drawn}
    names: dict[str, None] = {}
    for row in rows:
        if row.name not in shown:
            names[method_of(row).label] = None
    if not names:
        return ""
    return f" Not drawn here: {first_names(names)}."
