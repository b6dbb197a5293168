"""Trials of a search: created, owned and finished by drivers; and their results.

Ownership is implemented here, because Optuna's heartbeat and retry callback exist for SQL storages
only (``RDBStorage``), which do not work on the shared file systems of clusters. A driver holds a
file lock for as long as it lives, so a dead driver's trials are taken over at once; a heartbeat
would first have to expire. Optuna's retry would also start a trial's runs from step 0; here they
are found by their settings and resumed.
"""

import contextlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import RecordError
from scpo.intervals import Summary, summarise
from scpo.records import RunFolder
from scpo.records.files import locked, text_sum
from sweeps.search.failed_runs import DEAD, clearable
from sweeps.search.plan import Plan, Proposal, propose
from sweeps.search.space import Params, distributions, key_of_params
from sweeps.search.storage import load_study, naming_damage, open_study

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

OWNER, RETRY_OF, ATTEMPTS, BY_SEED, REASON = "owner", "retry_of", "attempts", "by_seed", "reason"
# Number of attempts of each run when this study decided to prune the trial. A PRUNED run is not
# such a decision: searches share runs.
PRUNING = "pruning"
# Checksum of a complete trial's parameters, objective and values at each seed.
RESULT_SUM = "checksum"


def read_trials(plan: Plan) -> "list[FrozenTrial]":
    """Read the trials of a study without writing; none if it was not begun."""
    study = load_study(plan.folder, plan.search)
    if study is None:
        return []
    with naming_damage(plan.folder):
        return _checked(study.get_trials())


class Study:
    """A driver's access to a study.

    A trial is created in one write, with all its values and its owner, and only its owner finishes
    it. So no trial is half created, or finished twice, when a driver dies. The next driver that
    calls ``mine`` takes over the trials of a dead one.

    Raises:
        ConfigError: The study has its records in another storage.
        RecordError: The records cannot be read.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        # Owner of this driver's trials, and name of its lock file.
        self._me = uuid.uuid4().hex
        self._drivers = plan.folder / "drivers"
        self._drivers.mkdir(parents=True, exist_ok=True)
        self._held = contextlib.ExitStack()
        self._held.enter_context(locked(self._drivers / self._me))
        with self._turn():
            self._study, self._storage = open_study(plan.folder, plan.search)

    def close(self) -> None:
        """Release the trials that this driver owns; another driver may take over."""
        (self._drivers / self._me).unlink(missing_ok=True)
        self._held.close()

    def trials(self) -> "list[FrozenTrial]":
        """All trials, by number."""
        with naming_damage(self.plan.folder):
            return _checked(self._study.get_trials())

    def under_way(self) -> "list[FrozenTrial]":
        """The unfinished trials of all drivers."""
        return [trial for trial in self.trials() if trial.state.name == "RUNNING"]

    def mine(self) -> "list[FrozenTrial]":
        """The unfinished trials of this driver, after taking over those of dead drivers."""
        running = self.under_way()
        # The usual case needs no lock.
        if all(self._alive(trial.user_attrs[OWNER]) for trial in running):
            return [trial for trial in running if trial.user_attrs[OWNER] == self._me]
        with self._turn():
            for trial in self.under_way():
                if not self._alive(trial.user_attrs[OWNER]):
                    self._handle(trial).set_user_attr(OWNER, self._me)
        # Read again, because another driver may have taken over some of them in between.
        return self.mine()

    def next_trial(self) -> "FrozenTrial | None":
        """Create the next trial; None if nothing is left to try."""
        with self._turn():
            trials = self.trials()
            # Under the lock, because two drivers would otherwise propose the same settings.
            proposal = propose(self.plan, trials)
            if proposal is None:
                return None
            self._add(proposal)
            return self.trials()[len(trials)]

    def report(self, trial: "FrozenTrial", curve: Mapping[int, float]) -> bool:
        """Record intermediate values by training step; True if the trial should be pruned."""
        handle = self._handle(trial)
        with _unless_ended():
            for step in sorted(curve.keys() - trial.intermediate_values.keys()):
                # In ascending order, because pruners look at the last reported step.
                handle.report(curve[step], step)
        return bool(curve) and handle.should_prune()

    def complete(self, trial: "FrozenTrial", value: float, by_seed: Mapping[int, float]) -> None:
        """Finish a trial with its objective and the value at each seed."""
        with _unless_ended():
            # JSON keys are strings.
            named = {str(seed): result for seed, result in by_seed.items()}
            handle = self._handle(trial)
            handle.set_user_attr(BY_SEED, named)
            handle.set_user_attr(RESULT_SUM, result_sum(trial.params, value, named))
        self._study.tell(trial.number, value, skip_if_finished=True)

    def begin_pruning(self, trial: "FrozenTrial", attempts: Mapping[str, int]) -> None:
        """Record that a trial is to be pruned, and the number of attempts of each run."""
        with _unless_ended():
            self._handle(trial).set_user_attr(PRUNING, dict(attempts))

    def prune(self, trial: "FrozenTrial") -> None:
        """Finish a trial that was stopped early; Optuna takes its last intermediate value."""
        from optuna.trial import TrialState

        self._study.tell(trial.number, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, trial: "FrozenTrial", reason: str, dead: Iterable[str] = ()) -> None:
        """Finish a trial without a value; another trial may try its settings again.

        Args:
            trial: The trial.
            reason: Why it failed.
            dead: Ids of the runs that failed it.
        """
        from optuna.trial import TrialState

        runs_dir = Path(self.plan.base.machine.runs_dir)
        with _unless_ended():
            handle = self._handle(trial)
            handle.set_user_attr(REASON, reason)
            handle.set_user_attr(DEAD, clearable(runs_dir, dead))
        self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _turn(self) -> contextlib.AbstractContextManager[bool]:
        """Lock under which one driver at a time creates or takes over trials."""
        return locked(self.plan.folder / "lock", wait=True)

    def _alive(self, driver: str) -> bool:
        """True if a driver still holds its lock; the lock file of a dead one is removed."""
        path = self._drivers / driver
        if driver == self._me:
            return True
        if not path.exists():
            return False
        with locked(path) as free:
            if free:
                # The lock could be taken, so its owner is dead.
                path.unlink(missing_ok=True)
        return not free

    def _add(self, proposal: Proposal) -> None:
        import optuna

        attributes: dict[str, Any] = {OWNER: self._me, ATTEMPTS: self._attempts(proposal)}
        if proposal.retry_of is not None:
            attributes[RETRY_OF] = proposal.retry_of
        self._study.add_trial(
            optuna.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=proposal.params,
                distributions=distributions(self.plan.search.space),
                user_attrs=attributes,
            )
        )

    def _attempts(self, proposal: Proposal) -> dict[str, int]:
        """Attempts so far of each run, whose outcomes do not count for the new trial."""
        runs_dir = Path(self.plan.base.machine.runs_dir)
        attempts = {}
        for run_id in self.plan.runs(proposal.params):
            attempts[run_id] = _attempts_of(RunFolder(runs_dir / run_id))
        return attempts

    def _handle(self, trial: "FrozenTrial") -> "Trial":
        from optuna.trial import Trial

        study_id = self._storage.get_study_id_from_name(self.plan.study_id)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        return Trial(self._study, trial_id)


def result_sum(params: Params, value: float | None, by_seed: Any) -> str:
    """Checksum of a complete trial: of its parameters, objective and values at each seed."""
    result = {"params": params, "value": value, "by_seed": by_seed}
    return text_sum(json.dumps(result, sort_keys=True).encode())


def _checked(trials: "list[FrozenTrial]") -> "list[FrozenTrial]":
    """The trials, whose complete ones are as they were recorded.

    The lines of a journal have checksums, an sqlite file has none.

    Raises:
        ValueError: A complete trial has other parameters or values than were recorded.
    """
    for trial in trials:
        if trial.state.name != "COMPLETE":
            continue
        attributes = trial.user_attrs
        if RESULT_SUM not in attributes:
            why = "damaged, or of an older version"
            raise ValueError(f"trial {trial.number} has no checksum ({why})")
        present = result_sum(trial.params, trial.value, attributes.get(BY_SEED))
        if attributes[RESULT_SUM] != present:
            raise ValueError(
                f"the parameters or values of trial {trial.number} are not those that were recorded"
            )
    return trials


def _attempts_of(folder: RunFolder) -> int:
    try:
        if not folder.path.exists():
            return 0
        return folder.read_status().attempt
    except RecordError:
        # The driver reads the run next and fails the trial with the reason.
        return 0


@contextlib.contextmanager
def _unless_ended() -> Iterator[None]:
    """Suppress the error for a trial that is finished already.

    On file systems without locks between hosts, another driver may have finished it, with the same
    result.
    """
    from optuna.exceptions import UpdateFinishedTrialError

    with contextlib.suppress(UpdateFinishedTrialError):
        yield


@dataclass(frozen=True)
class Result:
    """Complete trial: its parameters and its success rate at each seed."""

    number: int
    params: Params
    by_seed: dict[int, float]

    @property
    def summary(self) -> Summary:
        """Mean and spread over the seeds."""
        return summarise(self.by_seed.values())


def ranked(trials: "Sequence[FrozenTrial]") -> list[Result]:
    """Complete trials by descending mean; ties by number."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    results = []
    for trial in complete:
        by_seed = {int(seed): value for seed, value in trial.user_attrs[BY_SEED].items()}
        results.append(Result(trial.number, trial.params, by_seed))
    return sorted(results, key=lambda result: (-result.summary.mean, result.number))


def default_result(plan: Plan, results: Sequence[Result]) -> Result | None:
    """Result of the unchanged configuration; None if it was not tried or did not complete."""
    default = plan.default()
    if default is None:
        return None
    key = key_of_params(default)
    return next((result for result in results if key_of_params(result.params) == key), None)


def counts(trials: "Sequence[FrozenTrial]") -> str:
    """Number of trials by state, such as ``7 COMPLETE, 2 PRUNED``."""
    by_state = Counter(trial.state.name for trial in trials)
    return ", ".join(f"{count} {state}" for state, count in by_state.items()) or "no trials"
