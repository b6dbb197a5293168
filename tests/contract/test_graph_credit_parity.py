"""GraphGPO, RewardFlow and G2PO against their authors' own code; `pytest -s` prints rows and distances.

Against recorded answers always, and against the code itself where GRAPHGPO, REWARDFLOW and G2PO name checkouts
(tests/support/graph_credit.py says which). In float64 both must agree to 1e-5 in every row whose groups spread by at
least 1e-5; their own float32 is bounded loosely, as in test_verl_agent_parity.py.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from scpo.advantages.graphgpo import graph_rewards
from scpo.advantages.outcomes import row_scores
from scpo.advantages.registry import ESTIMATORS
from scpo.advantages.rewardflow import flow_rewards
from scpo.advantages.state_graph import state_graph
from tests.support.graph_credit import authors_code, household, shopping, walks
from tests.support.parity import BOUND, MODES, SMALLEST_STD, Distance, spread, tokens
from tests.support.step_batches import settings_of

STACKS = ["recorded-float64", "recorded-float32", "code-float64", "code-float32"]


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    """The code of the test's name: ``test_graphgpo...`` compares with GRAPHGPO."""
    source, precision = request.param.split("-")
    name = request.node.originalname.removeprefix("test_").split("_")[0].upper()
    with authors_code(name, source, precision, monkeypatch) as stack:
        yield stack


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("normalize_distance", [False, True])
def test_graphgpo(stack, mode, normalize_distance):
    name = f"graphgpo {mode}{' normalised distance' * normalize_distance}"
    distance, rewards = Distance(name, stack), Distance(f"{name}: rewards", stack)
    settings = settings_of(
        "graphgpo", std_floor=0.0, normalisation=mode, state_key="anchor", normalize_distance=normalize_distance
    )
    for case in stack.cases(40, "walks", walks):
        batch, score_N = case.batch, row_scores(case.batch, settings)

        def worth(theirs, batch=batch):
            last_N = batch.timeline.neighbours(1) < 0
            columns = {
                "uid": batch.group_N, "traj_uid": batch.trajectory_N, "anchor_obs": batch.anchor_N,
                "next_obs": np.where(last_N & batch.success_N, "success", batch.next_observation_N),
                "text_actions": batch.action_N, "episode_rewards": batch.episode_return_N, "rewards": batch.reward_N,
                "active_masks": np.ones(len(batch)), "is_action_valid": batch.valid_N,
            }  # fmt: skip
            data = SimpleNamespace(non_tensor_batch=columns, batch={"input_ids": theirs.torch.zeros(1)})
            graphs = theirs.core.ComplexGraph.from_data(data)
            theirs.core.ComplexGraph.Calculate_all_shortest_path(graphs)
            return theirs.core.compute_graph_path_returns(data, graphs, settings.decay, normalize_distance)

        def advantage(theirs, case=case, batch=batch, score_N=score_N, worth=worth):
            scores_NL, mask_NL = tokens(theirs, score_N, stack.precision)
            step_N = theirs.torch.tensor(np.asarray(worth(theirs), stack.precision) + case.bonus_N)
            return theirs.core.compute_graphgpo_outcome_advantage(
                scores_NL, step_N, mask_NL, batch.anchor_N, batch.group_N, batch.trajectory_N, mode=mode
            )[0][:, -1]

        graph = state_graph(batch, "anchor")
        theirs_N = stack.answer(f"{name} rewards/{case.number}", worth)
        rewards.add(graph_rewards(graph, settings), theirs_N)
        ours_N = ESTIMATORS["graphgpo"].function(batch, case.return_N, case.bonus_N, settings)
        spreads = spread(score_N, batch.group_N), spread(theirs_N + case.bonus_N, graph.source_N)
        advantage_N = stack.answer(f"{name}/{case.number}", advantage)
        distance.add(ours_N, advantage_N, np.minimum(*spreads) >= SMALLEST_STD)
    assert rewards.report() <= BOUND[stack.precision]
    assert distance.report() <= BOUND[stack.precision]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [household, shopping], ids=["household", "shopping"])
def test_rewardflow(stack, mode, make):
    """Episodes that are cut off, with ALFWorld's cleaning; episodes that end by themselves, with WebShop's."""
    kind = make.__name__
    name = f"rewardflow {kind} {mode}"
    distance, rewards = Distance(name, stack), Distance(f"{name}: rewards", stack)
    home = kind == "household"
    settings = settings_of(
        "rewardflow", std_floor=0.0, normalisation=mode, state_key="anchor", bridge=home,
        failed_end="reward" if home else "value",
    )  # fmt: skip
    for case in stack.cases(8, kind, make):
        batch, score_N = case.batch, row_scores(case.batch, settings)

        def worth(theirs, batch=batch):
            return flow_by_their_code(theirs, batch, getattr(theirs, kind), home=home)

        theirs_N = stack.answer(f"{name} rewards/{case.number}", worth)

        def advantage(theirs, case=case, batch=batch, score_N=score_N, worth_N=theirs_N):
            scores_NL, mask_NL = tokens(theirs, score_N, stack.precision)
            step_N = theirs.torch.tensor(worth_N.astype(stack.precision) + case.bonus_N)
            return theirs.core.compute_rewardflow_outcome_advantage(
                scores_NL, step_N, mask_NL, batch.anchor_N, batch.group_N, batch.trajectory_N, mode=mode
            )[0][:, -1]

        graph = state_graph(batch, "anchor")
        rewards.add(flow_rewards(batch, graph, settings), theirs_N)
        ours_N = ESTIMATORS["rewardflow"].function(batch, case.return_N, case.bonus_N, settings)
        spreads = spread(score_N, batch.group_N), spread(theirs_N + case.bonus_N, graph.source_N)
        advantage_N = stack.answer(f"{name}/{case.number}", advantage)
        distance.add(ours_N, advantage_N, np.minimum(*spreads) >= SMALLEST_STD)
    assert rewards.report() <= BOUND[stack.precision]
    assert distance.report() <= BOUND[stack.precision]


def flow_by_their_code(theirs, batch, clean_trajectory, *, home):
    """Their propagation over rows as their rollout keeps them: all of one length, those after the end not active."""
    line = batch.timeline
    turns = int(line.length_K.max()) + (not home)
    rollouts = [_turns(batch, line.rows_of(k), turns, home=home) for k in range(len(line.id_K))]

    def states(total_batch_list, _tokenizer):
        known = [_states(steps, home=home) for steps in total_batch_list]
        return known, [[step["action"] for step in steps] for steps in total_batch_list]

    environments = SimpleNamespace(
        state_preprocess=states, clean_trajectory=lambda *given: clean_trajectory(None, *given)
    )
    config = SimpleNamespace(algorithm=SimpleNamespace(gamma=0.9))
    theirs.core.apply_rewardflow_propagation(rollouts, config, None, environments)
    worth_N = np.zeros(len(batch))
    for k, steps in enumerate(rollouts):
        rows = line.rows_of(k)
        worth_N[rows] = [step["step_rewards"] for step in steps[: len(rows)]]
    return worth_N


def _turns(batch, rows, turns, *, home):
    end = "You Won!" if home else f"done {batch.trajectory_N[rows[0]]}"
    group = batch.group_N[rows[0]]
    steps = [
        {"uid": group, "anchor_obs": batch.anchor_N[row], "action": batch.action_N[row], "active_masks": True,
         "rewards": float(batch.reward_N[row])}
        for row in rows
    ]  # fmt: skip
    after = {"uid": group, "anchor_obs": end, "action": "", "active_masks": False, "rewards": 0.0}
    return steps + [dict(after) for _ in range(turns - len(rows))]


def _states(steps, *, home):
    """Their list of states with the reward that each was arrived at with, the end included where there is a turn."""
    count = sum(step["active_masks"] for step in steps)
    return [
        {"state": step["anchor_obs"], "reward": steps[t - 1]["rewards"] if t else 0}
        for t, step in enumerate(steps[: count + 1])
    ]


@pytest.mark.parametrize("mode", MODES)
def test_g2po(stack, mode):
    name = f"g2po {mode}"
    distance = Distance(name, stack)
    settings = settings_of("g2po", std_floor=0.0, normalisation=mode)
    for case in stack.cases(40, "walks", walks):
        batch, score_N = case.batch, row_scores(case.batch, settings)
        penalty_N = np.float32(-0.1) * ~batch.valid_N

        def advantage(theirs, batch=batch, score_N=score_N):
            columns = {
                "episode_rewards": batch.episode_return_N, "anchor_obs": batch.anchor_N,
                "traj_uid": batch.trajectory_N, "uid": batch.group_N,
            }  # fmt: skip
            data = SimpleNamespace(non_tensor_batch=columns, batch={"responses": theirs.torch.zeros(len(batch), 3)})
            value_N, node_N, next_N = theirs.core.compute_group_aggregation_values(data)
            scores_NL, mask_NL = tokens(theirs, score_N, stack.precision)
            return theirs.core.compute_g2po_outcome_advantage(
                scores_NL, theirs.torch.tensor(value_N), mask_NL, batch.group_N, batch.trajectory_N, node_N, next_N,
                batch.valid_N.astype(float), mode=mode,
            )[0][:, -1]  # fmt: skip

        ours_N = ESTIMATORS["g2po"].function(batch, case.return_N, penalty_N, settings)
        theirs_N = stack.answer(f"{name}/{case.number}", advantage)
        distance.add(ours_N, theirs_N, spread(score_N, batch.group_N) >= SMALLEST_STD)
    assert distance.report() <= BOUND[stack.precision]
