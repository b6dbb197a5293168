"""Which trial comes next: a function of the search and the trials so far, whatever process asks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from scpo.records.identity import digest
from sweeps.search.plan import Plan
from sweeps.search.space import Params, distributions, grid, key_of_params, tidy

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

DRAWS = 50  # of each sampler for one new setting, before the space counts as exhausted


@dataclass(frozen=True)
class Proposal:
    """A trial to be made. ``retry_of``: the number of the failed trial whose values it takes."""

    params: Params
    retry_of: int | None = None


def propose(plan: Plan, trials: "Sequence[FrozenTrial]") -> Proposal | None:
    """The next trial, None if nothing is left to be tried.

    First what failed and has a retry left, then the configuration as it is without a search, then what the sampler
    draws. It draws with a generator of this very trial, (seed, number), so that a driver that was killed, or a study
    that lost its last records, comes to the same trials, whose runs are on disk already.
    """
    again = _retry(trials, plan.search.retries)
    if again is not None:
        return again
    tried = {key_of_params(trial.params) for trial in trials}
    if len(tried) >= plan.trials:
        return None
    candidates = _candidates(plan, trials)
    fresh = (params for params in candidates if key_of_params(params) not in tried)
    params = next(fresh, None)
    return None if params is None else Proposal(params)


def _retry(trials: "Sequence[FrozenTrial]", retries: int) -> Proposal | None:
    from optuna.trial import TrialState

    same: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        same.setdefault(key_of_params(trial.params), []).append(trial)
    for tries in same.values():
        if all(one.state is TrialState.FAIL for one in tries) and len(tries) <= retries:
            return Proposal(tries[-1].params, retry_of=tries[-1].number)
    return None


def _candidates(plan: Plan, trials: "Sequence[FrozenTrial]") -> Iterator[Params]:
    space, sampler = plan.search.space, plan.search.sampler
    default = plan.default()
    if default is not None and (sampler.name == "tpe" or default in grid(space, 0)):
        yield default
    if sampler.name == "grid":
        yield from grid(space, sampler.seed)
        return
    yield from _draws(plan, trials)


def _draws(plan: Plan, trials: "Sequence[FrozenTrial]") -> Iterator[Params]:
    """Draws on a copy of the study in memory: the real one gets a trial once it is known whole, in one write.

    The copy holds the trials under way, so that TPE (constant liar) stays away from them.
    """
    import optuna

    space, config = plan.search.space, plan.search.sampler
    seed = int(digest([config.seed, len(trials)])[:8], 16)
    tpe = optuna.samplers.TPESampler(seed=seed, n_startup_trials=config.startup_trials, constant_liar=True)
    for sampler in (tpe, optuna.samplers.RandomSampler(seed)):
        copy = optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(trials)
        for _ in range(DRAWS):
            yield tidy(space, copy.ask(distributions(space)).params)


def first(plan: Plan, count: int) -> list[Params]:
    """The first settings of a search that has not begun: what comes later depends on results."""
    found: dict[str, Params] = {}
    for params in islice(_candidates(plan, []), DRAWS):
        found.setdefault(key_of_params(params), params)
    return list(found.values())[:count]
