import hashlib
import json
import logging

import pytest

from scpo.envs.webshop.shop import nouns
from scpo.errors import ConfigError
from tests.support.webshop_data import GENERATED, of_every_recording


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Men's Running Shoes, 10.5 (Wide)", ["men", "'s", "running", "shoes", "10.5", "wide"]),
        ("500g Wi-Fi 3-Pack USB/HDMI Dr. Oil", ["500", "g", "wi", "fi", "3", "pack", "usb", "hdmi", "dr.", "oil"]),
        ('★ 24" TV & 4K—New!', ["24", "tv", "4k", "new"]),
        ("", []),
    ],
)
def test_all_tokens_are_those_of_spacys_blank_pipeline(title, expected):
    assert list(nouns.all_tokens(title)) == expected


def test_all_tokens_of_titles_are_those_that_spacy_gave():
    digest = hashlib.sha256()
    for record in json.loads((GENERATED.folder / "items_shuffle_1000.json").read_text(encoding="utf-8")):
        digest.update("\n".join([*nouns.all_tokens(record["name"]), ""]).encode())
    # Made with spacy.blank("en") of spaCy 3.8.18: the tokens with an alphanumeric character, in lower case.
    assert digest.hexdigest() == "dcdc361579475145ad1d84026cf17d836d902a352a3f945212a09c5209ce4d84"


@of_every_recording
def test_all_tokens_agree_with_spacy_on_every_title(recording):
    spacy = pytest.importorskip("spacy", reason="needs spaCy: pip install spacy")
    pipeline = spacy.blank("en")
    for product in recording.catalogue.products:
        theirs = [token.text.lower() for token in pipeline(product.title) if any(map(str.isalnum, token.text))]
        assert list(nouns.all_tokens(product.title)) == theirs


def test_the_stop_list_leaves_alphabetic_words_that_may_be_nouns():
    assert nouns.noun_rule("stop_list")("The Best 12 Oz Mug with a Lid for Men") == ("oz", "mug", "lid", "men")


def test_without_spacys_model_the_stop_list_stands_in_and_the_log_says_so(monkeypatch, caplog):
    monkeypatch.setattr(nouns, "SPACY_MODEL", "no_such_model")
    nouns._named.cache_clear()
    with caplog.at_level(logging.INFO):
        rule = nouns.noun_rule("spacy")
    nouns._named.cache_clear()
    assert rule("The red mug") == ("red", "mug")
    assert "stop list, since spaCy's no_such_model cannot be loaded" in caplog.text


def test_a_callable_is_taken_as_it_is_and_an_unknown_name_refused():
    assert nouns.noun_rule(str.split) is str.split
    with pytest.raises(ConfigError, match="nouns is spacy, stop_list, all_tokens or a callable"):
        nouns.noun_rule("verbs")
