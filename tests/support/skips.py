"""One line: how many tests were skipped, why, and what to do to run them."""

import re
from collections import Counter
from collections.abc import Iterable


def skip_summary(reasons: Iterable[str]) -> str:
    """``reasons`` as pytest has them: "Skipped: needs <what>: <what to do>"; the most frequent comes first."""
    counts = Counter(re.sub(r"^Skipped: ", "", reason) for reason in reasons)
    if not counts:
        return "skipped: none"
    return "skipped: " + ", ".join(f"{count} {_told(reason, count)}" for reason, count in counts.most_common())


def _told(reason: str, count: int) -> str:
    found = re.fullmatch(r"needs (.+?): (.+)", reason, re.DOTALL)
    if found is None:
        return f"({reason})"
    return f"need{'s' if count == 1 else ''} {found[1]} ({found[2]})"
