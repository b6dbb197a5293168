"""Configuration of environments and of the panels of games that are trained on and evaluated."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from scpo.advantages.groups import Normalisation
from scpo.benchmarks import BENCHMARKS
from scpo.shaping.step_text import StepFilter
from scpo.strict import Strict

FAMILIES = {column: family.id for column, family in BENCHMARKS["alfworld"].families.items()}
"""ALFWorld's task families: the columns of the result table, and the name of each in the game files."""

TUNING = "tuning"
"""The panel that a search judges its trials on; no result is reported on it."""

PanelName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


HeldOut = Annotated[bool, Field(exclude_if=lambda held_out: not held_out)]
"""Whether the tasks of a panel are kept out of training; where they are not, it stands in no run's identity."""


Family = Literal["Pick", "Look", "Clean", "Heat", "Cool", "Pick2"]


def _not_empty(families: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if families == ():
        raise ValueError("a panel is of one family at least; null: of all")
    return families


Families = Annotated[
    tuple[Family, ...] | None, AfterValidator(_not_empty), Field(exclude_if=lambda families: families is None)
]
"""Which task families a panel is of; all of them, None, stand in no run's identity."""


class PanelConfig(Strict):
    """A fixed, sorted list of games, balanced over ``families`` and drawn with ``seed``.

    ``games`` None takes all of the split; ``subset_of_training`` draws from the training panel instead of the split,
    ``held_out`` takes the games away from the training panel and from imitation; ``repeats`` is the number of episodes
    a game at validation.
    """

    split: Literal["train", "valid_seen", "valid_unseen"]
    games: PositiveInt | None
    seed: NonNegativeInt
    families: Families = None
    subset_of_training: bool = False
    held_out: HeldOut = False
    repeats: PositiveInt = 1


class GeneratedGames(Strict):
    """Sizes of the splits of the offline default; a game is a pure function of (split, seed, index)."""

    seed: NonNegativeInt
    train: PositiveInt
    valid_seen: PositiveInt
    valid_unseen: PositiveInt


class BenchmarkTraining(Strict):
    """What differs between benchmarks in the method, the trainer and a small policy, which read it from here.

    ``warm_start_steps`` updates of ``warm_start_rows`` demonstrated steps each come before a small policy's training.
    """

    normalisation: Normalisation
    mini_batch_rows: PositiveInt
    max_prompt_tokens: PositiveInt
    warm_start_steps: PositiveInt
    warm_start_rows: PositiveInt


_READ_ELSEWHERE = ("baselines", "imitation_steps")


class EnvironmentSettings(Strict):
    """What all environments share."""

    @model_validator(mode="before")
    @classmethod
    def _some_is_read_where_it_is_used(cls, data: Any) -> Any:
        """Without what conf/estimator (``baselines``, by benchmark) and conf/model (``imitation_steps``) have taken."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if key not in _READ_ELSEWHERE}


class AlfworldConfig(EnvironmentSettings):
    """``gives_states``: its episodes are ``scpo.envs.base.StatefulEpisode``; ``gives_facts``: with structured facts."""

    gives_states: ClassVar[bool] = True
    gives_facts: ClassVar[bool] = True

    name: Literal["alfworld"]
    games: Literal["generated", "official"]
    generated: GeneratedGames
    prompt: Literal["verl_agent", "compact", "memory"]
    history_length: NonNegativeInt
    horizon: PositiveInt
    win_reward: PositiveFloat
    success_threshold: NonNegativeFloat
    shaper_alpha: NonNegativeFloat
    step_filter: StepFilter
    training: BenchmarkTraining
    train_panel: PanelConfig
    validation_panels: dict[PanelName, PanelConfig]
    probe_panel: PanelConfig
    failure_retries: NonNegativeInt

    @property
    def benchmark(self) -> str:
        """The name that results go by."""
        return self.name


class GoalPanelConfig(Strict):
    """A fixed, sorted list of WebShop goals, balanced over categories; see :class:`PanelConfig`."""

    split: Literal["train", "test"]
    goals: PositiveInt | None
    seed: NonNegativeInt
    subset_of_training: bool = False
    held_out: HeldOut = False
    repeats: PositiveInt = 1


class GeneratedShop(Strict):
    """The offline default; the catalogue is a pure function of these."""

    seed: NonNegativeInt
    products: PositiveInt


class StackWorkers(Strict):
    """verl-agent's workers, each with its own seed and so its own order of the goals; read with order=verl_agent."""

    seed: NonNegativeInt
    train: PositiveInt
    test: PositiveInt
    test_seed_offset: PositiveInt


WebshopReward = Literal["won", "score"]


class WebshopSetting(Strict):
    """Where the paper's text and its stack's code differ."""

    reward: WebshopReward
    normalisation: Normalisation
    mini_batch_rows: PositiveInt
    max_prompt_tokens: PositiveInt


class WebshopConfig(EnvironmentSettings):
    """``settings`` are those that ``setting`` chooses from; the keys that they differ in are read through it."""

    gives_states: ClassVar[bool] = True
    gives_facts: ClassVar[bool] = True

    name: Literal["webshop"]
    setting: Literal["stack", "paper"]
    settings: dict[Literal["stack", "paper"], WebshopSetting]
    catalogue: Literal["generated", "official"]
    generated: GeneratedShop
    goals: Literal["synthetic", "human"]
    nouns: Literal["spacy", "stop_list", "all_tokens"]
    order: Literal["fixed", "verl_agent"]
    order_seed: NonNegativeInt
    test_goals: PositiveInt
    workers: StackWorkers
    prompt: Literal["verl_agent", "compact", "memory"]
    max_prompt_characters: PositiveInt
    history_length: NonNegativeInt
    horizon: PositiveInt
    reward: WebshopReward
    reward_scale: PositiveFloat
    success_threshold: NonNegativeFloat
    shaper_alpha: NonNegativeFloat
    step_filter: StepFilter
    training: BenchmarkTraining
    train_panel: GoalPanelConfig
    validation_panels: dict[PanelName, GoalPanelConfig]
    probe_panel: GoalPanelConfig
    failure_retries: NonNegativeInt

    @property
    def benchmark(self) -> str:
        """The name that results go by: those of the two settings never share a table."""
        return "webshop" if self.setting == "stack" else "webshop_paper"


EnvConfig = Annotated[AlfworldConfig | WebshopConfig, Field(discriminator="name")]
