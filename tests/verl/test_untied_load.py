"""An untied policy, as Qwen2.5-7B is, loaded by verl over two gloo ranks, against the whole model.

verl builds untied models without weights on every rank but the first (accelerate's
``init_empty_weights``); with accelerate 1.12 and transformers 5 the second rank died there. Tied
models, as our tiny policy and Qwen2.5-1.5B, take another path.
"""

import json
import os
import socket
import subprocess
import sys

import pytest

from tests.support.verl_runs import ROOT

pytest.importorskip("ray", reason="needs verl: make test-verl")
torch = pytest.importorskip("torch", reason="needs torch: make setup")

RANK = """
import json, sys, warnings
from types import SimpleNamespace
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import verl  # our platform for the CPU
from transformers import AutoConfig
from verl.workers.config import FSDPEngineConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

rank, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
config = AutoConfig.from_pretrained(folder)
assert not config.tie_word_embeddings
engine = SimpleNamespace(
    device_mesh=init_device_mesh("cpu", (2,), mesh_dim_names=["fsdp"]),
    engine_config=FSDPEngineConfig(
        model_dtype="fp32", strategy="fsdp2", mixed_precision=dict(param_dtype="fp32"), use_torch_compile=False
    ),
    model_config=SimpleNamespace(
        hf_config=config, model_type="language_model", local_path=folder, trust_remote_code=False,
        use_liger=False, use_fused_kernels=False, fused_kernel_options={}, use_remove_padding=False,
        lora_rank=0, enable_gradient_checkpointing=False, enable_activation_offload=False,
        get=lambda name, default=None: default,
    ),
    use_remove_padding=False,
    ulysses_sequence_parallel_size=1,
)
module = FSDPEngine._build_module(engine)
meta = sorted({parameter.device.type for parameter in module.parameters()})
module = FSDPEngine._build_fsdp_module(engine, module)
with torch.no_grad():
    logits = module(input_ids=torch.tensor([[1, 2, 3, 4, 5]])).logits
shards = {type(parameter).__name__ for parameter in module.parameters()}
print("=", json.dumps([meta, sorted(shards), logits.flatten().tolist()]))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def folder(tmp_path):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    config = Qwen2Config(
        **shape,
        num_key_value_heads=1,
        vocab_size=40,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.timeout(400)
def test_two_ranks_that_load_an_untied_policy_give_the_whole_models_logits(folder):
    from transformers import AutoModelForCausalLM

    with socket.socket() as probe:
        probe.bind(("", 0))
        port = str(probe.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), port, str(folder)],
            cwd=ROOT, env=dict(os.environ), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        ends = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    last_words = "\n".join(errors[-1500:] for _, errors in reversed(ends))  # the second rank's first
    assert [process.returncode for process in processes] == [0, 0], last_words
    answers = [json.loads(line[2:]) for output, _ in ends for line in output.splitlines() if line.startswith("= ")]
    assert [devices for devices, *_ in answers] == [
        ["cpu"],
        ["meta"],
    ]  # rank 1 began without weights
    assert all(shards == ["DTensor"] for _, shards, _ in answers)
    with torch.no_grad():
        whole = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([[1, 2, 3, 4, 5]])).logits.flatten()
    for *_, logits in answers:
        torch.testing.assert_close(torch.tensor(logits), whole, atol=1e-6, rtol=1e-5)
