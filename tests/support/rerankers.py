"""Small rerankers with random weights and tokenizers of their own, in the shape of the published ones."""

import pytest

from scpo.schema.scorer import CrossEncoderScorer

SENTENCES = [
    "go to cabinet 1 || You arrive at cabinet 1. The cabinet 1 is closed.",
    "go to cabinet 2 || You arrive at cabinet 2. The cabinet 2 is closed.",
    "open drawer 3 || You open the drawer 3. The drawer 3 is open. In it, you see a pen 1, and a watch 2.",
    "heat egg 1 with microwave 1 || You heat the egg 1 using the microwave 1.",
    "look || " + "On the countertop 1, you see a apple 1, a bread 2, a knife 3, and a spoon 1. " * 3,
    "x",
]


def config(path, **changes):
    values = {"kind": "cross_encoder", "name": "tiny", "path": str(path), "dtype": "auto", "batch_tokens": 256}
    return CrossEncoderScorer(**(values | {"max_tokens": 512} | changes))


def save_reranker(folder, family, *, seed=0, labels=1):
    """A model and tokenizer in the files of ``save_pretrained``; ``family``: ``xlm_r`` or ``bert``."""
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    pytest.importorskip("transformers", reason="needs transformers: make setup")
    tokenizer = {"xlm_r": _xlm_r_tokenizer, "bert": _bert_tokenizer}[family]()
    torch.manual_seed(seed)
    model = _model(family, len(tokenizer), labels)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "classifier" in name and weight.ndim == 2:
                weight.normal_(std=0.5)  # scores that differ from pair to pair
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def _model(family, words, labels):
    import transformers

    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    if family == "xlm_r":
        config = transformers.XLMRobertaConfig(
            vocab_size=words, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, num_labels=labels, **size
        )
        return transformers.XLMRobertaForSequenceClassification(config)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=words, num_labels=labels, **size)
    )


def _xlm_r_tokenizer():
    """Pieces of a unigram model, as SentencePiece makes them: letters, and the commonest words."""
    from transformers import XLMRobertaTokenizer

    letters = sorted({letter for text in SENTENCES for letter in text if letter != " "})
    words = sorted({f"▁{word}" for text in SENTENCES for word in text.split()})
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [("▁", -4.0), *((letter, -6.0) for letter in letters), *((word, -3.0) for word in words)]
    return XLMRobertaTokenizer(vocab=[*special, *pieces, ("<mask>", 0.0)], model_max_length=512)


def _bert_tokenizer():
    from transformers import BertTokenizer

    letters = sorted({letter for text in SENTENCES for letter in text.lower() if letter != " "})
    words = sorted({word.strip(".,") for text in SENTENCES for word in text.lower().split()} - set(letters))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *words]
    return BertTokenizer(vocab={token: i for i, token in enumerate(tokens)}, model_max_length=512)
