import re
from pathlib import Path

from bench.shaper_report import PAPER_STEP

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pages_have_the_step_of_the_paper_without_scpo_that_its_share_gives():
    """It was 281 s, which is 29.3 / 0.104 rounded down."""
    seconds = [int(text) for text in re.findall(r"(\d+) s a step", (DOCS / "scoring.md").read_text())]
    seconds += [int(text) for text in re.findall(r"training step of (\d+) s", (DOCS / "scoring.md").read_text())]
    seconds += [int(text) for text in re.findall(r"which then takes\s+(\d+) s", (DOCS / "verl.md").read_text())]
    assert seconds == [PAPER_STEP] * 3 == [282] * 3
