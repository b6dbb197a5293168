"""Configuration of environments and of the panels of games that are trained on and evaluated."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from scpo.schema.base import Strict
from scpo.schema.method import StepFilter

PanelName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


class PanelConfig(Strict):
    """A fixed, sorted list of games, balanced over families and drawn with ``seed``.

    ``games`` None takes all of the split; ``subset_of_training`` draws from the training panel instead of the split.
    """

    split: Literal["train", "valid_seen", "valid_unseen"]
    games: PositiveInt | None
    seed: NonNegativeInt
    subset_of_training: bool = False


class GeneratedGames(Strict):
    """Sizes of the splits of the offline default; a game is a pure function of (split, seed, index)."""

    seed: NonNegativeInt
    train: PositiveInt
    valid_seen: PositiveInt
    valid_unseen: PositiveInt


class AlfworldConfig(Strict):
    name: Literal["alfworld"]
    games: Literal["generated", "official"]
    generated: GeneratedGames
    prompt: Literal["verl_agent", "compact"]
    history_length: NonNegativeInt
    horizon: PositiveInt
    win_reward: PositiveFloat
    success_threshold: NonNegativeFloat
    shaper_alpha: NonNegativeFloat
    step_filter: StepFilter
    train_panel: PanelConfig
    validation_panels: dict[PanelName, PanelConfig]
    probe_panel: PanelConfig
    failure_retries: NonNegativeInt


EnvConfig = AlfworldConfig
