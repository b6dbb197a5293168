"""SCPO in a custom training loop: NumPy only, a tabular policy, a game of six doors in order.

python examples/custom_loop.py [scpo | gigpo | grpo | rloo]. What a trainer of yours needs of scpo
is `advantages`; the rest is the game and the policy gradient. The game is nothing but progress
along one path, which is what SCPO credits: it shows the calls and says nothing about how methods
compare elsewhere.
"""

import sys

import numpy as np

import scpo
from scpo.errors import ScpoError

DOORS, KEYS, LIMIT = 6, 4, 9  # doors in a row, keys to choose from, steps of an episode
# The rows of this loop stay in time order; the paper's balanced order is that of verl's batches.
SETTINGS = {"scpo": {"order": "chronological"}}
TASKS, SIBLINGS, TRAINING_STEPS, LEARNING_RATE = 4, 8, 60, 0.5

right_key = np.random.default_rng(0).integers(KEYS, size=(TASKS, DOORS))


def play(task, logits, rng):
    """Play one rollout: the right key opens the next door; reward 1 for the last door."""
    door, steps, choices = 0, [], []
    while door < DOORS and len(steps) < LIMIT:
        chance = np.exp(logits[task, door]) / np.exp(logits[task, door]).sum()
        key = rng.choice(KEYS, p=chance)
        before, opened = f"You stand before door {door + 1}.", key == right_key[task, door]
        choices.append((task, door, key))
        door += int(opened)
        answer = f"You stand before door {door + 1}." if opened else "Nothing happens."
        steps.append(scpo.Step(before, f"use key {key}", answer, reward=float(door == DOORS)))
    return scpo.Episode(group=task, steps=steps), choices


def advantages(episodes, method, scorer, seed):
    """Advantages of all steps, episode by episode in time order: all that a trainer needs."""
    batch = scpo.StepBatch.from_episodes(episodes)
    advantage_N, diagnostics = scpo.assign(batch, scorer, method, seed=seed)
    return advantage_N, diagnostics.metrics, float(batch.success_N[batch.step_N == 0].mean())


def train(method_name="scpo", seed=0, steps=TRAINING_STEPS):
    """The success rate of every training step."""
    settings = SETTINGS.get(method_name, {})
    method, scorer = scpo.load_method(method_name, **settings), scpo.load_scorer("exact")
    logits, rng, rates = np.zeros((TASKS, DOORS, KEYS)), np.random.default_rng(seed), []
    for step in range(steps):
        played = [play(task, logits, rng) for task in range(TASKS) for _ in range(SIBLINGS)]
        advantage_N, _, rate = advantages(
            [episode for episode, _ in played], method, scorer, (seed, step)
        )
        rates.append(rate)
        choices = [choice for _, made in played for choice in made]
        before, gradient = logits.copy(), np.zeros_like(logits)
        for (task, door, key), advantage in zip(choices, advantage_N, strict=True):
            chance = np.exp(before[task, door]) / np.exp(before[task, door]).sum()
            gradient[task, door] += advantage * (np.eye(KEYS)[key] - chance) / len(choices)
        logits += LEARNING_RATE * SIBLINGS * gradient
    return rates


if __name__ == "__main__":
    try:
        rates = train(*sys.argv[1:2])
    except ScpoError as error:  # such as an unknown method
        sys.exit(f"error: {error}")
    print(
        f"success in the first 10 steps {np.mean(rates[:10]):.2f}, in the last 10 "
        f"{np.mean(rates[-10:]):.2f}"
    )
