from scpo.envs.projection import CLOSE_TAG
from scpo.policies.warm_start import train_tokenizer


def test_words_numbers_and_tags_are_one_token_each():
    tokenizer = train_tokenizer(["Go to desk 12 | <action> open </action>"])
    ids = tokenizer("go TO desk 12 <action> open </action>")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["go", "to", "desk", "12", "<action>", "open", "</action>"]


def test_unknown_words_become_the_unknown_token_and_punctuation_is_dropped():
    tokenizer = train_tokenizer(["go to desk"])
    assert tokenizer.convert_ids_to_tokens(tokenizer("go, to? sofa!")["input_ids"]) == ["go", "to", "<unk>"]


def test_ids_depend_on_the_words_only_not_on_their_order_or_counts():
    first = train_tokenizer(["desk shelf", "mug mug mug"])
    second = train_tokenizer(["mug", "shelf desk desk"])
    assert first.get_vocab() == second.get_vocab()


def test_the_closing_tag_ends_a_response():
    assert train_tokenizer(["a"]).eos_token == CLOSE_TAG


def test_a_saved_tokenizer_loads_as_it_was(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = train_tokenizer(["go to desk 1"])
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("go to desk 1 </action>")["input_ids"] == tokenizer("go to desk 1 </action>")["input_ids"]
    assert loaded.eos_token == CLOSE_TAG
