"""Ranges that logged metrics must lie in."""

import fnmatch
import functools
import math

ROUNDING = 1e-6  # a mean of shares may be a rounding error above 1
SHARE = (0.0, 1.0)
AMOUNT = (0.0, math.inf)
# A value outside its range cannot have been measured: the log is damaged.
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


@functools.lru_cache(maxsize=4096)  # matching patterns is slow, and names repeat at every step
def allowed(metric: str) -> tuple[float, float] | None:
    """Lowest and highest value of a metric; None for a metric without limits."""
    for pattern, bounds in RANGES.items():
        if fnmatch.fnmatchcase(metric, pattern):
            return bounds
    return None


def complaint(metric: str, step: int, value: float) -> str | None:
    """Explain why a value cannot have been measured; None if it can.

    For example ``val/test/success_rate is 7.0 at step 10, not in [0, 1]``.
    """
    low, high = allowed(metric) or (-math.inf, math.inf)
    if math.isfinite(value) and low - ROUNDING <= value <= high + ROUNDING:
        return None
    return f"{metric} is {value} at step {step}, not in [{low:g}, {high:g}]"
