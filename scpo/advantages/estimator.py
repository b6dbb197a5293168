"""Estimator interface: settings, requirements, function, and labels in tables."""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, ValidationError

from scpo.errors import ConfigError, ContractError, StepBatchError
from scpo.steps import BoolArray, FloatArray, StepBatch, refuse
from scpo.strict import Strict
from scpo.suggestions import did_you_mean

Requirement = Literal["step_bonus", "entropy", "hindsight_logprob", "value"]
"""Input of an estimator beyond the plain batch; a trainer without it refuses the configuration."""

OPTIONAL_FIELDS = {"entropy": "entropy_N", "hindsight_logprob": "hindsight_logprob_N"}
"""Column of ``StepBatch`` of each requirement that is a column."""


class EstimatorSettings(Strict):
    """Settings of all estimators.

    s = episode return - penalty * [invalid]; q = step return + bonus. Each subclass declares
    ``name`` as a ``Literal``, by which the configuration selects the settings of a YAML file.

    Attributes:
        name: The estimator's name in ``conf/estimator``.
        gamma: Discount of a step in the step returns, in [0, 1]. Estimators that do not discount
            have it for the diagnostics, which report step returns for all methods.
        invalid_penalty: Subtracted from the score and the step return of a row whose action is
            invalid, in the unit of the rewards (0.1 in verl-agent's scripts).
    """

    name: str
    gamma: Annotated[float, Field(ge=0, le=1)]
    invalid_penalty: NonNegativeFloat


class GroupSettings(EstimatorSettings):
    """Settings of estimators that compare siblings.

    Attributes:
        statistics: Mean and deviation of the outcome term over step rows, as in verl-agent, or over
            trajectories, as in the papers (ledger 4).
        std_floor: A group whose standard deviation is smaller counts as all equal and gets 0.
            verl-agent has no floor: by float32 rounding, equal returns have a small deviation
            there, and dividing by it gives them advantages (ledger 14).
    """

    statistics: Literal["rows", "trajectories"]
    std_floor: NonNegativeFloat


@dataclass(frozen=True)
class Estimator:
    """Registry entry of an estimator, defined at the end of the estimator's file.

    Attributes:
        settings: Its settings; their ``name`` is the estimator's.
        function: Row level: ``f(batch, step_return_N, bonus_N, settings) -> advantage_N``, float32,
            one per row. Token level: ``f(token_reward_NL, value_NL, mask_NL, settings) ->
            (advantage_NL, return_NL)``, float32.
        requires: Inputs beyond the plain batch. ``step_bonus``: the bonus, so it can host
            SCPO; ``entropy``, ``hindsight_logprob``: the batch's optional columns; ``value``: a
            critic.
        labels: Labels in tables and figures of the methods that it trains, by their names in
            ``conf/method``.
        step_term: Row level, with the arguments of ``function``: the part of the advantage that
            separates the steps of one trajectory, float64, its weight included; None if every step
            gets its trajectory's outcome.
        level: ``row`` (called by ``scpo.credit.assign.assign``) or ``token``
            (``scpo.credit.assign.assign_tokens``).
    """

    settings: type[EstimatorSettings]
    function: Callable[..., Any]
    requires: frozenset[Requirement]
    labels: Mapping[str, str]
    level: Literal["row", "token"] = "row"
    step_term: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """Refuse a requirement that does not exist: it would only be found when a run starts.

        Raises:
            ConfigError: No trainer provides it.
        """
        allowed = get_args(Requirement)
        for requirement in sorted(set(self.requires) - {*allowed}):
            raise ConfigError(
                f"estimator {self.name!r} requires {requirement!r}, which no trainer provides"
                f"{did_you_mean(str(requirement), allowed)}; allowed: {', '.join(allowed)}"
            )

    @property
    def name(self) -> str:
        """Its name in configurations."""
        # The configuration selects the settings by this Literal, so the name is declared once.
        return str(get_args(self.settings.model_fields["name"].annotation)[0])

    def call(self, *arguments: object) -> Any:
        """Result of ``function``, with the errors of a wrong function under the estimator's name.

        Raises:
            ContractError: It writes into an input, or takes other arguments. Its other errors pass
                unchanged.
        """
        return self._call("function", f"estimator {self.name!r}", arguments)

    def call_step_term(self, *arguments: object) -> Any:
        """Result of ``step_term``, with the same errors as ``call``."""
        return self._call("step_term", f"step_term of estimator {self.name!r}", arguments)

    def _call(
        self, field: Literal["function", "step_term"], what: str, arguments: tuple[object, ...]
    ) -> Any:
        try:
            return getattr(self, field)(*arguments)
        except (ValueError, FrozenInstanceError) as error:
            reason = _write_error(error)
            if reason is None:
                raise
            # Frames of pydantic and of a dataclass ("<string>") follow that of the assignment.
            frames = [
                frame
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename != "<string>" and "pydantic" not in Path(frame.filename).parts
            ]
            line = frames[-1]
            raise ContractError(
                f"{what} writes into one of its inputs, line {line.lineno}: "
                f"`{line.line}` ({reason}): copy it before you change it"
            ) from error
        except TypeError as error:
            # One frame: the call itself failed, not something inside.
            if len(traceback.extract_tb(error.__traceback__)) > 1:
                raise
            raise ContractError(
                f"{what} cannot be called with the {len(arguments)} arguments of "
                f"a {self.level}-level estimator ({error}): see `{field}` of "
                "scpo.advantages.estimator.Estimator, and scpo.contract.check_estimator"
            ) from error


def _write_error(error: Exception) -> str | None:
    """Message of an error of writing into an array, field or setting; None for other errors."""
    if isinstance(error, ValidationError):
        for detail in error.errors(include_url=False):
            if detail["type"] == "frozen_instance":
                return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
        return None
    # NumPy has no class for this error, so it is recognised by its text.
    is_write = isinstance(error, FrozenInstanceError) or "read-only" in str(error)
    return str(error) if is_write else None


def check_fields(batch: StepBatch, estimator: Estimator) -> None:
    """Refuse a batch without an optional column that the estimator requires.

    Raises:
        StepBatchError: A required column is None; names it.
    """
    for requirement, field in OPTIONAL_FIELDS.items():
        if requirement in estimator.requires and getattr(batch, field) is None:
            raise StepBatchError(
                f"estimator {estimator.name!r} requires {field}, which this batch lacks: the "
                "trainer provides it"
            )


def checked_step_term(
    estimator: Estimator,
    batch: StepBatch,
    step_return_N: FloatArray,
    bonus_N: FloatArray,
    settings: EstimatorSettings,
) -> NDArray[np.float64]:
    """The estimator's ``step_term``, one finite number for each row.

    Raises:
        StepBatchError: The result is something else; names the estimator, and the row of a NaN.
        ContractError: The function writes into an input, or takes other arguments.
    """
    if estimator.step_term is None:
        raise ValueError(f"estimator {estimator.name!r} has no step_term")
    what = f"step_term of estimator {estimator.name!r}"
    given = estimator.call_step_term(batch, step_return_N, bonus_N, settings)
    step_N = one_each(given, batch, what, "number")
    bad = np.flatnonzero(~np.isfinite(step_N))
    if len(bad):
        refuse(batch, bad[0], f"{what} is {step_N[bad[0]]}")
    return step_N.astype(np.float64, copy=False)


def one_each(given: object, batch: StepBatch, what: str, wanted: str) -> NDArray[Any]:
    """A function's result as an array with one number for each row.

    An estimator of another package may return another shape, which NumPy would silently broadcast.

    Args:
        given: The result.
        batch: The steps.
        what: The function, for the message.
        wanted: Meaning of each number, for the message.

    Raises:
        StepBatchError: The result is something else.
    """
    array = np.asarray(given)
    if array.shape != (len(batch),) or array.dtype.kind not in "fiu":
        shape = f"an array of {array.dtype} with shape {array.shape}"
        raise StepBatchError(
            f"{what} returned {'None' if given is None else shape}, expected one {wanted} for each "
            f"row: numbers of shape ({len(batch)},)"
        )
    return array


def measured(
    batch: StepBatch,
    name: Literal["entropy_N", "hindsight_logprob_N"],
    needed_N: BoolArray,
    reader: str,
) -> NDArray[np.float64]:
    """An optional column in float64, checked on the rows that are needed.

    A NaN on a needed row would pass through means and ratios into the advantages of other rows.

    Args:
        batch: The steps.
        name: Field of the batch.
        needed_N: Rows that must have a finite value.
        reader: Estimator that reads the column, the subject of the error messages.

    Raises:
        StepBatchError: The batch lacks the field, or a needed value is not finite; names the row.
    """
    column_N = getattr(batch, name)
    if column_N is None:
        raise StepBatchError(
            f"{reader} needs {name}, which this batch lacks: the trainer provides it"
        )
    # Other rows may be NaN: failures, for example, have no hindsight log-probability.
    bad = np.flatnonzero(needed_N & ~np.isfinite(column_N))
    if len(bad):
        refuse(batch, bad[0], f"{name} is {column_N[bad[0]]}, {reader} needs a finite number")
    return np.asarray(column_N, np.float64)
