import pytest
from pydantic import ValidationError

from scpo.errors import ConfigError
from scpo.strict import Strict
from sweeps.compose.configuration import compose_run


class Settings(Strict):
    steps: int
    rate: float | None = None
    seeds: tuple[int, ...] = ()
    by_scale: dict[str, tuple[int, ...] | int] | None = None
    on: bool = False


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": True},
        {"rate": True},
        {"rate": False},
        {"seeds": [0, True]},
        {"by_scale": {"mini": [1, False]}},
        {"by_scale": {"mini": True}},
    ],
    ids=str,
)
def test_true_and_false_are_no_numbers(wrong):
    """pydantic reads them as 1 and 0: `trainer.steps=true` trained one step."""
    with pytest.raises(ValidationError) as caught:
        Settings(**{"steps": 3, **wrong})
    [detail] = caught.value.errors()
    assert detail["loc"] == tuple(wrong)
    assert detail["msg"] == "a number is expected, which true and false are not"


def test_numbers_and_switches_are_read_as_before():
    read = Settings(steps="3", rate=1, seeds=[0, 1.0], by_scale={"mini": 2}, on=True)
    assert read == Settings(steps=3, rate=1.0, seeds=(0, 1), by_scale={"mini": 2}, on=True)
    # A model that was validated before.
    assert Settings.model_validate(read) is read


@pytest.mark.parametrize(
    "word",
    [
        "seed=true",
        "trainer.steps=true",
        "trainer.optimizer.learning_rate=true",
        "method.shaper.theta=true",
        "launcher.slots=true",
    ],
)
def test_a_setting_of_a_run_is_named_with_its_key(word):
    key = word.partition("=")[0]
    with pytest.raises(ConfigError) as caught:
        compose_run(["scale=mini", "method=scpo", word])
    assert str(caught.value) == f"{key}: got True; a number is expected, which true and false are not"
