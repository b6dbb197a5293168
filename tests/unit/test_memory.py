"""The estimates against the figures they were made for, and what they decide."""

import itertools
import json
import operator
import re
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.memory import (
    FRAGMENT_SHARE,
    FULL_SHARE,
    GIB,
    PAPER_GPU_GIB,
    engine_memory,
    gpu_table,
    micro_batch,
    needed_gib,
    parameters,
    shape,
    shortage,
)
from sweeps.compose.configuration import compose_run

A800 = 79.0
ROOT = Path(__file__).parents[2]


def table(*words, gib=A800):
    return {part.name: part for part in gpu_table(compose_run(["scale=paper", *words]), gib)}


def test_the_states_of_a_model_are_16_bytes_a_parameter_over_the_ranks():
    name = "weights, gradients, optimizer"
    assert table()[name].update_gib == pytest.approx(1.544e9 * 16 / 4 / GIB, rel=0.05)  # 5.8
    assert table("model=qwen2_5_7b")[name].update_gib == pytest.approx(28.4, rel=0.02)
    ppo = table("method=ppo")
    assert ppo[name].update_gib == table()[name].update_gib
    # While the policy is updated, the critic's gradients are freed: 12 of its 16 bytes are left.
    assert ppo["critic's weights, optimizer"].update_gib == pytest.approx(12 / 16 * ppo[name].update_gib)


def test_an_engine_that_does_not_sleep_keeps_its_memory_through_the_update():
    asleep, awake = table(), table("trainer.verl.free_cache=false")
    assert asleep["rollout engine"].update_gib == 0
    assert awake["rollout engine"].update_gib == asleep["rollout engine"].rollout_gib == pytest.approx(0.6 * A800)


def test_logits_are_what_fused_kernels_save():
    assert table()["logits"].update_gib == pytest.approx(49, rel=0.01)  # 32 rows of 1,034 + 512 tokens
    assert table("trainer.verl.attention=sdpa")["logits"].update_gib == 1.0


LORA = (
    'trainer.verl.overrides=["actor_rollout_ref.model.lora_rank=64",'
    '"actor_rollout_ref.rollout.load_format=safetensors"]'
)
FITS = {
    "1.5B on the paper's node": ([], A800),
    "7B on the paper's node": (["model=qwen2_5_7b"], A800),
    "1.5B on one card": (["trainer=verl_1gpu"], A800),
    "0.5B on a small card": (
        ["trainer=verl_1gpu", "model=qwen2_5_0_5b", "trainer.micro_batch_rows=4"],
        23.5,
    ),
    "an evaluation of 7B": (["method=react", "model=qwen2_5_7b"], A800),
    "1.5B in one process": (["trainer=local", "method=grpo"], A800),
    "LoRA of 7B on one card": (["trainer=verl_1gpu", "model=qwen2_5_7b", LORA], A800),
    "LoRA of 1.5B on a small card": (
        ["trainer=verl_1gpu", LORA, "trainer.micro_batch_rows=4", "trainer.verl.engine_memory=0.45"],
        23.5,
    ),
}
FITS_NOT = {
    "an engine that never sleeps": (
        ["model=qwen2_5_7b", "trainer.verl.free_cache=false"],
        A800,
        "free_cache=true",
    ),
    "7B on one card": (["trainer=verl_1gpu", "model=qwen2_5_7b"], A800, "More trainer.verl.gpus, among"),
    "1.5B on a small card": (["trainer=verl_1gpu"], 23.5, "More trainer.verl.gpus, among"),
    "1.5B on a small card, few rows": (
        ["trainer=verl_1gpu", "trainer.micro_batch_rows=2"],
        23.5,
        "engine_memory",
    ),
    "PPO of 7B on one card": (
        ["trainer=verl_1gpu", "model=qwen2_5_7b", "method=ppo"],
        A800,
        "More trainer.verl.gpus, among",
    ),
    "1.5B on four small cards": ([], 23.5, "trainer.micro_batch_rows"),
    "7B in one process": (
        ["trainer=local", "model=qwen2_5_7b"],
        A800,
        "trainer=verl over several GPUs",
    ),
}


@pytest.mark.parametrize(("words", "gib"), FITS.values(), ids=FITS)
def test_what_fits(words, gib):
    assert shortage(compose_run(["scale=paper", *words]), gib) is None


@pytest.mark.parametrize(("words", "gib", "remedy"), FITS_NOT.values(), ids=FITS_NOT)
def test_what_does_not_fit_is_refused_with_what_takes_the_memory_and_a_remedy(words, gib, remedy):
    config = compose_run(["scale=paper", *words])
    missing = shortage(config, gib)
    assert remedy in missing.remedy
    reason = str(missing)
    assert reason.endswith(f", a GPU has {gib:.0f}. {missing.remedy}")
    for key in re.findall(r"[a-z]+\.[a-z_.]*[a-z]", reason):
        assert operator.attrgetter(key)(config) is not None  # a key that there is
    assert "estimates" in reason
    # The update of a policy needs its weights on the GPU: the setting was advised, and did not help.
    assert "offload_training" not in reason


def test_offloading_is_advised_where_it_makes_a_run_fit():
    words = ["scale=paper", "trainer=verl_1gpu", "trainer.verl.gpus=2", "model=qwen2_5_7b", "method=ppo"]
    words.append("trainer.verl.engine_memory=0.3")
    missing = shortage(compose_run(words), A800)
    assert "offload_training=true" in missing.remedy
    assert shortage(compose_run([*words, "trainer.verl.offload_training=true"]), A800) is None


def test_lora_trains_adapters_and_keeps_the_weights_in_float32():
    name = "weights, gradients, optimizer"
    full, adapters = (table("trainer=verl_1gpu", "model=qwen2_5_7b", *words)[name] for words in ([], [LORA]))
    frozen = 4 * 7.616e9 / GIB
    # All linear layers of Qwen2.5-7B at rank 64: q and o of 3,584, k and v to 512, three of 18,944.
    trained = 64 * 28 * (4 * 3584 + 2 * (3584 + 512) + 3 * (3584 + 18944))
    least = 16 * trained / GIB
    assert frozen + least < adapters.update_gib < frozen + 1.5 * least < full.update_gib


def test_sizes_are_read_from_the_models_own_configuration(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(dict(num_hidden_layers=2, hidden_size=64, vocab_size=100)))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2_000_000)
    model = compose_run(["scale=paper", f"model.path={tmp_path}"]).model
    assert parameters(model) == 1e6
    assert (shape(model).layers, shape(model).hidden, shape(model).vocabulary) == (2, 64, 100)


TASKS = {
    "alfworld": [],
    "webshop": ["env=webshop"],
    "webshop_paper": ["env=webshop", "env.setting=paper"],
}
MODELS = ("qwen2_5_1_5b", "qwen2_5_7b")


def paper_cells():
    """Every trained method, model and benchmark that scale=paper composes with verl."""
    methods = sorted(path.stem for path in (ROOT / "conf" / "method").glob("*.yaml"))
    for task, model, method in itertools.product(TASKS, MODELS, methods):
        words = ["scale=paper", f"model={model}", f"method={method}", *TASKS[task]]
        try:
            config = compose_run(words)
        except ConfigError:
            continue  # DAPO: verl has no dynamic sampling
        if config.method.kind == "trained":
            yield f"{task} {config.model.name} {method}", config


def test_every_cell_of_the_paper_stays_under_nine_tenths_of_its_gpu():
    cells = dict(paper_cells())
    assert len(cells) >= 3 * 2 * 12
    full = {name: needed_gib(gpu_table(config, PAPER_GPU_GIB)) for name, config in cells.items()}
    assert {name: gib for name, gib in full.items() if gib >= FULL_SHARE * PAPER_GPU_GIB} == {}


def test_nccl_and_fragments_are_counted():
    parts = table()
    assert parts["NCCL"].update_gib == parts["NCCL"].rollout_gib > 0
    freed = sum(parts[name].update_gib for name in ("weights gathered by FSDP", "activations", "logits"))
    assert parts["fragments"].update_gib == pytest.approx(FRAGMENT_SHARE * freed)
    assert "NCCL" not in table("trainer=verl_1gpu")


ROWS = {
    "the paper's": ([], 32),
    "long prompts, a share of 64 rows": (["env=webshop", "env.setting=paper"], 16),
    "a critic of 1.5B": (["method=ppo"], 16),
    "7B": (["model=qwen2_5_7b"], 8),
    "a critic of 7B": (["model=qwen2_5_7b", "method=ppo"], 4),
    "a share that 32 does not divide": (["trainer.mini_batch_rows=96"], 8),
    "verl-agent averages over micro-batches": (
        ["trainer=verl_agent", "env=webshop", "env.setting=paper", "method=gigpo"], 32,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "rows"), ROWS.values(), ids=ROWS)
def test_a_micro_batch_holds_as_many_of_the_longest_rows_as_fit(words, rows):
    config = compose_run(["scale=paper", *words])
    found, source = micro_batch(config, config.trainer)
    assert found == rows
    assert ("halved" in source) == ((rows < 32 and "method=ppo" in words) or ("webshop" in str(words) and rows == 16))


ENGINES = {
    "1.5B": ([], 0.6),
    "1.5B and a critic": (["method=ppo"], 0.45),
    "7B": (["model=qwen2_5_7b"], 0.4),
    "7B and a critic": (["model=qwen2_5_7b", "method=ppo"], 0.3),
    "7B as in verl-agent": (["model=qwen2_5_7b", "trainer=verl_agent"], 0.6),
    "a share of one's own": (["model=qwen2_5_7b", "trainer.verl.engine_memory=0.5"], 0.5),
}


@pytest.mark.parametrize(("words", "share"), ENGINES.values(), ids=ENGINES)
def test_the_engines_share_follows_model_and_critic(words, share):
    config = compose_run(["scale=paper", *words])
    assert engine_memory(config, config.trainer)[0] == pytest.approx(share)


def test_the_model_gives_the_engines_share_and_the_trainer_records_it():
    large = compose_run(["scale=paper", "model=qwen2_5_7b"])
    assert "engine_memory" not in large.model.model_dump()
    read = type(large).model_validate(large.model_dump(mode="json"))
    assert read.trainer.verl.engine_memory == 0.4


def test_small_policies_have_no_table():
    assert gpu_table(compose_run([]), A800) == []
    assert needed_gib([]) == 0
