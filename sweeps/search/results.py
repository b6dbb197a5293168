"""What the trials of a search came to: one result a setting, ranked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scpo.intervals import Summary, summarise
from sweeps.search.plan import Plan
from sweeps.search.space import Params, key_of_params
from sweeps.search.study import BY_SEED

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


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
