"""Ranges of logged metrics: a value outside its range was never measured."""

import fnmatch
import functools
import math

ROUNDING = 1e-6  # a mean of shares may end a rounding error above 1
SHARE, AMOUNT = (0.0, 1.0), (0.0, math.inf)
RANGES = {
    "*success_rate": SHARE,
    "*invalid_rate": SHARE,
    "*/errored": AMOUNT,
    "credit/precision*": SHARE,
    "credit/active_groups": SHARE,
    "credit/effective": SHARE,
    "credit/exact": SHARE,
    "*/episodes": AMOUNT,
    "*/episode_length": AMOUNT,
    "timing_s/*": AMOUNT,
}


@functools.lru_cache(maxsize=4096)
def allowed(metric: str) -> tuple[float, float] | None:
    """The least and the greatest value of a metric; None for one that may have any."""
    return next(
        (bounds for pattern, bounds in RANGES.items() if fnmatch.fnmatchcase(metric, pattern)), None
    )


def complaint(metric: str, step: int, value: float) -> str | None:
    """Why this value cannot have been measured, e.g. ``val/test/success_rate is 7.0 at step 10, not in [0, 1]``."""
    low, high = allowed(metric) or (-math.inf, math.inf)
    if low - ROUNDING <= value <= high + ROUNDING and math.isfinite(value):
        return None
    return f"{metric} is {value} at step {step}, not in [{low:g}, {high:g}]"
