"""A choice policy of a few thousand parameters and prompts with a memory, for tests that need a real one."""

from scpo.policies.choice.policy import ChoicePolicy, ScoreNet
from scpo.schema.model import ChoiceModel

COMMANDS = ("close fridge 1", "go to desk 1", "go to shelf 2", "take mug 2 from fridge 1")


def prompt(
    *seen: str, task="put a hot mug in desk.", held="", at="fridge 1", last="", step=0, commands=COMMANDS
) -> str:
    lines = [f"task: {task}", f"holding: {held} | ", f"at: {at}", f"last: {last}", f"step: {step}"]
    return "\n".join([*lines, *(f"seen {one}" for one in seen), *(f"> {command}" for command in commands)])


PROMPTS = [
    prompt(),
    prompt("fridge 1 | 0: mug 2, apple 1", step=1),
    prompt("fridge 1 | 3: apple 1", held="mug 2", at="desk 1", step=4, commands=("go to microwave 1", "look")),
    prompt(),
]


def choice_config(**changes) -> ChoiceModel:
    values = dict(
        kind="choice", name="choice", table_rows=512, width=4, hidden_size=8, init_scale=0.5, init_seed=0,
        imitation=dict(games=6, demonstrations_per_game=2, stop_detour=0.45, max_detours=2, steps=20, batch_size=16,
                       learning_rate=1e-2, seed=0),
        value_model=dict(learning_rate=1e-2, value_clip=100.0, epochs=2),
    )  # fmt: skip
    return ChoiceModel.model_validate(values | changes)


def choice_policy(**changes) -> ChoicePolicy:
    config = choice_config(**changes)
    return ChoicePolicy(ScoreNet(config), config)
