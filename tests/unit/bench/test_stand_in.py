"""Models of real sizes for machines without a model hub."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: make setup")
pytest.importorskip("transformers", reason="needs transformers: make setup")

from transformers import AutoTokenizer, Qwen2Config  # noqa: E402

from bench import stand_in  # noqa: E402
from scpo.envs.projection import project  # noqa: E402
from scpo.policies.model import load_pretrained  # noqa: E402
from scpo.schema.scorer import CrossEncoderScorer  # noqa: E402
from scpo.scoring import make_scorer  # noqa: E402

# As large as a test can be, with six query heads for each of two keys' as in Qwen2.5-1.5B.
LARGE = stand_in.LARGE | dict(hidden_size=12 * 32, num_hidden_layers=3, intermediate_size=200, vocab_size=1500)
SMALL = stand_in.SMALL | dict(hidden_size=32, num_hidden_layers=2, intermediate_size=48, head_dim=16)


@pytest.fixture(scope="module")
def steps():
    return list(stand_in.demonstrated(2))


@pytest.fixture(scope="module")
def tokenizer(steps):
    return stand_in.train_tokenizer([text for step in steps for text in step])


def test_demonstrated_answers_have_verl_agents_format(steps):
    assert len(steps) > 5
    for prompt, response in steps:
        action, valid = project(response, require_think=True, tail=30)
        assert valid
        assert f"'{action}'" in prompt  # among the admissible actions


def test_the_enlarged_model_computes_what_the_small_one_does(monkeypatch, steps, tokenizer):
    monkeypatch.setattr(stand_in, "SMALL", SMALL)
    small = stand_in.small_model(tokenizer)
    for parameter in small.parameters():  # biases begin at 0, norms at 1
        torch.nn.init.normal_(parameter, mean=0.2, std=0.3)
    large = stand_in.enlarged(small, Qwen2Config(**LARGE))
    prompt, response = stand_in.rows_of(tokenizer, steps)[0]
    ids = torch.tensor([(prompt + response)[:300]])
    with torch.no_grad():
        wanted, found = small(ids).logits.log_softmax(-1), large(ids).logits.log_softmax(-1)
    assert torch.allclose(found[..., : len(tokenizer)], wanted, atol=1e-3)
    assert found[..., len(tokenizer) :].exp().sum(-1).max() < 1e-6


def test_what_is_written_loads_as_the_runs_load_it(monkeypatch, tmp_path):
    monkeypatch.setattr(stand_in, "SMALL", SMALL)
    monkeypatch.setattr(stand_in, "LARGE", LARGE)
    stand_in.write_policy(tmp_path, seconds=2.0, games=2)
    model, tokenizer = load_pretrained(str(tmp_path), "bfloat16")
    assert (model.config.num_hidden_layers, model.config.vocab_size) == (3, 1500)
    text = "<think>I look.</think>\n<action>go to desk 1</action>" + stand_in.END
    ids = tokenizer(text)["input_ids"]
    assert (ids[-1], tokenizer.decode(ids)) == (tokenizer.eos_token_id, text)
    # verl and vLLM load it as a tokenizer of the model's kind.
    assert AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"] == ids


def test_a_written_reranker_scores_as_the_runs_load_it(monkeypatch, tmp_path):
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    monkeypatch.setattr(stand_in, "XLM_R_LARGE", small)
    stand_in.write_reranker(tmp_path)
    settings = {"kind": "cross_encoder", "name": "stand-in", "path": str(tmp_path), "dtype": "float32"}
    scorer = make_scorer(CrossEncoderScorer(**settings, batch_tokens=512, max_tokens=512), device="cpu")
    scores = scorer.score([("go to desk 1", "go to desk 2"), ("open drawer 1", "look")])
    assert scores.shape == (2,)
    assert ((scores >= 0) & (scores <= 1)).all()
