"""Where a study's records lie: a journal that any file system can hold, or sqlite on one machine."""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import ConfigError, RecordError
from scpo.records.files import sealed, unsealed
from scpo.records.logs import cut_torn_line
from scpo.schema import MedianPruning
from sweeps.search.plan import Plan

if TYPE_CHECKING:
    import optuna
    from optuna.pruners import BasePruner
    from optuna.storages import BaseStorage

FILES = {"journal": "journal.log", "sqlite": "study.db"}
LOCK_GRACE_S = (
    10  # a journal's lock that nobody released for so long is its dead holder's; an append takes milliseconds
)
SQLITE_TIMEOUT_S = 60


def open_study(plan: Plan) -> "tuple[optuna.Study, BaseStorage]":
    """The study of a plan, made if it is not there, and the storage that it is in.

    Raises:
        ConfigError: Its records lie in another storage than the one asked for.
        RecordError: They cannot be read.
    """
    import optuna

    _refuse_other_storage(plan)
    path = plan.folder / FILES[plan.search.storage]
    with naming_damage(plan.folder):
        storage = _journal(path) if plan.search.storage == "journal" else _sqlite(path)
        study = optuna.create_study(
            study_name=plan.study_id,
            storage=storage,
            direction="maximize",
            pruner=_pruner(plan.search.pruner),
            load_if_exists=True,
        )
    return study, storage


@contextlib.contextmanager
def naming_damage(folder: Path) -> Iterator[None]:
    """Turn whatever a damaged file makes Optuna raise into a RecordError that names its folder."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (ValueError, LookupError, TypeError, SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        raise RecordError(
            f"the records of the search in {folder} are damaged: {type(error).__name__}: {error}. Delete {folder} to "
            "start the search again: its runs stay, and what is finished is not run again"
        ) from error


def _refuse_other_storage(plan: Plan) -> None:
    for kind, name in FILES.items():
        if kind != plan.search.storage and (plan.folder / name).exists():
            raise ConfigError(
                f"search.storage={plan.search.storage}: this search has its records in {plan.folder / name}. Go on "
                f"with search.storage={kind}, or delete {plan.folder} to start it again: its runs stay"
            )


def _journal(path: Path) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    class CheckedJournal(JournalFileBackend):
        """Each line holds its checksum: a parameter or a value with another bit is refused as it is read."""

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            super().append_logs([sealed(log) for log in logs])

        def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
            for number, log in enumerate(super().read_logs(log_number_from), start=log_number_from + 1):
                try:
                    yield unsealed(log)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{path.name}, line {number}: {error}") from error

    class RepairingLock(JournalFileSymlinkLock):
        """Cuts off what a killed writer left of a line: the next append would make one damaged line of the two."""

        def acquire(self) -> bool:
            acquired = super().acquire()
            cut_torn_line(path)
            return acquired

    return JournalStorage(CheckedJournal(str(path), lock_obj=RepairingLock(str(path), LOCK_GRACE_S)))


def _sqlite(path: Path) -> "BaseStorage":
    from optuna.storages import RDBStorage

    return RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": SQLITE_TIMEOUT_S}})


def _pruner(config: MedianPruning | None) -> "BasePruner":
    from optuna.pruners import MedianPruner, NopPruner

    if config is None:
        return NopPruner()
    return MedianPruner(n_startup_trials=config.startup_trials, n_warmup_steps=config.warmup_steps)
