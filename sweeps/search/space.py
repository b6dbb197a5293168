"""Space of a search as Optuna's distributions, as a grid and as overrides of a run."""

import itertools
import json
import math
import random
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from scpo.errors import ConfigError
from scpo.schema.run import RunConfig
from scpo.schema.search import Choice, Dimension, LogRange, StepRange

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Space = Mapping[str, Dimension]
Params = dict[str, Any]

# Significant digits of values from a LogRange: more would only make records harder to read.
LOG_DIGITS = 3

# Decimals of values from a StepRange: 0.3 + 6 * 0.05 is recorded as 0.6, not 0.6000000000000001.
STEP_DECIMALS = 10

# Maximum distance of a value from a point of its StepRange.
STEP_TOLERANCE = 1e-8

# Maximum number of points of a grid, which is held in memory.
LARGEST_GRID = 100_000


def distributions(space: Space) -> dict[str, "BaseDistribution"]:
    """Optuna's distributions of the space."""
    return {name: _distribution(dimension) for name, dimension in space.items()}


def _distribution(dimension: Dimension) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    if isinstance(dimension, LogRange):
        return FloatDistribution(dimension.low, dimension.high, log=True)
    low = dimension.low
    high = dimension.high
    step = dimension.step
    if isinstance(low, int) and isinstance(high, int) and isinstance(step, int):
        return IntDistribution(low, high, step=step)
    return FloatDistribution(low, values(dimension)[-1], step=step)


def values(dimension: Dimension) -> list[Any]:
    """Values of a dimension in a grid, in the order of the range or of the choices."""
    if isinstance(dimension, Choice):
        return list(dimension.values)
    if isinstance(dimension, LogRange):
        # Without points there is no grid, and only the bounds are asked for.
        points = dimension.points or 2
        ratio = math.log(dimension.high / dimension.low) / (points - 1)
        return [
            _tidy(dimension, dimension.low * math.exp(ratio * point)) for point in range(points)
        ]
    # The small term keeps the upper end if rounding makes the quotient 5.999... instead of 6.
    steps = math.floor((dimension.high - dimension.low) / dimension.step + 1e-9)
    return [_tidy(dimension, dimension.low + point * dimension.step) for point in range(steps + 1)]


def grid(space: Space, seed: int) -> Iterator[Params]:
    """All points of the grid, in an order that the seed determines.

    Raises:
        ConfigError: It has more than LARGEST_GRID points.
    """
    axes = {name: values(dimension) for name, dimension in space.items()}
    count = size(space, as_grid=True)
    if count > LARGEST_GRID:
        raise ConfigError(
            f"a grid of {count} points is too large to search; allowed: at most {LARGEST_GRID}. "
            "Widen the steps, or take search.sampler.name=tpe"
        )
    points = list(itertools.product(*axes.values()))
    random.Random(seed).shuffle(points)
    return (dict(zip(axes, point, strict=True)) for point in points)


def size(space: Space, *, as_grid: bool) -> float:
    """Number of points of a space; infinite if a dimension has any number of values.

    ``as_grid``: count the grid points of a logarithmic range, and not all of its values.
    """
    counts = []
    for dimension in space.values():
        if isinstance(dimension, LogRange) and not as_grid:
            return math.inf
        counts.append(len(values(dimension)))
    return math.prod(counts)


def key_of_params(params: Params) -> str:
    """String that is equal for equal parameters in any order."""
    return json.dumps(params, sort_keys=True)


def tidy(space: Space, params: Params) -> Params:
    """Round drawn values for records and run ids, to remove the noise of binary fractions."""
    return {name: _tidy(dimension, params[name]) for name, dimension in space.items()}


def _tidy(dimension: Dimension, value: Any) -> Any:
    if isinstance(dimension, StepRange):
        return round(value, STEP_DECIMALS)
    if isinstance(dimension, LogRange):
        return min(max(float(f"{value:.{LOG_DIGITS}g}"), dimension.low), dimension.high)
    return value


def describe(dimension: Dimension) -> str:
    """Describe the values of a dimension in words."""
    if isinstance(dimension, Choice):
        return ", ".join(map(str, dimension.values))
    by = f"in steps of {dimension.step}" if isinstance(dimension, StepRange) else "logarithmic"
    return f"{dimension.low} to {dimension.high} {by}"


def shown(params: Params) -> str:
    """Format a trial's values in one line."""
    return " ".join(f"{name}={value}" for name, value in params.items())


def override_texts(space: Space, params: Params) -> list[str]:
    """The overrides that set a trial's values in a run's configuration."""
    texts = []
    for name, dimension in space.items():
        value = params[name]
        # YAML's spelling of booleans.
        text = str(value).lower() if isinstance(value, bool) else value
        texts.append(f"{dimension.key}={text}")
    return texts


def point_of(space: Space, config: RunConfig) -> Params | None:
    """Values of a configuration in the space; None if one of them is outside of it."""
    params = {name: _look_up(config, dimension.key) for name, dimension in space.items()}
    inside = all(_contains(dimension, params[name]) for name, dimension in space.items())
    return tidy(space, params) if inside else None


def _contains(dimension: Dimension, value: Any) -> bool:
    if isinstance(dimension, Choice):
        return value in dimension.values
    if not isinstance(value, int | float) or not dimension.low <= value <= dimension.high:
        return False
    return isinstance(dimension, LogRange) or any(
        abs(value - point) < STEP_TOLERANCE for point in values(dimension)
    )


def _look_up(config: RunConfig, key: str) -> Any:
    """Value of a setting.

    Read from the models, because records leave out settings that are off.
    """
    value: Any = config
    for part in key.split("."):
        parts: Collection[str] = ()
        if isinstance(value, dict):
            parts = value
        elif isinstance(value, BaseModel):
            parts = type(value).model_fields
        if part not in parts:
            raise ConfigError(
                f"search.space: {key} is not a key of this configuration; "
                "allowed: what `python train.py` takes, such as method.shaper.theta"
            )
        value = value[part] if isinstance(value, dict) else getattr(value, part)

    # For a config group, the name of the chosen file.
    return getattr(value, "name", value)
