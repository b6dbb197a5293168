import optuna
import pytest
from optuna.trial import TrialState

from sweeps.search.plan import Proposal, first, propose
from sweeps.search.space import distributions, key_of_params
from tests.support.searches import plan_in


def trial(plan, params, state=TrialState.COMPLETE, number=0, value=0.5):
    made = optuna.create_trial(
        state=state,
        params=params,
        distributions=distributions(plan.search.space),
        value=value if state is TrialState.COMPLETE else None,
    )
    made.number = number
    return made


def proposed(plan, count):
    """The first ``count`` proposals, each complete before the next."""
    trials = []
    for number in range(count):
        proposal = propose(plan, trials)
        if proposal is None:
            break
        trials.append(trial(plan, proposal.params, number=number, value=proposal.params["theta"]))
    return [one.params for one in trials]


def test_a_search_begins_with_the_configuration_as_it_is(tmp_path):
    assert propose(plan_in(tmp_path, name="scpo"), []).params == plan_in(tmp_path, name="scpo").default()


def test_a_grid_is_gone_through_once(tmp_path):
    points = proposed(plan_in(tmp_path), 40)
    assert len({key_of_params(point) for point in points}) == len(points) == 16
    assert points[0] == {"theta": 0.6, "soft_base": 0.4}


def test_the_budget_counts_settings(tmp_path):
    assert len(proposed(plan_in(tmp_path, "search.trials=5"), 40)) == 5


def test_tpe_never_asks_for_a_setting_twice_and_stops_where_the_space_ends(tmp_path):
    points = proposed(plan_in(tmp_path, "search.sampler.name=tpe", "search.trials=100"), 100)
    assert len({key_of_params(point) for point in points}) == len(points) == 16


def test_a_proposal_depends_on_nothing_but_the_trials(tmp_path):
    plan = plan_in(tmp_path, name="scpo")
    trials = [trial(plan, plan.default())]
    assert propose(plan, trials) == propose(plan, trials)
    assert propose(plan, trials).params != propose(plan, [*trials, trial(plan, propose(plan, trials).params)]).params


def test_a_failed_setting_is_tried_again_as_often_as_allowed(tmp_path):
    plan = plan_in(tmp_path, "search.retries=2", "search.trials=1")
    start = plan.default()
    failed = [trial(plan, start, TrialState.FAIL, number) for number in range(3)]
    assert propose(plan, failed[:1]) == Proposal(start, retry_of=0)
    assert propose(plan, failed[:2]) == Proposal(start, retry_of=1)
    assert propose(plan, failed) is None


@pytest.mark.parametrize("state", [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING])
def test_a_failed_setting_that_another_trial_has_in_hand_is_not(tmp_path, state):
    plan = plan_in(tmp_path, "search.trials=1")
    assert propose(plan, [trial(plan, plan.default(), TrialState.FAIL), trial(plan, plan.default(), state)]) is None


@pytest.mark.parametrize(("name", "overrides"), [("scpo", ()), (None, ()), (None, ("search.sampler.name=tpe",))])
def test_the_preview_is_what_will_be_proposed_first(tmp_path, name, overrides):
    plan = plan_in(tmp_path, *overrides, **({"name": name} if name else {}))
    assert first(plan, 3) == proposed(plan, 3)


def test_the_preview_ends_where_results_begin_to_count(tmp_path):
    plan = plan_in(tmp_path, "search.sampler.startup_trials=2", name="scpo")
    assert first(plan, 3) == proposed(plan, 3)[:2]
