"""A training step in one process: our agent loop, verl's own postprocessing, padding and balancing, our advantages.

No Ray: the queue is a dictionary, the rollout engine a script, the ranks a number.
"""

import asyncio
import types
from types import SimpleNamespace

import numpy as np
import pytest

from scpo.credit.assign import assign
from scpo.errors import RolloutError, ScorerUnavailable
from scpo.policies.warm_start import train_tokenizer
from scpo.records import JsonLines, run_config
from scpo.records.tracker import Tracker
from scpo.rollout import step_batch
from scpo.schema.scorer import ExactScorer
from scpo.scoring.lexical import Exact
from scpo.shaping.order import UNSHAPED_RANKS, positions
from scpo.states.effects import ActMemory
from scpo.trainers.verl.checkpoints import Sealing, mark_complete, newest, verl_folder
from scpo.trainers.verl.launch import PLAIN_TEMPLATE
from scpo.trainers.verl.verl_rows import read_rows
from scpo.trainers.verl.workplace import open_workplace
from sweeps.compose.configuration import compose_run
from tests.unit.test_rollout import TASKS, Countdowns

pytest.importorskip("ray", reason="needs verl: make test-verl")
torch = pytest.importorskip("torch", reason="needs torch: make setup")

SCRIPTS = ["go stop", "go go go go", "oops stop", "go oops go go"]  # of the siblings; "stop" wins, four steps are all
SIBLINGS, MINI_BATCH = len(SCRIPTS), 16


class Queue:
    """What verl's trainer calls of the transfer queue, on a dictionary."""

    def __init__(self):
        self.fields, self.tags = {}, {}

    def put(self, keys, partition_id, fields=None, tags=None):
        from transfer_queue import KVBatchMeta

        for place, key in enumerate(keys):
            if fields is not None:
                self.fields.setdefault(key, {}).update({name: fields[name][place] for name in fields.keys()})  # noqa: SIM118
            if tags is not None:
                self.tags.setdefault(key, {}).update(tags[place])
        return KVBatchMeta(partition_id=partition_id, keys=list(keys), tags=[self.tags.get(key, {}) for key in keys])

    async def put_later(self, keys, fields, tags, partition_id):
        self.put(keys, partition_id, fields, tags)

    def get(self, keys, partition_id, select_fields=None):
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        names = [name for name in (select_fields or self.fields[keys[0]]) if name in self.fields[keys[0]]]
        plain = lambda value: value if isinstance(value, torch.Tensor) else getattr(value, "data", value)  # noqa: E731
        return list_of_dict_to_tensordict([{name: plain(self.fields[key][name]) for name in names} for key in keys])


class Engine:
    """Answers each episode with its script, word by word."""

    def __init__(self, tokenizer):
        self.tokenizer, self.turns, self.empty, self.dead = tokenizer, {}, False, False
        self.scripts = SCRIPTS

    async def generate(self, request_id, prompt_ids, sampling_params, **_):
        from ray.exceptions import RayTaskError
        from verl.workers.rollout.replica import TokenOutput

        if self.dead:
            raise RayTaskError("generate", "its stack", RuntimeError("no core")).as_instanceof_cause()
        turn, words = self.turns.setdefault(request_id, [0, self.scripts[len(self.turns) % len(self.scripts)].split()])
        self.turns[request_id][0] += 1
        ids = [] if self.empty else self.tokenizer(words[turn % len(words)], add_special_tokens=False)["input_ids"]
        versions = {"min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), extra_fields=versions)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(words)``: everything that a step needs, with countdowns for games."""
    import transfer_queue as tq
    from omegaconf import OmegaConf

    queue = Queue()
    monkeypatch.setattr(tq, "kv_batch_put", queue.put)
    monkeypatch.setattr(tq, "async_kv_batch_put", queue.put_later)
    monkeypatch.setattr(tq, "kv_batch_get", queue.get)
    monkeypatch.setattr(tq, "kv_clear", lambda keys, partition_id: None)

    def make(*words, broken=()):
        config = compose_run(
            ["trainer=verl_cpu", "scorer=exact", "trainer.groups=2", f"trainer.group_size={SIBLINGS}", "env.horizon=4",
             f"machine.runs_dir={tmp_path}", *words]
        )  # fmt: skip
        place = open_workplace(str(run_config.ensure(config).path))
        place.__dict__["environment"] = Countdowns(broken=list(broken))
        tokenizer = train_tokenizer(["train a b 4 3 2 1 0 left : / go stop oops"])
        tokenizer.chat_template = PLAIN_TEMPLATE
        rollout = {"prompt_length": 32, "response_length": 4, "n": SIBLINGS, "temperature": 1.0}
        rollout["log_prob_micro_batch_size_per_gpu"] = 2
        verl_config = OmegaConf.create(
            {
                "scpo": {"run_folder": str(place.folder.path)},
                "data": {"train_batch_size": 2},
                "actor_rollout_ref": {"rollout": rollout, "actor": {"ppo_mini_batch_size": MINI_BATCH // SIBLINGS}},
                "trainer": {"critic_warmup": 0},
            }
        )
        return SimpleNamespace(
            config=verl_config, place=place, tokenizer=tokenizer, queue=queue, engine=Engine(tokenizer), step=1
        )

    return make


def play(run):
    """Two tasks, all siblings, through our loop and verl's postprocessing; returns the keys in the queue."""
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from scpo.trainers.verl.agent_loop import EnvironmentLoop

    worker_class = AgentLoopWorkerTQ.__ray_metadata__.modified_class
    worker = SimpleNamespace(reward_loop_worker_handles=None, distillation_enabled=False, processor=None)
    for name in (
        "_compute_score", "_compute_teacher_logprobs", "_compute_multi_modal_inputs", "_compute_position_ids",
        "_agent_loop_postprocess",
    ):  # fmt: skip
        setattr(worker, name, types.MethodType(getattr(worker_class, name), worker))

    async def episode(group, session):
        entry = {"index": 2 * (run.step - 1) + group, "panel": "train", "group": group, "repeat": 0, "sha256": ""}
        entry |= {"task": TASKS[group].id, "family": TASKS[group].family}
        kwargs = {"extra_info": entry, "session_id": session, "uid": f"uid{group}", "global_steps": 1}
        loop = EnvironmentLoop(
            trainer_config=DictConfigWrap(run.config), server_manager=run.engine, tokenizer=run.tokenizer,
            processor=None, dataset_cls=None, data_config=DictConfigWrap(run.config.data), hf_model_type="qwen2",
        )  # fmt: skip
        await worker._agent_loop_postprocess(await loop.run({"temperature": 1.0}, **kwargs), False, **kwargs)

    async def everything():
        for group in range(2):
            for session in range(SIBLINGS):
                await episode(group, session)

    asyncio.run(everything())
    return list(run.queue.fields)


def trainer_of(run, buffer=None, state_memory=None):
    """The trainer without what verl's engine needs."""
    from scpo.trainers.verl.trainer import ScpoTrainer

    trainer = object.__new__(ScpoTrainer)
    trainer.config, trainer.place, trainer.tokenizer = run.config, run.place, run.tokenizer
    trainer.scorer = None if run.place.config.method.shaper is None else _reporting()
    trainer.use_critic, trainer.global_steps, trainer.buffer = False, 1, buffer
    trainer.state_memory = state_memory
    trainer.sealing = Sealing(run.place.folder, keep=1)
    return trainer


def advantages(run, keys, ranks, buffer=None, **columns):
    """verl's padding and balancing over ``ranks``, then ours; returns (batch, metrics, advantage of each row)."""
    from transfer_queue import KVBatchMeta

    trainer = trainer_of(run, buffer)
    trainer.actor_rollout_wg = SimpleNamespace(
        _dispatch_info={"actor": list(range(ranks))}, compute_log_prob=lambda batch: score(run, batch)
    )
    tags = [run.queue.tags[key] for key in keys]
    metrics = {}
    batch = trainer._balance_batch(KVBatchMeta(partition_id="train", keys=keys, tags=tags), metrics)
    for key in batch.keys:
        for name, value in columns.items():
            run.queue.fields[key][name] = torch.full((len(run.queue.fields[key]["response_mask"]),), value)
    trainer._compute_advantage(batch, metrics)
    return batch, metrics, [run.queue.fields[key]["advantages"] for key in batch.keys]


def score(run, batch):
    """What verl's engine does: a log-probability for every token but the first, here by the length of the row."""
    assert len(batch.keys) % 2 == 0  # whole micro-batches
    for key in batch.keys:
        row = run.queue.fields[key]
        assert torch.equal(row["input_ids"], torch.cat([row["prompts"], row["responses"]]))
        row["log_probs"] = torch.full((len(row["input_ids"]),), -0.1 * len(row["prompts"]))


def _reporting():
    from scpo.scoring import PairCache

    return PairCache(Exact(ExactScorer(kind="exact", name="exact")))


def is_padding(batch):
    return [bool(tag.get("is_padding", False)) for tag in batch.tags]


@pytest.mark.parametrize("ranks", [1, 4])
def test_rows_before_and_after_padding_and_what_each_row_gets(run, ranks):
    made = run("method=scpo")
    keys = play(made)
    assert len(keys) == 2 * (2 + 4 + 2 + 4)
    batch, metrics, rows = advantages(made, keys, ranks)
    padding = is_padding(batch)
    assert (len(batch.keys), sum(padding)) == (32, 8)
    assert (metrics["train/rows"], metrics["train/rows_padded"]) == (24.0, 8.0)
    for row, padded in zip(rows, padding, strict=True):
        assert torch.isfinite(row).all()
        assert not padded or (row == 0).all()
    assert any((row != 0).any() for row in rows)


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("method", ["scpo", "gigpo", "hgpo", "g2po", "grpo", "rloo"])
def test_the_advantages_are_those_of_the_core_bit_for_bit(run, method, ranks):
    words = [f"method.shaper.order_ranks={ranks}"] if method == "scpo" else []
    made = run(f"method={method}", *words)
    batch, metrics, rows = advantages(made, play(made), ranks)
    fields = [made.queue.fields[key]["extra_fields"] for key in batch.keys]
    read = read_rows([getattr(one, "data", one) for one in fields], is_padding(batch), episodes=2 * SIBLINGS)
    # Without a shaper every batch has the order of four ranks, which verl's own has on four alone.
    counted = ranks if method == "scpo" else UNSHAPED_RANKS
    length_N = np.array([tag["seq_len"] for tag in batch.tags])[read.place_N]
    position_N = read.place_N if ranks == counted else positions(length_N, "balanced", counted)
    expected = step_batch(read.trajectories, success_threshold=0.0, position_N=position_N)
    scorer = Exact(ExactScorer(kind="exact", name="exact"))
    advantage_N, told = assign(expected, scorer, made.place.config.method, seed=(0, 1))
    for place, advantage in zip(read.place_N, advantage_N, strict=True):
        assert (rows[place] == torch.tensor(advantage)).all()
    assert metrics["credit/descents"] == told.metrics["credit/descents"] <= counted - 1
    if method == "scpo":
        assert metrics["credit/steps"] == told.metrics["credit/steps"] > 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_order_of_four_ranks_is_there_on_any_number_of_them(run, ranks):
    made = run("method=scpo")
    batch, _, _ = advantages(made, play(made), ranks)
    again = run("method=scpo")
    again.queue.fields.clear()
    four, _, _ = advantages(again, play(again), 4)
    found, expected = (credited(made, batch), credited(again, four))
    assert found == expected


def credited(run, batch):
    """The advantage of each (group, sibling, step)."""
    rows = {}
    for key in batch.keys:
        if not run.queue.tags[key].get("is_padding", False):
            fields = run.queue.fields[key]["extra_fields"]
            row = getattr(fields, "data", fields)["scpo"]
            rows[row["group"], row["sibling"], row["step"]] = run.queue.fields[key]["advantages"].tolist()
    return rows


def test_the_smallest_mini_batch_is_logged_and_padding_is_spread(run):
    made = run("method=grpo")
    batch, metrics, _ = advantages(made, play(made), 1)
    padding = is_padding(batch)
    assert [sum(padding[:MINI_BATCH]), sum(padding[MINI_BATCH:])] == [4, 4]
    assert metrics["train/smallest_mini_batch"] == 12.0


def test_hindsight_is_scored_by_one_more_pass_over_the_successes(run):
    made = run("method=hcapo")
    keys = play(made)
    prompts = {key: len(made.queue.fields[key]["prompts"]) for key in keys}
    _, _, rows = advantages(made, keys, 2)
    scored = [key for key in made.queue.fields if key.startswith("hindsight_")]
    assert len(scored) % 4 == 0  # two ranks, micro-batches of two
    fields = {key: getattr(one, "data", one) for key in keys for one in [made.queue.fields[key]["extra_fields"]]}
    longer = [len(fields[key]["scpo_hindsight"]) - prompts[key] for key in keys if fields[key]["scpo_hindsight"]]
    assert len(longer) == 2 * (2 + 2)
    assert min(longer) > 0
    assert any((row != 0).any() for row in rows)


def test_what_a_method_measures_comes_from_verls_own_columns(run):
    made = run("method=empg")
    _, _, rows = advantages(made, play(made), 1, entropy=0.5)
    assert any((row != 0).any() for row in rows)


def test_a_scorer_that_gives_out_on_a_sample_costs_the_sample_and_not_the_step(run, monkeypatch):
    def gone(task, scorer):
        raise ScorerUnavailable("the process of scorer exact failed")

    monkeypatch.setattr("scpo.diagnostics.sampled_groups.dense_similarity", gone)
    made = run("method=scpo", "machine.scorer.on_scorer_failure=skip_shaping")
    _, metrics, rows = advantages(made, play(made), 1)
    assert metrics["credit/steps"] > 0
    assert any((row != 0).any() for row in rows)
    assert not list(made.place.folder.diagnostics.glob("groups_*"))


def test_remembered_references_go_through_a_checkpoint_and_serve_after_it(run, monkeypatch):
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    made = run("method=scpo", "method.shaper.reference_buffer=last_success")
    first, restored = (made.place.config.method.shaper.make_buffer() for _ in range(2))
    acts, acts_restored = ActMemory(), ActMemory()
    acts.verbs = {"open"}
    advantages(made, play(made), 1, buffer=first)
    assert len(first) == 2  # both tasks have a sibling that wins
    # What verl's engine writes and reads is its own business; what is beside it is ours.
    monkeypatch.setattr(
        PPOTrainerSync, "_save_checkpoint", lambda self: verl_folder(self.place.folder, 1).mkdir(parents=True)
    )
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", lambda self: setattr(self, "global_steps", 1))
    with Tracker(made.place.folder, made.place.config) as tracker:
        tracker.log(0, {}, {})
        tracker.log(1, {}, {})
        trainer_of(made, first, acts)._save_checkpoint()
        mark_complete(made.place.folder, 1, tracker.sums, keep=1)
        assert newest(made.place.folder) == 1
        resumed = trainer_of(made, restored, acts_restored)
        resumed.tracker, resumed.global_steps = tracker, 0
        resumed._load_checkpoint()
    assert restored.dump() == first.dump()
    assert acts_restored.verbs == {"open"}
    made.queue.fields.clear()
    made.engine.scripts = ["go go go go"]
    _, metrics, _ = advantages(made, play(made), 1, buffer=restored)
    assert (metrics["buffer/all_failed"], metrics["buffer/served"]) == (1, 1)
    assert metrics["buffer/steps"] > 0


def test_a_lost_row_stops_the_step(run):
    made = run("method=scpo")
    keys = play(made)
    with pytest.raises(RolloutError, match="rows were lost or doubled"):
        advantages(made, keys[:5] + keys[6:], 1)


def test_an_environment_that_breaks_is_tried_again_and_then_recorded(run):
    made = run("method=scpo", broken=[4])
    assert len(play(made)) == 23  # the first script's "go" was spent on the broken game; its second begins with "stop"
    made = run("method=scpo", "seed=1", broken=[4, 4, 4])
    with pytest.raises(Exception, match="failed 3 times, 2 retries are allowed"):
        play(made)
    (line,) = JsonLines(made.place.failures.path).records()
    assert line["task"] == TASKS[0].id
    assert line["reason"].startswith("EnvironmentFailure: episode of task")


def test_an_empty_response_is_no_row_and_no_silence(run):
    made = run("method=scpo")
    made.engine.empty = True
    with pytest.raises(RolloutError, match="empty response"):
        play(made)
    assert not made.queue.fields


def test_what_a_dead_engine_died_of_is_recorded_without_the_stacks_of_its_process(run):
    made = run("method=scpo")
    made.engine.dead = True
    with pytest.raises(RuntimeError, match="its stack"):
        play(made)
    reasons = {line["reason"] for line in JsonLines(made.place.failures.path).records()}
    assert reasons == {"RuntimeError: no core"}


def test_a_dataloader_at_another_step_stops_the_run(run):
    made = run("method=scpo")
    made.step = 2
    with pytest.raises(RolloutError, match="scheduled for step 2, verl asks for it in step 1"):
        play(made)


def test_prompts_that_are_too_long_lose_their_beginning_with_a_warning(run):
    made = run("method=scpo")
    made.config.actor_rollout_ref.rollout.prompt_length = 2
    keys = play(made)
    assert all(len(made.queue.fields[key]["prompts"]) == 2 for key in keys)
    _, metrics, _ = advantages(made, keys, 1)
    assert metrics["train/prompt_truncated"] == 1.0


def test_verls_configuration_without_a_run_folder_names_the_command_that_makes_one():
    from omegaconf import OmegaConf

    from scpo.trainers.verl.workplace import workplace_of

    with pytest.raises(Exception, match=r"no scpo\.run_folder.*python train\.py --prepare"):
        workplace_of(OmegaConf.create({"trainer": {}}))


def test_a_run_that_is_asked_to_stop_stops_only_at_a_step_with_a_checkpoint(run):
    """A request during a step's validation ended the run at once: the steps since the last checkpoint were lost."""
    made = run("method=grpo")
    trainer = trainer_of(made)
    trainer.tracker = Tracker(made.place.folder, made.place.config)
    trainer.memory = SimpleNamespace(take=dict)
    sealed = []
    trainer.sealing = SimpleNamespace(start=lambda step, sums: sealed.append(step))
    trainer.total_training_steps = 9
    trainer._saved_step, trainer._checksums_wait, trainer._save_s = None, 0.0, 0.0
    made.place.stop_file.touch()
    with trainer.tracker:
        trainer._finished({}, 1)
        assert (trainer.total_training_steps, sealed) == (9, [])
        trainer._saved_step = 2
        trainer._finished({}, 2)
    assert (trainer.total_training_steps, sealed) == (2, [2])
