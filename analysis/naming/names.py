"""What records call a thing (a benchmark, a model, a panel, a family, a run), and what print calls it."""

import re

from scpo.benchmarks import BENCHMARKS
from scpo.schema import FAMILIES, method_label

from analysis.sources.rows import Section

MODELS = {
    "tiny": "tiny language model",
    "choice": "choice policy",
    **{size: f"Qwen2.5-{size}-Instruct" for size in ("0.5B", "1.5B", "3B", "7B")},
}
TASKS = {
    family.id: family.label for known in BENCHMARKS.values() for family in known.families.values()
}
MARKS = tuple(times * mark for times in (1, 2, 3) for mark in "†‡§¶")  # of footnotes


ALL = "All"
COLUMNS = (*FAMILIES, ALL)

TRAINED_ON = "train_games"
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
NOTES = {"mini": MINI_NOTE, "study": STUDY_NOTE, "paper": ""}
"""What must be said beside every number of a scale."""
JUDGED = BENCHMARKS["alfworld"].judged
"""The panel of ALFWorld that decides at a scale."""


def benchmark(name: str) -> str:
    """Label of a benchmark."""
    return BENCHMARKS[name].label if name in BENCHMARKS else name


def panel_title(env: str, panel: str) -> str:
    """Title of a panel in figures of a benchmark."""
    own = BENCHMARKS[env].panel_titles if env in BENCHMARKS else {}
    return own.get(panel, panel) if own else PANELS.get(panel, panel)


def model(name: str) -> str:
    """What print calls a model."""
    return MODELS.get(name, name)


def task(name: str) -> str:
    """What print calls a task family; a shop's goal is its category."""
    return TASKS.get(name, name.replace("_", " "))


def place(scale: str, env: str, model_name: str) -> str:
    """For example ``study scale, ALFWorld, choice policy``."""
    return f"{scale} scale, {benchmark(env)}, {model(model_name)}"


def setting(part: Section) -> str:
    """Benchmark and model of a section, and what sets it apart from the usual setting."""
    return f"{benchmark(part.env)}, {model(part.model)}{part.apart}"


def run(run_id: str) -> str:
    """A run as a reader tells it: method, choices and seed. Its whole id stands in ``sources.json``."""
    found = re.fullmatch(r"[^-]+-[^-]+-([^-]+)((?:-[^-]+)*)-s(\d+)-[0-9a-f]+", run_id)
    if not found:
        return run_id
    method, choices, seed = found.groups()
    return ", ".join(
        [method_label(method), *choices.replace("_", " ").split("-")[1:], f"seed {seed}"]
    )


def with_note(caption: str, scale: str) -> str:
    """A caption with what must be said of the scale."""
    return f"{caption} {NOTES[scale]}".strip()


def success_metric(panel: str, column: str = ALL) -> str:
    """The metric that a column of a success table shows."""
    return (
        f"val/{panel}/success_rate"
        if column == ALL
        else f"val/{panel}/{FAMILIES[column]}/success_rate"
    )


def panel_label(panel: str) -> str:
    """What a panel is, with its name in the records."""
    return f"{PANELS[panel]} ({panel})" if panel in PANELS else panel


def panel_order(panels: set[str]) -> tuple[str, ...]:
    """Known panels first, in the order in which they are printed."""
    return tuple(
        sorted(
            panels,
            key=lambda name: (list(PANELS).index(name) if name in PANELS else len(PANELS), name),
        )
    )


class Footnotes:
    """Marks for texts: the same text has the same mark wherever it stands in a table or figure."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """The mark of a text, empty for no text."""
        if not text:
            return ""
        return self._marks.setdefault(text, MARKS[len(self._marks) % len(MARKS)])

    @property
    def text(self) -> str:
        """All of them, as the end of a caption."""
        return "".join(f" {mark} {text}." for text, mark in self._marks.items())
