"""The policy as verl loads it, by its own dataclasses and its own code, in both supported installations.

What runs on a GPU alone stands aside: the kernels of flash-attn, which a stand-in names, and are not called here.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from scpo.trainers.verl.readiness import gpu_settings, ray_settings
from scpo.trainers.verl.sockets import environment
from scpo.trainers.verl.verl_settings import settings
from sweeps.compose.configuration import compose_run
from tests.support.tiny import tiny_policy
from tests.unit.trainers.verl.test_verl_settings import FILES

pytest.importorskip("ray", reason="needs verl: make test-verl")
torch = pytest.importorskip("torch", reason="needs torch: make setup")

LORA = (
    'trainer.verl.overrides=["actor_rollout_ref.model.lora_rank=64",'
    '"actor_rollout_ref.rollout.load_format=safetensors"]'
)
RECIPES = {  # docs/verl.md: words, data-parallel ranks, rows of a micro-batch with flash-attn and without
    "4 x A800, 1.5B": ([], 4, 32, 8),
    "4 x A800, 7B": (["model=qwen2_5_7b"], 4, 8, 8),
    "4 x A800, WebShop": (["env=webshop"], 4, 16, 8),
    "4 x A800, PPO": (["method=ppo"], 4, 16, 8),
    "4 x A800, HCAPO": (["method=hcapo"], 4, 32, 8),
    "one 80 GB card": (["trainer=verl_1gpu"], 1, 8, 8),
    "one 24 GB card": (["trainer=verl_1gpu", "model=qwen2_5_0_5b", "trainer.micro_batch_rows=4"], 1, 4, 4),
    "one 24 GB card, 1.5B": (["trainer=verl_1gpu", "trainer.verl.offload_training=true"], 1, 8, 8),
    "LoRA": ([LORA], 4, 32, 8),
    "two nodes of 4": (["trainer.verl.nodes=2"], 8, 32, 8),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A policy and its tokenizer as a Hugging Face folder."""
    path, policy = tmp_path_factory.mktemp("policy"), tiny_policy()
    policy.model.save_pretrained(path)
    policy.tokenizer.save_pretrained(path / "tokenizer")
    return path


def resolved(words, folder, attention):
    """Verl's configuration of a run on GPUs; no key of the CPU in it."""
    from scpo.trainers.verl.launch import compose_verl

    config = compose_run(["scale=paper", *words])
    files = replace(FILES, model=str(folder), tokenizer=str(folder / "tokenizer"))
    chosen = [
        *settings(config, files, attention),
        *gpu_settings(config, folder),
        *ray_settings(config, environment(folder)),
    ]
    return compose_verl([*(one.override for one in chosen), *config.trainer.verl.overrides])


@pytest.mark.parametrize("attention", ["flash", "sdpa"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_recipe_composes_through_verls_own_dataclasses(recipe, attention, folder):
    from omegaconf import open_dict
    from verl.utils.config import omega_conf_to_dataclass

    words, ranks, flash_rows, sdpa_rows = recipe
    config = resolved(words, folder, attention)
    actor_rollout_ref = config.actor_rollout_ref
    with open_dict(config):  # as verl's workers do, renamed keys of the reference included
        for key in ("micro_batch_size", "micro_batch_size_per_gpu"):
            actor_rollout_ref.ref[f"ppo_{key}"] = actor_rollout_ref.ref.pop(f"log_prob_{key}", None)
        actor_rollout_ref.ref.ppo_mini_batch_size = actor_rollout_ref.actor.ppo_mini_batch_size
        actor_rollout_ref.ref.use_dynamic_bsz = actor_rollout_ref.ref.pop("log_prob_use_dynamic_bsz", False)
        longest = actor_rollout_ref.ref.pop("log_prob_max_token_len_per_gpu", None)
        actor_rollout_ref.ref.ppo_max_token_len_per_gpu = longest
        model = omega_conf_to_dataclass(actor_rollout_ref.model)
        actor = omega_conf_to_dataclass(actor_rollout_ref.actor)
        rollout = omega_conf_to_dataclass(actor_rollout_ref.rollout)
        reference = omega_conf_to_dataclass(actor_rollout_ref.ref)
    rows = flash_rows if attention == "flash" else sdpa_rows
    assert actor.ppo_micro_batch_size_per_gpu == rollout.log_prob_micro_batch_size_per_gpu == rows
    assert config.trainer.n_gpus_per_node * config.trainer.nnodes == ranks
    assert actor.ppo_mini_batch_size * rollout.n % (ranks * rows) == 0
    assert (actor.strategy, rollout.name, rollout.free_cache_engine) == ("fsdp2", "vllm", True)
    assert reference.fsdp_config.model_dtype == "bf16"
    assert actor.fsdp_config.use_no_sync_for_gradient_accumulation is False
    assert actor.fsdp_config.optimizer_offload == ("trainer.verl.offload_training=true" in words)
    assert model.hf_config._attn_implementation == {"flash": "flash_attention_2", "sdpa": "sdpa"}[attention]
    assert model.use_fused_kernels == (attention == "sdpa")
    assert model.lora_rank == (64 if LORA in words else 0)
    assert config.ray_kwargs.ray_init.get("address") == ("auto" if ranks == 8 else "local")
    assert config.transfer_queue.backend.SimpleStorage.num_data_storage_units == 2


def load(words, folder, attention):
    """What verl's FSDP worker does to load the policy, before it is sharded."""
    from omegaconf import open_dict
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    config = resolved(words, folder, attention)
    with open_dict(config):
        model_config = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    engine = SimpleNamespace(
        engine_config=SimpleNamespace(model_dtype="fp32", forward_only=False),
        model_config=model_config,
        device_mesh=None,
        use_remove_padding=model_config.use_remove_padding,
        ulysses_sequence_parallel_size=1,
    )
    return FSDPEngine._build_module(engine)


@pytest.fixture
def whole_weights(monkeypatch):
    """One process: no rank to take the weights from, so that none is loaded empty; verl patches the model's class."""
    from contextlib import nullcontext

    from transformers import Qwen2ForCausalLM
    from verl.workers.engine.fsdp import transformer_impl

    monkeypatch.setattr(Qwen2ForCausalLM, "forward", Qwen2ForCausalLM.forward)  # and as it was afterwards
    monkeypatch.setattr(transformer_impl, "get_init_weight_context_manager", lambda **_: nullcontext)


def test_without_flash_attn_the_policy_loads_with_torchs_attention_and_keeps_its_answers(folder, whole_weights):
    ids, places, temperature = torch.tensor([[1, 2, 3, 4, 5]]), torch.arange(5)[None], 0.7
    with torch.no_grad():
        logprob_LV = (tiny_policy().model(input_ids=ids).logits[0] / temperature).log_softmax(-1)
        found = load([], folder, "sdpa")
        assert found.config._attn_implementation == "sdpa"
        told = found(input_ids=ids, position_ids=places, temperature=temperature, return_dict=True)
    expected = logprob_LV[:-1].gather(-1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(told.log_probs[0, :-1], expected, atol=1e-5, rtol=1e-4)
    entropy = -(logprob_LV.exp() * logprob_LV).sum(-1)
    torch.testing.assert_close(told.entropy[0], entropy, atol=1e-5, rtol=1e-4)


def test_verls_own_choice_fails_without_flash_attn_which_is_why_one_is_made_before_ray_starts(folder, whole_weights):
    with pytest.raises(ImportError, match="FlashAttention2 has been toggled on, but it cannot be used"):
        load([], folder, "flash")


def test_with_flash_attn_the_policy_loads_for_its_kernels(folder, whole_weights, monkeypatch):
    from transformers import PreTrainedModel

    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True)  # as where it is installed
    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", lambda *_, **__: None)
    found = load([], folder, "flash")
    assert found.config._attn_implementation == "flash_attention_2"
    assert {one.dtype for one in found.parameters()} == {torch.float32}
    assert found.is_gradient_checkpointing
