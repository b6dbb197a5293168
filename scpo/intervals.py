"""Statistics over seeds: mean, sample standard deviation, Student-t interval."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Values whose range is at most this share of the largest are treated as equal. 17/134 - 7/134 and
# 16/134 - 6/134 are the same number of games but differ in their last bits; with such a spread the
# p-value of a t-test would be arbitrary.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (ddof 1) of n values; NaN where n is too small.

    Attributes:
        mean: Mean of the values; NaN without any.
        std: Deviation between seeds, with divisor n - 1 (ledger 36); NaN below two values, 0 if
            they differ only by rounding.
        n: Number of values, that is seeds or pairs of seeds.
    """

    mean: float
    std: float
    n: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student-t interval for the mean: mean ± t_{n-1}·std/√n (NaN below two values)."""
        if self.n < 2:
            return math.nan, math.nan
        # Imported here: `scpo` and its commands start without SciPy.
        from scipy.stats import t

        half = float(t.ppf((1 + level) / 2, self.n - 1)) * self.std / math.sqrt(self.n)
        return self.mean - half, self.mean + half


def summarise(values: Iterable[float | None]) -> Summary:
    """Summarise values over seeds; ``n`` counts only the seeds with a finite value."""
    present = [float(value) for value in values if value is not None and math.isfinite(value)]
    n = len(present)
    if n == 0:
        return Summary(math.nan, math.nan, 0)
    # `fsum` rounds once, so that the order in which runs are read changes no digit of a table.
    mean = math.fsum(present) / n
    if n == 1:
        return Summary(mean, math.nan, 1)
    if max(present) - min(present) <= ROUNDING * max(map(abs, present)):
        return Summary(mean, 0.0, n)
    variance = math.fsum((value - mean) ** 2 for value in present) / (n - 1)
    return Summary(mean, math.sqrt(variance), n)


def decimal(value: float, digits: int, *, sign: bool = False) -> str:
    """Format a number for print, with a typographic minus sign and no negative zero.

    Args:
        value: The number.
        digits: Decimals.
        sign: Also print a plus sign.
    """
    # Option z: -0.0004 rounds to 0.000, as 0.0004 does, and not to -0.000.
    text = f"{value:+z.{digits}f}" if sign else f"{value:z.{digits}f}"
    # The minus sign: a hyphen is hard to see before a digit.
    return text.replace("-", "−")


def bound_texts(
    interval: tuple[float, float], factor: float, digits: int, *, sign: bool = False
) -> tuple[str, str]:
    """Format the bounds of an interval for print, in texts and tables alike.

    The signs of the bounds decide if the interval includes 0. So a bound that would be printed as
    0, but is not 0, gets up to two more decimals: ``[−4.4, −0.04]`` excludes 0, ``[−4.4, 0.04]``
    does not, and ``[−4.4, 0.0]`` could be either.

    Args:
        interval: Lower and upper bound.
        factor: Multiplies both.
        digits: Decimals.
        sign: Also print a plus sign.
    """
    shown = []
    for bound in interval:
        places = digits
        while bound != 0 and places < digits + 2 and round(factor * bound, places) == 0:
            places += 1
        shown.append(decimal(factor * bound, places, sign=sign))
    return shown[0], shown[1]


def decimals(value: float, usual: int) -> int:
    """Decimals that show two significant digits of a number, at least ``usual``.

    With fixed decimals small credit, such as 0.00018, would be printed as 0.000.
    """
    if value == 0 or not math.isfinite(value):
        return usual
    return max(usual, 1 - math.floor(math.log10(abs(value))))


def paired_text(difference: Summary, factor: float = 100, digits: int = 1) -> str:
    """Format a paired difference for a terminal: ``+2.1 [−0.4, 4.6]`` in points; – without a pair.

    One pair has no interval.

    Args:
        difference: Summary of the differences, one for each pair of runs with equal seeds.
        factor: Multiplies all numbers; 100 turns rates into points.
        digits: Decimals.
    """
    if difference.n == 0:
        return "–"
    text = decimal(factor * difference.mean, digits, sign=True)
    if difference.n > 1:
        text += f" [{', '.join(bound_texts(difference.interval(), factor, digits))}]"
    return text
