"""One training step of verl-agent's fit(), less the networks, on its own modules; the test beside runs it.

Real: rollout loop, environment manager with its projection, gathering, DataProto, step returns, adjust_batch, the
balancing, reward manager, invalid-action penalty, compute_advantage. Not real: the policy (scripted) and the game
behind the manager (a corridor of places).
"""

import importlib.util
import random
import sys
import tempfile
import uuid
from pathlib import Path
from types import SimpleNamespace

import agent_system
import numpy as np
import torch
from agent_system.environments.env_manager import AlfWorldEnvironmentManager
from agent_system.multi_turn_rollout import TrajectoryCollector, adjust_batch
from agent_system.reward_manager import EpisodeRewardManager
from gigpo import core_gigpo
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo import ray_trainer

from scpo.integrations.verl_agent.hooks import Hooks, install
from scpo.records import RunFolder
from scpo.schema.scorer import ExactScorer
from scpo.scoring import PairCache
from scpo.scoring.lexical import Exact
from sweeps.compose.configuration import compose_run

TASKS, SIBLINGS, LONGEST, HORIZON = 3, 4, 64, 6
PLACES = ["shelf 1", "desk 1", "bed 1", "drawer 1"]


def real_projection():
    """The file alone: its package imports the game, which needs torchvision and more."""
    path = Path(agent_system.__path__[0]) / "environments" / "env_package" / "alfworld" / "projection.py"
    specification = importlib.util.spec_from_file_location("projection", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.alfworld_projection


class CharacterTokenizer:
    """One token for each character, with the methods that the fork calls."""

    pad_token_id = 0

    def apply_chat_template(self, chat, **_):
        return chat[0]["content"]

    def __call__(self, text, return_tensors=None, add_special_tokens=False):
        ids = torch.tensor([self.encode(text)])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def encode(self, text, add_special_tokens=False):
        return [min(ord(character), 255) for character in text]

    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(number) for number in ids.tolist() if number)

    def batch_decode(self, rows, skip_special_tokens=True):
        return [self.decode(row) for row in rows]


class Corridor:
    """What the manager holds: each slot has a place; "take" at the task's place wins."""

    def reset(self):
        self.turn, self.at, self.over = 0, [None] * (TASKS * SIBLINGS), np.zeros(TASKS * SIBLINGS, dtype=bool)
        return (
            [f"You are in a room. Your task is to: take {slot // SIBLINGS}" for slot in range(len(self.at))],
            None,
            ([{"extra.gamefile": f"pick_and_place-{slot // SIBLINGS}"} for slot in range(len(self.at))]),
        )

    @property
    def get_admissible_commands(self):
        return [["take", *(f"go to {place}" for place in PLACES)]] * len(self.at)

    def step(self, actions):
        texts, rewards, infos = [], [], []
        for slot, action in enumerate(actions):
            won = action == "take" and self.at[slot] == PLACES[slot // SIBLINGS]
            if action.startswith("go to "):
                self.at[slot] = action.removeprefix("go to ")
                texts.append(f"You arrive at {self.at[slot]}.")
            else:
                texts.append("You have won." if won else "Nothing happens.")
            rewards.append(10.0 * (won and not self.over[slot]))
            self.over[slot] |= won
            infos.append({"won": won, "extra.gamefile": f"pick_and_place-{slot // SIBLINGS}"})
        self.turn += 1
        return texts, None, rewards, list(self.over | (self.turn >= HORIZON)), infos


class ScriptedPolicy:
    """Walks at random with a seed; some slots know the way, some responses have no action in them."""

    world_size = 1

    def __init__(self, tokenizer, seed):
        self.tokenizer, self.rng, self.turn = tokenizer, random.Random(seed), 0

    def generate_sequences(self, batch):
        texts = [self.text(slot) for slot in range(len(batch))]
        self.turn += 1
        ids = torch.zeros(len(texts), LONGEST, dtype=torch.int64)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = torch.tensor(self.tokenizer.encode(text))
        prompts, mask = batch.batch["input_ids"], (ids != 0).long()
        return DataProto.from_single_dict(
            {
                "prompts": prompts, "responses": ids, "input_ids": torch.cat([prompts, ids], 1),
                "attention_mask": torch.cat([batch.batch["attention_mask"], mask], 1),
                "position_ids": torch.zeros(len(texts), prompts.shape[1] + LONGEST, dtype=torch.int64),
            }
        )  # fmt: skip

    def text(self, slot):
        goal = PLACES[slot // SIBLINGS]
        action = f"go to {self.rng.choice(PLACES)}"
        if slot % SIBLINGS == 0:  # an expert with a detour: the reference
            action = ["go to drawer 1", f"go to {goal}", "take"][min(self.turn, 2)]
        elif self.turn == 0:
            action = "go to drawer 1"
        return (
            "no action at all"
            if self.rng.random() < 0.15 and slot % SIBLINGS
            else f"<think>x</think><action>{action}</action>"
        )


def fork_config(ranks):
    return OmegaConf.create(
        {
            "data": {"max_prompt_length": 2048, "truncation": "left", "train_batch_size": TASKS},
            "env": {"rollout": {"n": SIBLINGS}, "max_steps": HORIZON, "history_length": 2},
            "algorithm": {"filter_groups": {"enable": False}, "use_kl_in_reward": False},
            "trainer": {"n_gpus_per_node": ranks, "nnodes": 1},
            "actor_rollout_ref": {
                "rollout": {"log_prob_micro_batch_size_per_gpu": 8},
                "ref": {"log_prob_micro_batch_size_per_gpu": 8},
                "actor": {"use_kl_loss": True, "ppo_micro_batch_size_per_gpu": 8},
            },
        }
    )


class Trainer(ray_trainer.RayPPOTrainer):
    """The fork's, with a fit() of the same calls in the same order and without workers."""

    def __init__(self, ranks, mode):
        self.config, self.mode, self.global_steps = fork_config(ranks), mode, 1
        self.actor_rollout_wg = SimpleNamespace(world_size=ranks)

    def fit(self):
        tokenizer = CharacterTokenizer()
        collector = TrajectoryCollector(config=self.config, tokenizer=tokenizer, processor=None)
        manager = AlfWorldEnvironmentManager(Corridor(), real_projection(), self.config)
        first = DataProto.from_single_dict(
            {
                "input_ids": torch.zeros(TASKS, 1, dtype=torch.int64),
                "raw_prompt": np.array([[{"content": ""}]] * TASKS, dtype=object),
                "data_source": np.array(["text"] * TASKS, dtype=object),
            }
        )
        policy = ScriptedPolicy(tokenizer, seed=1)
        batch = collector.multi_turn_loop(gen_batch=first, actor_rollout_wg=policy, envs=manager, is_train=True)
        batch.batch["step_rewards"] = core_gigpo.compute_step_discounted_returns(batch=batch, gamma=0.95)
        batch = adjust_batch(self.config, batch)
        batch.batch["response_mask"] = ray_trainer.compute_response_mask(batch)
        self._balance_batch(batch, metrics={})
        ray_trainer.agg_loss(
            loss_mat=torch.rand(batch.batch["response_mask"].shape), loss_mask=batch.batch["response_mask"],
            loss_agg_mode="token-mean",
        )  # fmt: skip
        reward = EpisodeRewardManager(tokenizer=tokenizer, num_examine=0, normalize_by_length=False)
        batch.batch["token_level_scores"] = reward(batch)
        batch, _ = ray_trainer.apply_invalid_action_penalty(batch, invalid_action_penalty_coef=0.1)
        batch.batch["token_level_rewards"] = batch.batch["token_level_scores"]
        self.before = batch.batch["step_rewards"].clone()
        self.batch = ray_trainer.compute_advantage(
            batch, adv_estimator="gigpo", gamma=0.95, step_advantage_w=1.0, gigpo_mode=self.mode
        )


def step(ranks, mode):
    """The same step every time: the fork draws copies and ids from global generators."""
    np.random.seed(0)
    names = random.Random(0)
    uuid.uuid4 = lambda: uuid.UUID(int=names.getrandbits(128))
    trainer = Trainer(ranks, mode)
    trainer.fit()
    return trainer


def hook(*words):
    config = compose_run(["scale=paper", "trainer=verl_agent", *words])
    scorer = PairCache(Exact(ExactScorer(kind="exact", name="exact"))) if config.method.shaper else None
    install(Hooks(config, RunFolder(Path(tempfile.mkdtemp())), scorer))


def check(ranks, mode):
    plain = step(ranks, mode)
    advantage = plain.batch.batch["advantages"]
    originals = {name: getattr(ray_trainer, name) for name in ("compute_advantage", "agg_loss")}
    collector = {name: getattr(TrajectoryCollector, name) for name in ("multi_turn_loop", "vanilla_multi_turn_loop")}
    hook("method=gigpo")
    assert torch.equal(step(ranks, mode).batch.batch["advantages"], advantage), "shaper off: bits changed"
    for owner, names in ((ray_trainer, originals), (TrajectoryCollector, collector)):
        for name, value in names.items():
            setattr(owner, name, value)
    hook("method=scpo")
    shaped = step(ranks, mode)
    columns = shaped.batch.non_tensor_batch
    bonus = (shaped.batch.batch["step_rewards"] - shaped.before).numpy()
    failed = np.array([float(value) <= 0 for value in columns["episode_rewards"]])
    assert (bonus > 0).any(), "nothing was credited"
    assert failed[bonus != 0].all(), "a step of a success was credited"
    twins = {}
    for slot, number, shift in zip(columns["scpo_slot"], columns["scpo_step"], bonus, strict=True):
        assert abs(twins.setdefault((slot, number), shift) - shift) < 1e-5, "a copy differs from its twin"
    moved = (shaped.batch.batch["advantages"] != advantage).any(1).numpy()
    keys = list(zip(columns["uid"], columns["anchor_obs"], strict=True))
    touched = {keys[row] for row in np.flatnonzero(bonus)}
    peers = np.array([key in touched for key in keys])
    assert moved.any(), "the credit reached no advantage"
    assert not (moved & ~peers).any(), "an advantage moved outside the anchor groups that hold credit"
    sys.stdout.write(
        f"R={ranks} {mode}: {len(moved)} rows, {int((bonus != 0).sum())} credited, {int(moved.sum())} rows moved, "
        f"{int(peers.sum())} in their anchor groups\n"
    )


if __name__ == "__main__":
    check(int(sys.argv[1]), sys.argv[2])
