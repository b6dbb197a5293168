"""Steps per second and memory of WebShop against the original, whose figures were recorded once.

    python -m bench.bench_webshop [folder of the official files; default: the generated catalogue]

The original (Flask, BeautifulSoup, Lucene in a JVM) makes 61.5 steps a second and takes 690 to 970
MB an environment.
"""

import random
import sys
import time
import tracemalloc

from scpo.envs.webshop import Catalogue, WebShop, load_catalogue
from scpo.envs.webshop.catalogue.generated_catalogue import generated_catalogue
from scpo.envs.webshop.demonstrations import buy, query_for

ORIGINAL_STEPS = 61.5
GOAL_RATIO = 100
GOAL_MEGABYTES = 1.0
EPISODES = 2000
ENVIRONMENTS = 128
HORIZON = 15


def walk(shop: WebShop, rng: random.Random) -> int:
    """One episode of a customer who searches, clicks at random and in the end buys; returns its steps."""
    shop.step(f"search[{query_for(shop.goal)}]")
    for step in range(2, HORIZON + 1):
        names = shop.available_actions()["clickables"]
        if shop.step(f"click[{rng.choice(names)}]")[2]:
            return step
    return HORIZON


def steps_per_second(catalogue: Catalogue) -> float:
    """Steps with observation and available actions, resets counted in the time, new searches included."""
    shop, rng = WebShop(catalogue, 0, "all_tokens"), random.Random(0)
    shop.reset(0)
    shop.step("search[warm up]")  # the index is built once a process
    started, steps = time.perf_counter(), 0
    for episode in range(EPISODES):
        shop.reset(episode % len(shop.goals))
        steps += walk(shop, rng)
    return steps / (time.perf_counter() - started)


def megabytes_per_environment(catalogue: Catalogue, *, own_seeds: bool) -> float:
    """Memory of 128 environments in the middle of an episode, beyond the catalogue that they share."""
    WebShop(catalogue, 0, "all_tokens").reset(0)
    tracemalloc.start()
    shops = [WebShop(catalogue, 1 + seed if own_seeds else 0, "all_tokens") for seed in range(ENVIRONMENTS)]
    for index, shop in enumerate(shops):
        shop.reset(index)
        for action in list(zip(range(3), buy(shop), strict=False)):
            shop.step(action[1])
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(shops) / 1e6


def main() -> int:
    """Print the figures; exit status 1 if a goal is missed."""
    catalogue = load_catalogue(sys.argv[1]) if len(sys.argv) > 1 else generated_catalogue(0, 1000)
    started = time.perf_counter()
    _ = catalogue.index
    print(f"WebShop, {len(catalogue)} products, index built in {time.perf_counter() - started:.2f} s")
    steps = steps_per_second(catalogue)
    ratio = steps / ORIGINAL_STEPS
    print(f"steps/s {steps:10.0f}   {ratio:.0f} times the original's {ORIGINAL_STEPS} (goal {GOAL_RATIO})")
    shared = megabytes_per_environment(catalogue, own_seeds=False)
    own = megabytes_per_environment(catalogue, own_seeds=True)
    print(f"MB an environment beyond the catalogue: {shared:.3f}, with a goal order of its own {own:.3f} (goal < 1)")
    return int(ratio < GOAL_RATIO or own >= GOAL_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
