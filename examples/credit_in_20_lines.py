"""Credit of SCPO on three rollouts of a task: success, failure at the last step, early failure."""

import scpo

KITCHEN = "You are in the kitchen."
FRIDGE = "The fridge is open; inside is an egg."
HOLDING = "You hold the egg."


def rollout(*moves, reward=0.0):
    """Build an episode from (observation, action, next observation); its last step is rewarded."""
    steps = [scpo.Step(*move) for move in moves[:-1]] + [scpo.Step(*moves[-1], reward=reward)]
    return scpo.Episode(group="heat an egg", steps=steps)


to_fridge, to_egg = (KITCHEN, "open fridge", FRIDGE), (FRIDGE, "take egg", HOLDING)
success = rollout(to_fridge, to_egg, (HOLDING, "heat egg", "The egg is hot. You won!"), reward=1.0)
near_miss = rollout(to_fridge, to_egg, (HOLDING, "drop egg", "The egg breaks."))
idle = rollout((KITCHEN, "go to bed", "You fall asleep."))

batch = scpo.StepBatch.from_episodes([success, near_miss, idle])
method = scpo.load_method("scpo", theta=0.5, order="chronological")  # as these rows are
advantage_N, diagnostics = scpo.assign(batch, scpo.load_scorer("exact"), method)
for row, action in enumerate(batch.action_N):
    credit, without = diagnostics.shaped.credit_N[row], diagnostics.unshaped_advantage_N[row]
    line = f"{action:12} credit {credit:.1f}  advantage without {without:+.2f}"
    print(f"{line}, with {advantage_N[row]:+.2f}")
