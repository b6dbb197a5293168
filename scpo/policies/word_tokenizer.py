"""A word-level tokenizer trained on the environment's text, for policies built from config."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from scpo.envs.projection import CLOSE_TAG, OPEN_TAG

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN = "<pad>", "<unk>"
WORD = r"</?action>|[a-z]+|\d+|[>|:;]"


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token per lower-case word, number and mark of ``texts``.

    The closing action tag ends a response.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    special = [PAD, CLOSE_TAG, UNKNOWN, OPEN_TAG]
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text.lower())}
    # Ids follow the alphabet, not the counts of a particular sample.
    vocabulary = {word: index for index, word in enumerate(special + sorted(words.difference(special)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = split
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=CLOSE_TAG,
        unk_token=UNKNOWN,
        padding_side="left",
    )
