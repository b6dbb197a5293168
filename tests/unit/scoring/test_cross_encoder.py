import numpy as np
import pytest

from bench.recorded import recorded
from scpo.errors import ScorerError
from scpo.scoring import make_scorer
from scpo.scoring.cross_encoder import CrossEncoder
from scpo.scoring.pretrained import pretrained
from scpo.shaping.shaper import shape
from tests.support.rerankers import SENTENCES, config, save_reranker
from tests.support.step_batches import shaper_config, take

PAIRS = [(first, second) for first in SENTENCES for second in SENTENCES]


@pytest.fixture(scope="module", params=["xlm_r", "bert"])
def folder(request, tmp_path_factory):
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield save_reranker(tmp_path_factory.mktemp(request.param), request.param)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def scorer(folder):
    return make_scorer(config(folder))


def test_scores_are_sigmoids_of_the_logit_of_the_plain_model(scorer):
    import torch

    for pair in PAIRS:
        with torch.inference_mode():
            logit = scorer._model(**scorer._tokenizer(*pair, return_tensors="pt")).logits[0, 0].item()
        assert scorer.score([pair])[0] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)


def test_scores_differ_and_depend_on_which_text_comes_first(scorer):
    matrix = scorer.score(PAIRS).reshape(len(SENTENCES), len(SENTENCES))
    assert matrix.dtype == np.float32
    assert len(np.unique(matrix)) > 20
    assert not np.array_equal(matrix, matrix.T)


def test_a_pair_is_put_together_as_the_tokenizer_would(scorer):
    for first, second in [*PAIRS, ("", "x"), ("naïve 字 <s> [SEP]", "y")]:
        (ours,) = scorer.encode([(first, second)])
        theirs = scorer._tokenizer(first, second, return_token_type_ids=True)
        assert ours.ids == theirs["input_ids"]
        assert ours.type_ids == theirs["token_type_ids"]


def test_what_was_cut_off_two_texts_is_not_put_together(folder):
    short = make_scorer(config(folder, max_tokens=16))
    backend, side = (
        short._tokenizer.backend_tokenizer,
        (16 - short._tokenizer.num_special_tokens_to_add(pair=True)) // 2,
    )
    long = ["cabinet 1 " * 40, "open drawer 3 " * 30]
    first, second = (backend.encode(text, add_special_tokens=False) for text in long)
    first.truncate(side)
    second.truncate(side)
    theirs = backend.post_process(first, second)
    assert short.encode([tuple(long)]) == [(theirs.ids, theirs.type_ids)]


def test_a_pair_of_xlm_r_has_two_separators_and_one_of_bert_has_one(scorer):
    (pair,) = scorer.encode([("x", "x")])
    tokens = scorer._tokenizer.convert_ids_to_tokens(pair.ids)
    assert " ".join(tokens) in {"[CLS] x [SEP] x [SEP]", "<s> ▁x </s> </s> ▁x </s>"}


def test_each_text_is_tokenised_once(folder, monkeypatch):
    fresh = make_scorer(config(folder))
    backend, texts = fresh._tokenizer.backend_tokenizer, []

    class Counting:
        def encode(self, text, **settings):
            texts.append(text)
            return backend.encode(text, **settings)

    monkeypatch.setattr(type(fresh._tokenizer), "backend_tokenizer", Counting())
    fresh.score(PAIRS)
    fresh.score(PAIRS)
    assert sorted(texts) == sorted(SENTENCES)


def as_on_a_gpu(folder, **changes):
    """Pairs share forward passes."""
    tokenizer, model = pretrained(str(folder), "AutoModelForSequenceClassification")
    return CrossEncoder(config(folder, **changes), tokenizer, model, share=True)


def test_a_pair_has_the_same_bits_alone_among_63_others_and_shuffled(scorer):
    pairs = (PAIRS * 2)[:64]
    together = scorer.score(pairs)
    shuffled = np.random.default_rng(0).permutation(64)
    assert np.array_equal(scorer.score([pairs[i] for i in shuffled]), together[shuffled])
    for i in range(0, 36, 5):
        assert np.array_equal(scorer.score([pairs[i]]), together[i : i + 1])


def test_on_a_cpu_each_pair_is_a_pass_without_padding(scorer):
    encoded = scorer.encode(PAIRS)
    passes = list(scorer.batches(encoded))
    assert passes == [(len(pair.ids), (i,), 1) for i, pair in enumerate(encoded)]


@pytest.mark.parametrize("batch_tokens", [256, 512, 4096])
def test_pairs_that_share_passes_score_as_pairs_that_do_not_up_to_rounding(folder, scorer, batch_tokens):
    shared = as_on_a_gpu(folder, batch_tokens=batch_tokens)
    assert shared.score(PAIRS) == pytest.approx(scorer.score(PAIRS), abs=1e-6)


def test_a_pass_has_as_many_tokens_for_every_length_of_pairs(folder):
    fresh = as_on_a_gpu(folder, batch_tokens=256)
    passes = list(fresh.batches(fresh.encode([("x " * n, "x " * n) for n in (6, 14, 30, 60, 120, 250)] * 10)))
    shapes = {rows.width: rows.size for rows in passes}
    assert shapes == {16: 16, 32: 8, 64: 4, 128: 2, 256: 1, 512: 1}
    assert sorted(i for rows in passes for i in rows.indices) == list(range(60))


def test_neighbours_do_not_decide_whether_a_pass_has_an_attention_mask(folder, monkeypatch):
    import torch

    attention, masked = torch.nn.functional.scaled_dot_product_attention, []

    def spy(*tensors, attn_mask=None, **settings):
        masked.append(attn_mask is not None)
        return attention(*tensors, attn_mask=attn_mask, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    fresh = as_on_a_gpu(folder)
    special = fresh._tokenizer.num_special_tokens_to_add(pair=True)
    full, padded = ("x " * 10, "x " * (22 - special)), ("x " * 10, "x " * (21 - special))
    assert [len(pair.ids) for pair in fresh.encode([full, padded])] == [32, 31]
    for pairs, expected in ([full], [False]), ([padded], [True]), ([full, padded, full], [True, False]):
        masked.clear()
        fresh.score(pairs)
        assert masked == [mask for mask in expected for _ in range(fresh._model.config.num_hidden_layers)]


def test_each_side_is_cut_to_half_and_the_cut_pairs_are_counted(folder):
    short = make_scorer(config(folder, max_tokens=16))
    special = short._tokenizer.num_special_tokens_to_add(pair=True)
    sides = [short._tokenise(text) for text in ("cabinet " * 50, "x")]
    assert [len(side.ids) for side in sides] == [(16 - special) // 2, 1]
    assert len(short.encode([("cabinet " * 50, "cabinet " * 50)])[0].ids) <= 16
    beyond = ("cabinet " * 50, "x"), ("cabinet " * 50 + "drawer", "x")
    scores = short.score([*beyond, ("x", "x")])
    assert scores[0] == scores[1] != scores[2]
    assert short.counts == {"computed": 3, "truncated": 2}


def test_the_fill_of_a_batch_is_not_counted(folder):
    fresh = as_on_a_gpu(folder, batch_tokens=4096)
    fresh.score(PAIRS[:3])
    assert fresh.counts == {"computed": 3, "truncated": 0}


def test_bfloat16_is_near_float32_and_another_scorer(folder, scorer):
    rough = make_scorer(config(folder, dtype="bfloat16"))
    assert np.allclose(rough.score(PAIRS), scorer.score(PAIRS), atol=0.05)
    assert rough.name != scorer.name


def test_no_pairs_no_scores(scorer):
    assert scorer.score([]).shape == (0,)


def test_lazy_and_dense_drivers_agree_with_separate_cold_scorers(folder):
    step, batch, _ = next(recorded())
    batch = take(batch, np.flatnonzero(batch.group_N <= 2))
    theta = float(np.median(make_scorer(config(folder)).score(PAIRS)))
    lazy, dense = (
        shape(batch, make_scorer(config(folder)), shaper_config(theta=theta, soft_base=0.0, dense=mode), (0, step))
        for mode in (False, True)
    )
    assert [match.trace for match in lazy.matches] == [match.trace for match in dense.matches]
    assert lazy.credit_N.any()
    assert np.array_equal(lazy.credit_N, dense.credit_N)


def test_half_precision_is_refused_on_a_cpu(folder):
    with pytest.raises(ScorerError, match="float16 is for GPUs"):
        make_scorer(config(folder, dtype="float16"))


def test_a_model_that_reads_fewer_tokens_is_refused(folder):
    with pytest.raises(ScorerError, match="exceeds the 512 tokens"):
        make_scorer(config(folder, max_tokens=1024))


def test_a_classifier_with_several_labels_is_refused(tmp_path):
    with pytest.raises(ScorerError, match="has 3 labels: expected a reranker"):
        make_scorer(config(save_reranker(tmp_path, "xlm_r", labels=3)))


def test_a_missing_model_says_how_to_get_it(monkeypatch, tmp_path):
    pytest.importorskip("transformers", reason="needs transformers: make setup")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ScorerError, match=r"hf download BAAI/no-such-reranker --local-dir DIR"):
        make_scorer(config("BAAI/no-such-reranker"))
    with pytest.raises(ScorerError, match="no model of transformers in the folder"):
        make_scorer(config(tmp_path))
