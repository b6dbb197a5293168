"""Embeddings on disk come back to the bit or not at all, whoever writes beside, and whatever happened to the file."""

import sqlite3
import threading

import numpy as np
import pytest

from scpo.scoring.embedding_store import EmbeddingStore

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
def test_a_file_that_is_no_database_is_said_once_and_costs_nothing_else(tmp_path, content, caplog):
    (tmp_path / "encoder.sqlite").write_bytes(content)
    store = EmbeddingStore(tmp_path, "encoder")
    assert store.get(["a"]) == {}
    store.put(VECTORS)
    assert store.get(["a"]) == {}
    assert caplog.text.count("no longer kept") == 1


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
