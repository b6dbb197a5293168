"""What the last line of `make test` says of skipped tests, and what it is made of."""

import re
from pathlib import Path

import tests
from tests.support.skips import skip_summary

FOLDER = Path(tests.__file__).parent


def test_reasons_are_counted_and_say_what_to_do():
    reasons = ["Skipped: needs verl: make test-verl"] * 2 + ["Skipped: needs root: mount a disk", "Skipped: a whim"]
    assert skip_summary(reasons) == "skipped: 2 need verl (make test-verl), 1 needs root (mount a disk), 1 (a whim)"
    assert skip_summary([]) == "skipped: none"


def test_every_skip_says_what_it_needs_and_what_to_do():
    silent = []
    for path in sorted(set(FOLDER.rglob("*.py")) - {Path(__file__)}):
        text = path.read_text(encoding="utf-8")
        calls = re.findall(r"pytest\.importorskip\((?:[^()]|\([^()]*\))*\)", text)
        silent += [(path.name, call) for call in calls if not re.search(r'reason="needs [^"]+: ', call)]
        reasons = re.findall(r'(?:pytest\.skip\(|skipif\([^"]*reason=)\s*f?"([^"]*)', text)
        silent += [(path.name, reason) for reason in reasons if not re.match("needs .+: ", reason)]
    assert not silent
