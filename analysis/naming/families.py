"""Names of the benchmark's task families and panels, as they are logged and as they are printed."""

from scpo.schema import FAMILIES

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
    "Mini scale: a small policy trained for minutes. Two seeds at this scale do not separate the methods, "
    "and no number measured here may be compared with the paper's."
)

STUDY_NOTE = (
    "Study scale: a policy that chooses among listed commands, after a short imitation start. It compares methods on "
    "one policy and says nothing about language models; no number measured here may be compared with the paper's."
)
STUDY_TITLE = "study scale: a choice policy after a short imitation start, not a language model"
NOTES = {"mini": MINI_NOTE, "study": STUDY_NOTE, "paper": ""}
"""What must be said beside every number of a scale."""
JUDGED = {"mini": TRAINED_ON, "study": "valid_seen", "paper": "valid_seen"}
"""The panel that decides at a scale; a tiny language model moves on the games it trains on only."""


def with_note(caption: str, scale: str) -> str:
    """A caption with what must be said of the scale."""
    return f"{caption} {NOTES[scale]}".strip()


def success_metric(panel: str, column: str = ALL) -> str:
    """The metric that a column of a success table shows."""
    return f"val/{panel}/success_rate" if column == ALL else f"val/{panel}/{FAMILIES[column]}/success_rate"


def panel_label(panel: str) -> str:
    """What a panel is, with its name in the records."""
    return f"{PANELS[panel]} ({panel})" if panel in PANELS else panel


def panel_order(panels: set[str]) -> tuple[str, ...]:
    """Known panels first, in the order in which they are printed."""
    return tuple(sorted(panels, key=lambda name: (list(PANELS).index(name) if name in PANELS else len(PANELS), name)))
