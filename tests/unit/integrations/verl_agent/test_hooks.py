"""SCPO hooked into verl-agent: on a stand-in with the fork's names and call order, and on the fork itself.

The fork's own modules are used where VERL_AGENT names a checkout of commit 796ed31 and its packages can be imported.
"""

import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest

from scpo.errors import ScorerUnavailable, StepBatchError
from scpo.integrations.verl_agent.fork_rows import step_batch
from scpo.integrations.verl_agent.hooks import Hooks, install
from scpo.integrations.verl_agent.recording import ACTION, ANSWER, SLOT, STATE, STEP, WON, Recorder
from scpo.records import JsonLines, RunFolder
from scpo.scoring import PairCache
from sweeps.compose.configuration import compose_run
from tests.support.step_batches import EqualityScorer

torch = pytest.importorskip("torch", reason="needs torch: make setup")

ROADS = {0: "a b c", 1: "a c x", 2: "b", 3: "a b x"}  # what each of four environments does; "c" and, alone, "b" win
WINS = {0, 2}
N, L = 4, 3


class Environments:
    """The fork's manager: projects, steps and answers with raw observations."""

    def __init__(self):
        self.projection_f = lambda texts: ([text.strip("<>") for text in texts], [text != "<x>" for text in texts])
        self.marker = "mine"

    @property
    def envs(self):
        commands = ["go to desk 1", "look", f"take mug {self.turn} from desk 1"]
        return SimpleNamespace(get_admissible_commands=[commands] * N)

    def reset(self, kwargs=None):
        self.turn = 0
        return {"text": ["?"] * N, "anchor": ["start"] * N}, [{}] * N

    def step(self, text_actions):
        actions, valids = self.projection_f(text_actions)
        self.turn += 1
        over = np.array([self.turn >= len(road.split()) for road in ROADS.values()])
        won = over & np.isin(np.arange(N), list(WINS))
        infos = [{"is_action_valid": valid, "won": bool(done)} for valid, done in zip(valids, won, strict=True)]
        answers = [f"now {action}" for action in actions]
        return {"text": answers, "anchor": answers}, np.float32(10) * won, over, infos


class TrajectoryCollector:
    """The fork's two methods, of the same signatures; rows as dicts, one list for each environment."""

    def multi_turn_loop(self, gen_batch, actor_rollout_wg, envs, is_train=True):
        rows, _ = self.vanilla_multi_turn_loop(gen_batch=gen_batch, actor_rollout_wg=actor_rollout_wg, envs=envs)
        return [row for episode in rows for row in episode if row["active_masks"]]

    def vanilla_multi_turn_loop(self, gen_batch, actor_rollout_wg, envs):
        observations, _ = envs.reset(kwargs=None)
        done, rows, total = np.zeros(N, dtype=bool), [[] for _ in range(N)], np.zeros(N, dtype=np.float32)
        for turn in range(3):
            actions = [f"<{(road.split() + ['x'] * 3)[turn]}>" for road in ROADS.values()]
            anchors, active = observations["anchor"], ~done
            observations, rewards, dones, infos = envs.step(actions)
            total[active] += rewards[active]
            for slot in range(N):
                rows[slot].append(
                    {
                        "uid": f"uid {slot // 2}", "traj_uid": f"trajectory {slot}", "anchor_obs": anchors[slot],
                        "rewards": rewards[slot], "active_masks": active[slot],
                        "is_action_valid": infos[slot]["is_action_valid"],
                    }
                )  # fmt: skip
            done |= dones
        for slot in range(N):
            for row in rows[slot]:
                row["episode_rewards"] = total[slot]
        return rows, total


def agg_loss(loss_mat, loss_mask, loss_agg_mode):
    return (loss_mat * loss_mask).sum() / loss_mask.sum()


def compute_advantage(data, adv_estimator, gamma=1.0, **options):
    """Not the fork's formula: something that shows every input bit."""
    data.batch["advantages"] = (3 * data.batch["step_rewards"])[:, None] * data.batch["response_mask"]
    return data


class RayPPOTrainer:
    """The order of calls of the fork's fit, with a step's worth of data."""

    def __init__(self, copies=(1, 4), order=None):
        self.global_steps, self.copies, self.order = 0, list(copies), order

    def fit(self):
        trainer_module = sys.modules["verl.trainer.ppo.ray_trainer"]
        self.global_steps += 1
        rows = TrajectoryCollector().multi_turn_loop(gen_batch=None, actor_rollout_wg=None, envs=Environments())
        rows += [rows[row] for row in self.copies]
        order = np.arange(len(rows)) if self.order is None else self.order
        columns = {name: np.array([rows[row][name] for row in order], dtype=object) for name in rows[0]}
        mask = torch.ones(len(rows), L)
        self.data = SimpleNamespace(non_tensor_batch=columns, batch={"response_mask": mask})
        self.data.batch["step_rewards"] = torch.linspace(-1, 1, len(rows))
        self.data.batch["attention_mask"] = torch.arange(9) < torch.tensor([[4 + step] for step in columns[STEP]])
        self.before = self.data.batch["step_rewards"].clone()
        entropy = torch.arange(len(rows) * L).reshape(len(rows), L) / 10
        trainer_module.agg_loss(loss_mat=entropy, loss_mask=mask, loss_agg_mode="token-mean")
        self.data = trainer_module.compute_advantage(self.data, adv_estimator="gigpo", gamma=0.95)


def run(*words):
    return compose_run(["scale=paper", "trainer=verl_agent", *words])


@pytest.fixture
def hooked(monkeypatch, tmp_path):
    """``hooked(words)``: a trainer of the stand-in, trained for a step with the hooks of that method."""
    trainer_module = types.ModuleType("verl.trainer.ppo.ray_trainer")
    trainer_module.compute_advantage, trainer_module.agg_loss = compute_advantage, agg_loss
    rollout = types.ModuleType("agent_system.multi_turn_rollout")

    class Collector(TrajectoryCollector):
        pass

    class Trainer(RayPPOTrainer):
        pass

    rollout.TrajectoryCollector, trainer_module.RayPPOTrainer = Collector, Trainer
    monkeypatch.setattr(sys.modules[__name__], "TrajectoryCollector", Collector)
    ppo = types.ModuleType("verl.trainer.ppo")
    ppo.ray_trainer = trainer_module
    for module in (ppo, trainer_module, rollout, types.ModuleType("verl"), types.ModuleType("verl.trainer")):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "agent_system", types.ModuleType("agent_system"))

    def go(*words, **options):
        config = run(*words)
        trainer = Trainer(**options)
        trainer.scorer = EqualityScorer()
        install(Hooks(config, RunFolder(tmp_path), PairCache(trainer.scorer) if config.method.shaper else None))
        trainer.fit()
        return trainer

    return go


def test_every_row_knows_its_step_its_action_and_its_answer_the_last_one_included(hooked):
    columns = hooked("method=gigpo", copies=()).data.non_tensor_batch
    texts = list(zip(columns[SLOT], columns[STEP], columns[ACTION], columns[ANSWER], columns[WON], strict=True))
    assert texts == [
        (0, 0, "a", "now a", False), (0, 1, "b", "now b", False), (0, 2, "c", "now c", True),
        (1, 0, "a", "now a", False), (1, 1, "c", "now c", False), (1, 2, "x", "now x", False),
        (2, 0, "b", "now b", True),
        (3, 0, "a", "now a", False), (3, 1, "b", "now b", False), (3, 2, "x", "now x", False),
    ]  # fmt: skip


def test_states_are_read_off_what_the_agents_saw_where_the_method_compares_them(hooked):
    columns = hooked("method=g2po", "method.estimator.state_key=state", copies=()).data.non_tensor_batch
    batch = step_batch(columns, success_threshold=0.0)
    start = "start | at:  | holding:  | moved:  | go to desk 1, look, take mug 0 from desk 1"
    assert batch.state_N[[0, 3, 6, 7]].tolist() == [start] * 4
    assert (batch.next_state_N[[0, 1]] == batch.state_N[[1, 2]]).all()
    assert batch.next_state_N[2] == "now c | at:  | holding:  | moved:  | go to desk 1, look, take mug 3 from desk 1"


def test_an_identity_of_states_takes_the_place_of_the_forks_own_gigpo(hooked):
    trainer = hooked("method=gigpo", "method.estimator.states=entities")
    assert torch.equal(trainer.data.batch["step_rewards"], trainer.before)
    assert torch.equal(trainer.data.batch["returns"], trainer.data.batch["advantages"])  # the fake fork sets no returns
    assert trainer.data.batch["advantages"].abs().sum() > 0


def test_no_states_are_kept_where_nothing_compares_them(hooked):
    columns = hooked("method=g2po", copies=()).data.non_tensor_batch
    assert STATE not in columns
    assert step_batch(columns, success_threshold=0.0).state_N is None


def test_rounds_of_dynamic_sampling_number_their_slots_on_and_the_next_step_begins_anew():
    recorder = Recorder()
    once = recorder.vanilla_multi_turn_loop(TrajectoryCollector.vanilla_multi_turn_loop)

    def two_rounds(collector, *, is_train, **arguments):
        return [episode for _ in range(2) for episode in once(collector, **arguments)[0]]

    for _ in range(2):
        episodes = recorder.multi_turn_loop(two_rounds)(TrajectoryCollector(), None, None, Environments())
        assert [{row[SLOT] for row in episode} for episode in episodes] == [{slot} for slot in range(2 * N)]


def test_without_a_shaper_every_advantage_keeps_its_bits(hooked):
    trainer = hooked("method=gigpo")
    assert torch.equal(trainer.data.batch["step_rewards"], trainer.before)
    assert torch.equal(trainer.data.batch["advantages"], (3 * trainer.before)[:, None] * torch.ones(12, L))


def test_with_a_shaper_only_steps_of_failed_siblings_move_and_copies_move_with_their_twins(hooked):
    trainer = hooked("method=scpo", copies=(3, 8, 0))
    moved = (trainer.data.batch["step_rewards"] - trainer.before).numpy()
    columns = trainer.data.non_tensor_batch
    places = np.flatnonzero(moved)
    assert places.tolist() == [3, 8, 10, 11]
    assert [(columns[SLOT][place], columns[STEP][place]) for place in places] == [(1, 0), (3, 1)] * 2
    assert moved[places] == pytest.approx([0.5] * 4)


def test_a_step_asks_for_all_its_pairs_again(hooked):
    trainer = hooked("method=scpo")
    first = trainer.scorer.asked.copy()
    trainer.fit()
    assert trainer.scorer.asked == [*first, *first[:-1]]  # the last call is for the first step's sample


def test_matching_reads_the_forks_order_of_rows(hooked):
    reversed_order = np.arange(12)[::-1]
    trainer = hooked("method=scpo", "method.shaper.order=balanced", order=reversed_order)
    batch = step_batch(trainer.data.non_tensor_batch, success_threshold=0.0)
    assert batch.position_N.tolist() == list(range(12))
    assert batch.is_copy_N.sum() == 2
    assert sorted(batch.trajectory_N[batch.original_N].tolist()) == [0] * 3 + [1] * 3 + [2] + [3] * 3


def test_by_length_the_longest_row_comes_first_and_ties_are_in_time_order(hooked):
    columns = hooked("method=gigpo", copies=(), order=[9, 0, 1, 2, 3, 4, 5, 6, 7, 8]).data.non_tensor_batch
    batch = step_batch(columns, success_threshold=0.0, length_N=np.array([7, 1, 5, 9, 5, 5, 1, 1, 1, 1]))
    assert batch.position_N.tolist() == [1, 5, 2, 0, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize(("order", "credited"), [("balanced", [(1, 0), (1, 1), (3, 1)]), ("length", [(1, 1), (3, 1)])])
def test_the_order_by_length_reads_the_rows_tokens(hooked, order, credited):
    """Rows grow with time here: in the fork's order "a" comes before "c", by length "c" claims the reference's end."""
    trainer = hooked("method=scpo", "method.shaper.matcher=forward", f"method.shaper.order={order}", copies=())
    columns, moved = trainer.data.non_tensor_batch, trainer.data.batch["step_rewards"] - trainer.before
    assert [(columns[SLOT][row], columns[STEP][row]) for row in np.flatnonzero(moved.numpy())] == credited


@pytest.mark.parametrize("method", ["hgpo", "g2po", "empg"])
def test_estimators_that_the_fork_has_not_take_its_place(hooked, method):
    trainer = hooked(f"method={method}")
    advantage_NL = trainer.data.batch["advantages"]
    assert torch.equal(trainer.data.batch["step_rewards"], trainer.before)
    assert advantage_NL.shape == (12, L)
    assert torch.equal(advantage_NL, advantage_NL[:, :1].expand(-1, L))
    assert torch.equal(trainer.data.batch["returns"], advantage_NL)
    assert advantage_NL.abs().sum() > 0


def test_credit_is_recorded_by_the_forks_own_step(hooked, tmp_path):
    hooked("method=scpo")
    (line,) = JsonLines(RunFolder(tmp_path).metrics).records()
    assert line["step"] == 1
    assert (RunFolder(tmp_path).diagnostics / "groups_step_00001.json.gz").exists()
    assert line["credit/active_groups"] == 1.0
    assert line["credit/steps"] == 1.0


def test_lines_of_an_attempt_that_was_not_kept_are_written_again(hooked, tmp_path):
    metrics = JsonLines(RunFolder(tmp_path).metrics)
    for step in (0, 1, 2):
        metrics.append({"step": step, "of": "the attempt before"})
    hooked("method=scpo")
    assert [("of" in line, line["step"]) for line in metrics.records()] == [(True, 0), (False, 1)]


def test_a_scorer_that_gives_out_on_a_sample_costs_the_sample_and_not_the_step(hooked, tmp_path, monkeypatch):
    def gone(task, scorer):
        raise ScorerUnavailable("the process of scorer exact failed")

    monkeypatch.setattr("scpo.diagnostics.sampled_groups.dense_similarity", gone)
    trainer = hooked("method=scpo", "machine.scorer.on_scorer_failure=skip_shaping")
    assert not torch.equal(trainer.data.batch["step_rewards"], trainer.before)
    (line,) = JsonLines(RunFolder(tmp_path).metrics).records()
    assert line["credit/steps"] == 1.0


def test_a_batch_without_the_recorded_columns_says_what_to_install():
    columns = dict.fromkeys(("uid", "anchor_obs", "rewards", "episode_rewards", "is_action_valid"), np.array([]))
    with pytest.raises(StepBatchError, match=r"lacks scpo_slot.*install the hooks in the process of the task runner"):
        step_batch(columns, success_threshold=0.0)
