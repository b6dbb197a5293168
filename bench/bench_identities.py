"""Quality and cost of every state identity on reworded ALFWorld rollouts, without training.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m bench.bench_identities [--minilm]

Rollouts are walkthroughs with detours, half of them given up (``bench.scripted_rollouts``). For
each arm of rewording, on batches of games that no other batch has: precision and recall of "same
state" over pairs of rows of a group, by the state text; cosine of CRBC's and GraphGPO's step terms
with those of the true states; seconds of the identity for one batch. ``learned`` and ``history``
count on the batch itself, so that there are no training games or wordings to leave out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.scripted_rollouts import scripted_batch
from scpo.credit.assign import assign
from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.library import load_method, load_scorer
from scpo.schema.env import AlfworldConfig, WordingsConfig
from scpo.states.identity import Similarity
from scpo.states.registry import IDENTITIES, identify
from scpo.steps import StepBatch
from sweeps.compose.configuration import compose_run

GROUPS, SIBLINGS, HORIZON = 16, 8, 30
ARMS: dict[str, tuple[str, ...]] = {
    "paraphrase, order": ("paraphrase", "order"),
    "suffix": ("suffix",),
    "with pronouns": ("paraphrase", "order", "pronouns"),
    "with aliases": ("paraphrase", "order", "aliases"),
    "all": ("paraphrase", "order", "suffix", "pronouns", "aliases"),
}
METHODS = ("crbc", "graphgpo")
SLOW = {"difflib"}  # a quadratic comparison of characters: measured where it is the default's rival


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minilm", action="store_true", help="with all-MiniLM-L6-v2 at its 0.7")
    parser.add_argument("--cache", default=".cache/scpo", help="folder of translated games")
    options = parser.parse_args(arguments)
    scorer = load_scorer("minilm") if options.minilm else None
    print("| arms | identity | precision | recall | cosine CRBC | cosine GraphGPO | seconds |")
    print("|---|---|---|---|---|---|---|")
    for arm, arms in ARMS.items():
        batch = scripted_batch(
            _environment(arms, Path(options.cache)), "train", groups=GROUPS, siblings=SIBLINGS, seed=0
        )
        for name, entry in IDENTITIES.items():
            if "scorer" in entry.requires and scorer is None:
                continue
            if name in SLOW and arm != "paraphrase, order":
                continue
            print(_line(arm, name, batch, scorer), flush=True)


def _environment(arms: tuple[str, ...], cache: Path) -> AlfworldEnvironment:
    config = compose_run(["scale=study", "method=crbc"]).env
    if not isinstance(config, AlfworldConfig):
        raise TypeError(f"rollouts are of ALFWorld, got env={config.name}")
    wordings = WordingsConfig.model_validate(
        {"dose": 1.0, "count": 8, "first": 0, "arms": arms, "told_to": "credit", "seed": 0}
    )
    changed = config.model_copy(update={"prompt": "compact", "horizon": HORIZON, "wordings": wordings})
    return AlfworldEnvironment(changed, cache_dir=cache)


def _line(arm: str, name: str, batch: StepBatch, scorer: Similarity | None) -> str:
    threshold = 0.7 if name == "scorer" else None
    entry = IDENTITIES[name]
    started = time.perf_counter()
    identify(batch, "state", entry, scorer)
    seconds = time.perf_counter() - started
    cells, cosines = [], []
    for method in METHODS:
        config = load_method(method, states=name, states_threshold=threshold)
        metrics = assign(batch, scorer, config)[1].metrics
        cosines.append(f"{metrics['states/cosine']:.3f}")
        cells = [f"{metrics.get(f'states/{key}', np.nan):.3f}" for key in ("precision", "recall")]
    return f"| {arm} | {name} | {' | '.join([*cells, *cosines, f'{seconds:.2f}'])} |"


if __name__ == "__main__":
    main()
