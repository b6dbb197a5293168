"""The records of a run, one model each: whoever reads one gets all of it as it was meant, or an error that names it."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    RootModel,
    ValidationError,
)

from scpo.checksums import FileSum
from scpo.errors import RecordError
from scpo.schema import Scale
from scpo.tracking.atomic import RUN_AGAIN, read_json
from scpo.tracking.states import State

Model = TypeVar("Model", bound=BaseModel)
Count = Annotated[int, Field(ge=0, lt=1 << 53)]  # what every JSON reader takes for a whole number


def _recorded(state: State) -> State:
    if not state.recorded:
        raise ValueError(f"{state} is what others see of a run, never what it records")
    return state


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Status(_Record):
    """status.json: how far a run has come, and which process is or was on it.

    ``failures`` counts the attempts that ended FAILED since the run was made or retried by a person. ``boot`` is the
    kernel that the process ran under: a container that comes back under another name is on it still. ``sums`` are of
    the run's files as they were when this was written; the logs may have grown since, until the run is DONE.
    """

    state: Annotated[State, AfterValidator(_recorded)]
    attempt: Count = 0
    step: Count = 0
    steps: Count
    failures: Count = 0
    reason: str | None = None
    pid: Annotated[PositiveInt, Field(lt=1 << 31)] | None = None
    host: str | None = None
    boot: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    commit: str | None = None
    sums: dict[str, FileSum] = {}


class StopRequest(_Record):
    """stop.json: what a run shall end as at its next step. INTERRUPTED holds for one attempt, the others for all."""

    state: Literal[State.INTERRUPTED, State.CANCELLED, State.PRUNED]
    reason: str


class PanelRecord(_Record):
    """One panel of panels.json: the hash of its games, and their ids (of older runs their number)."""

    sha256: str
    tasks: list[str] | NonNegativeInt


class Panels(RootModel[dict[str, PanelRecord]]):
    """panels.json: the panels by name."""


class CheckpointMarker(_Record):
    """COMPLETE, which a trainer writes last into a checkpoint: what is in it, and the logs as they were then."""

    step: Count
    files: dict[str, FileSum]
    logs: dict[str, FileSum]


class Provenance(_Record):
    """provenance.json: by the number of an attempt its code, packages and machine."""

    attempts: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], dict[str, Any]]


class PlannedRun(BaseModel):
    """One run of an experiment's row, whether or not it has started."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    env: str
    model: str
    seed: int
    settings: str | None = None  # of its configuration apart from the seed


class PlannedRow(BaseModel):
    """One row of an experiment."""

    model_config = ConfigDict(frozen=True)

    name: str
    label: str
    runs: tuple[PlannedRun, ...]


class PrimaryComparisons(BaseModel):
    """What the experiment was run for: pairs of rows, each the first minus the second, and the measure."""

    model_config = ConfigDict(frozen=True)

    measure: str
    comparisons: tuple[tuple[str, str], ...]


class Manifest(BaseModel):
    """``runs/experiments/<name>-<scale>.json``: which run is which row."""

    model_config = ConfigDict(frozen=True)

    experiment: str
    title: str
    scale: Scale
    overrides: tuple[str, ...] = ()
    rows: tuple[PlannedRow, ...]
    primary: PrimaryComparisons | None = None


def read_record(path: Path, model: type[Model], what: str, remedy: str = RUN_AGAIN) -> Model:
    """Read a JSON record.

    Raises:
        RecordError: It is missing, cut, damaged or of another form; ``what`` says what it should be.
    """
    try:
        return model.model_validate(read_json(path, remedy))
    except ValidationError as error:
        raise RecordError(f"{path} is no valid {what}: {first_complaint(error)}. {remedy}") from error


def first_complaint(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    detail = error.errors()[0]
    place = ".".join(map(str, detail["loc"]))
    return f"{place}: {detail['msg']}" if place else str(detail["msg"])
