import math
import random

import numpy as np
import pytest

from scpo.envs.webshop.catalogue.bm25 import SearchIndex, analyse, quantised, tokens
from tests.support.webshop_data import small_catalogue


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Men's Running Shoes", ["men", "run", "shoe"]),
        ("the and of", []),
        ("12.5 oz, 3,000 items", ["12.5", "oz", "3,000", "item"]),
        ("wi-fi usb_c a.b.c", ["wi", "fi", "usb_c", "a.b.c"]),
        ("★ 漢字 ひら カタカナ", ["★", "漢", "字", "ひ", "ら", "カタカナ"]),
        ("don't O'Neil’s", ["don't", "o'neil"]),
        ("PS：新", ["ps", "新"]),
        ("👍🏽🇺🇸1️⃣", ["👍🏽", "🇺🇸", "1️⃣"]),
    ],
)
def test_text_is_analysed_as_lucene_does(text, expected):
    assert analyse(text) == expected


def test_a_token_over_255_characters_is_cut():
    assert [len(token) for token in tokens("x" * 600)] == [255, 255, 90]


@pytest.mark.parametrize("text", ["_", "a_", "_\u0301", "'", "1.", "😀\u200d", "[", "\u0301"])
def test_ten_thousand_odd_characters_are_analysed_at_once(text):
    assert len(analyse(text * 10_000)) <= 10_000


def test_lengths_are_stored_in_one_byte_as_lucene_does():
    assert [quantised(n) for n in (0, 23, 24, 39, 40, 41, 42, 56, 57, 60, 100)] == [
        0, 23, 24, 39, 40, 40, 42, 56, 56, 60, 96,
    ]  # fmt: skip


def test_scores_follow_the_formula_by_hand():
    # "red" is in two of three documents, "shoe" in one; all lengths 2, so the length norm is k1 = 0.9.
    index = SearchIndex({"a": "red shoe", "b": "red hat", "c": "blue hat"})
    assert index.search("red shoe", 50) == ["a", "b"]
    weight = np.float32(math.log(1 + 1.5 / 2.5))
    assert math.isclose(weight - weight / (1 + 1 / 0.9), 0.47 / 1.9, rel_tol=1e-3)


def test_ties_go_by_id_and_only_sharing_documents_are_found():
    index = SearchIndex({"b": "red hat", "a": "red hat", "c": "blue"})
    assert index.search("red", 50) == ["a", "b"]
    assert index.search("red", 1) == ["a"]
    assert index.search("", 50) == index.search("the", 50) == index.search("green", 50) == []


def test_a_word_that_is_repeated_in_the_query_weighs_more():
    index = SearchIndex({"a": "red wool", "b": "blue wool"})
    assert index.search("blue red red", 2) == ["a", "b"]
    assert index.search("blue blue red", 2) == ["b", "a"]


def test_the_originals_search_commands():
    catalogue, rng = small_catalogue(), random.Random(0)
    asins = lambda keywords: [product.asin[-1] for product in catalogue.find(keywords, rng)]  # noqa: E731 - short
    assert sorted(asins("<r>")) == ["1", "2", "3"]
    assert asins("<a> rubber sole") == ["1"]
    assert asins("<c> garden") == ["3"]
    assert asins("<q> men's sandals") == ["1", "2"]
    assert asins("<c>") == asins("<a>") == asins("<q>") == []
