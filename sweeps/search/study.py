"""The trials of a search: as one driver sees and changes them, and what they came to."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import RecordError
from scpo.intervals import Summary, summarise
from scpo.records import RunFolder
from scpo.records.files import locked
from sweeps.search.plan import Plan
from sweeps.search.proposals import Proposal, propose
from sweeps.search.space import Params, distributions, key_of_params
from sweeps.search.storage import naming_damage, open_study

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

OWNER, RETRY_OF, ATTEMPTS, BY_SEED, REASON = "owner", "retry_of", "attempts", "by_seed", "reason"


def read_trials(plan: Plan) -> "list[FrozenTrial]":
    """The trials of a study, for whoever does not drive it."""
    study, _ = open_study(plan)
    with naming_damage(plan.folder):
        return study.get_trials()


class Study:
    """A driver's hold of a study.

    A trial is created in one write, with all its values and its owner, and only its owner tells how it ended: nothing
    is half asked or told twice, whoever dies. The trials of a dead driver go to whichever comes next.

    Raises:
        ConfigError: The study has its records in another storage.
        RecordError: The records cannot be read.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._me = uuid.uuid4().hex  # signs its trials, and names the lock that it holds while it lives
        self._drivers = plan.folder / "drivers"
        self._drivers.mkdir(parents=True, exist_ok=True)
        self._held = contextlib.ExitStack()
        self._held.enter_context(locked(self._drivers / self._me))
        with self._turn():
            self._study, self._storage = open_study(plan)

    def close(self) -> None:
        """Let go of the trials that this driver owns: another driver may take over."""
        (self._drivers / self._me).unlink(missing_ok=True)
        self._held.close()

    def trials(self) -> "list[FrozenTrial]":
        """All trials, by number."""
        with naming_damage(self.plan.folder):
            return self._study.get_trials()

    def under_way(self) -> "list[FrozenTrial]":
        """The trials that have no end yet, whoever owns them."""
        return [trial for trial in self.trials() if trial.state.name == "RUNNING"]

    def mine(self) -> "list[FrozenTrial]":
        """The trials under way that this driver owns, after it has taken over those of dead drivers."""
        running = self.under_way()
        if all(self._alive(trial.user_attrs[OWNER]) for trial in running):
            return [trial for trial in running if trial.user_attrs[OWNER] == self._me]
        with self._turn():
            for trial in self.under_way():
                if not self._alive(trial.user_attrs[OWNER]):
                    self._handle(trial).set_user_attr(OWNER, self._me)
        return self.mine()

    def next_trial(self) -> "FrozenTrial | None":
        """Make the next trial, None if nothing is left to be tried."""
        with self._turn():
            trials = self.trials()
            proposal = propose(self.plan, trials)
            if proposal is None:
                return None
            self._add(proposal)
            return self.trials()[len(trials)]

    def report(self, trial: "FrozenTrial", curve: Mapping[int, float]) -> bool:
        """Record intermediate values by training step; True if the trial is not worth going on with."""
        handle = self._handle(trial)
        with _unless_ended():
            for step in sorted(curve.keys() - trial.intermediate_values.keys()):
                handle.report(curve[step], step)
        return bool(curve) and handle.should_prune()

    def complete(self, trial: "FrozenTrial", value: float, by_seed: Mapping[int, float]) -> None:
        """Tell the objective, and what it is the mean of."""
        with _unless_ended():
            self._handle(trial).set_user_attr(BY_SEED, {str(seed): one for seed, one in by_seed.items()})
        self._study.tell(trial.number, value, skip_if_finished=True)

    def prune(self, trial: "FrozenTrial") -> None:
        """Tell that the trial was stopped early; Optuna takes its last intermediate value."""
        from optuna.trial import TrialState

        self._study.tell(trial.number, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, trial: "FrozenTrial", reason: str) -> None:
        """Tell that the trial came to no value; its settings may be tried again by a trial of their own."""
        from optuna.trial import TrialState

        with _unless_ended():
            self._handle(trial).set_user_attr(REASON, reason)
        self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _turn(self) -> contextlib.AbstractContextManager[bool]:
        """One driver at a time decides what comes next."""
        return locked(self.plan.folder / "lock", wait=True)

    def _alive(self, driver: str) -> bool:
        """Whether a driver still holds its lock; what a dead one left is removed."""
        path = self._drivers / driver
        if driver == self._me:
            return True
        if not path.exists():
            return False
        with locked(path) as free:
            if free:
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
        """Of each run of the trial the attempts so far: what failed before is no failure of this trial."""
        runs_dir = Path(self.plan.base.machine.runs_dir)
        return {run_id: _attempts_of(RunFolder(runs_dir / run_id)) for run_id in self.plan.runs(proposal.params)}

    def _handle(self, trial: "FrozenTrial") -> "Trial":
        from optuna.trial import Trial

        study_id = self._storage.get_study_id_from_name(self.plan.study_id)
        return Trial(self._study, self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number))


def _attempts_of(folder: RunFolder) -> int:
    try:
        return folder.read_status().attempt if folder.path.exists() else 0
    except RecordError:
        return 0  # the driver looks at the run next, finds the damage and fails the trial with its reason


@contextlib.contextmanager
def _unless_ended() -> Iterator[None]:
    """Where hosts do not see each other's locks, another driver may have been first; it had the same to say."""
    from optuna.exceptions import UpdateFinishedTrialError

    with contextlib.suppress(UpdateFinishedTrialError):
        yield


@dataclass(frozen=True)
class Result:
    """A complete trial: its values, and its success rate at each seed."""

    number: int
    params: Params
    by_seed: dict[int, float]

    @property
    def summary(self) -> Summary:
        """Mean and spread over the seeds."""
        return summarise(self.by_seed.values())


def ranked(trials: "Sequence[FrozenTrial]") -> list[Result]:
    """The complete trials, the highest mean first; of equal ones the earlier."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    values = [{int(seed): value for seed, value in trial.user_attrs[BY_SEED].items()} for trial in complete]
    results = [Result(one.number, one.params, by_seed) for one, by_seed in zip(complete, values, strict=True)]
    return sorted(results, key=lambda result: (-result.summary.mean, result.number))


def default_result(plan: Plan, results: Sequence[Result]) -> Result | None:
    """The configuration as it is without a search, None if it was not tried or did not complete."""
    default = plan.default()
    if default is None:
        return None
    return next((one for one in results if key_of_params(one.params) == key_of_params(default)), None)


def counts(trials: "Sequence[FrozenTrial]") -> str:
    """For example ``7 COMPLETE, 2 PRUNED``."""
    found = Counter(trial.state.name for trial in trials)
    return ", ".join(f"{count} {state}" for state, count in found.items()) or "no trials"
