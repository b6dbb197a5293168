"""Configuration of environments and of the panels of games that are trained on and evaluated.

Values and their sources are in ``conf/env/<name>.yaml``. Fields with ``exclude_if`` are left out
of a dumped configuration at their usual value: a run's id is a hash of the dump, and a setting that
was added later must not change the ids of runs that do not use it.
"""

from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scpo.advantages.groups import Normalisation
from scpo.benchmarks import BENCHMARKS
from scpo.shaping.step_text import StepFilter
from scpo.strict import Seed, Strict

FAMILIES = {column: family.id for column, family in BENCHMARKS["alfworld"].families.items()}
"""ALFWorld's task families: name in the game files by column of the result table."""

MOST_PARAPHRASES = 8
"""Number of paraphrases of every sentence, not counting the environment's own form."""

TUNING = "tuning"
"""The panel that a search judges its trials on; no result is reported on it."""

PanelName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]

HeldOut = Annotated[bool, Field(exclude_if=lambda held_out: not held_out)]
"""Keeps the tasks of a panel out of training; False is left out of a run's identity."""

Family = Literal["Pick", "Look", "Clean", "Heat", "Cool", "Pick2"]


def _not_empty(families: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Refuse an empty list of families: its panel would be drawn empty without an error."""
    if families == ():
        raise ValueError("a panel needs at least one task family; null: all families")
    return families


Families = Annotated[
    tuple[Family, ...] | None,
    AfterValidator(_not_empty),
    Field(exclude_if=lambda families: families is None),
]
"""Task families of a panel; None, all of them, is left out of a run's identity."""


class PanelConfig(Strict):
    """Fixed, sorted list of games, balanced over ``families`` and drawn with ``seed``.

    Attributes:
        split: Split of the benchmark that games are drawn from.
        games: Number of games; None takes the whole split.
        seed: Decides which games of a family are drawn first.
        families: Task families, in equal shares as far as they have games; None: all.
        subset_of_training: Draw from the training panel instead of the split.
        held_out: Exclude the games from the training panel and from imitation.
        repeats: Episodes per game at validation.
    """

    split: Literal["train", "valid_seen", "valid_unseen"]
    games: PositiveInt | None
    seed: Seed
    families: Families = None
    subset_of_training: bool = False
    held_out: HeldOut = False
    repeats: PositiveInt = 1


class GeneratedGames(Strict):
    """Sizes of the generated splits; a game is a pure function of (split, seed, index).

    A larger split therefore contains the games of every smaller one.
    """

    seed: Seed
    train: PositiveInt
    valid_seen: PositiveInt
    valid_unseen: PositiveInt


class BenchmarkTraining(Strict):
    """Settings of method, trainer and small policies that differ between benchmarks.

    Grouped in the environment's file, so that method, trainer and model files refer to one place
    and a new benchmark brings its own.

    Attributes:
        normalisation: Advantages are z-scores, or differences from the mean.
        mini_batch_rows: Environment steps of an optimizer step.
        max_prompt_tokens: Longer prompts lose their beginning.
        warm_start_steps: Updates that precede a small policy's training.
        warm_start_rows: Demonstrated steps of each such update.
    """

    normalisation: Normalisation
    mini_batch_rows: PositiveInt
    max_prompt_tokens: PositiveInt
    warm_start_steps: PositiveInt
    warm_start_rows: PositiveInt


Arm = Literal["paraphrase", "order", "suffix", "pronouns", "aliases"]


class WordingsConfig(Strict):
    """The same observations in other words (``scpo.envs.rewording``).

    Attributes:
        dose: Share of observations that are reworded; 0: none.
        count: Paraphrases of a sentence that are drawn from.
        first: Number of the first of these paraphrases, so that others can be kept for a test.
        arms: Kinds of change that are drawn.
        told_to: Reader of the reworded observations: only the rules of credit, or also the policy.
        seed: Seed of the draws.
    """

    dose: Annotated[float, Field(ge=0, le=1)]
    count: Annotated[int, Field(ge=1, le=MOST_PARAPHRASES)]
    first: Annotated[int, Field(ge=0, lt=MOST_PARAPHRASES)]
    arms: tuple[Arm, ...]
    told_to: Literal["credit", "policy"]
    seed: Seed

    @model_validator(mode="after")
    def _draws_are_possible(self) -> Self:
        if self.first + self.count > MOST_PARAPHRASES:
            raise ValueError(
                f"wordings.first={self.first} and wordings.count={self.count} ask for more than "
                f"the {MOST_PARAPHRASES} paraphrases of a sentence; their sum is at most "
                f"{MOST_PARAPHRASES}"
            )
        if self.dose > 0 and not self.arms:
            raise ValueError(
                f"wordings.dose={self.dose:g} rewords observations, but wordings.arms is empty; "
                f"name at least one of {', '.join(get_args(Arm))}, or set wordings.dose=0"
            )
        if len(set(self.arms)) < len(self.arms):
            raise ValueError(f"wordings.arms names an arm twice: {', '.join(self.arms)}")
        return self


_UNWORDED = WordingsConfig(dose=0, count=1, first=0, arms=(), told_to="credit", seed=0)

# Keys of conf/env that conf/estimator and conf/model refer to.
_READ_ELSEWHERE = ("baselines", "imitation_steps")


class EnvironmentSettings(Strict):
    """Settings of all environments."""

    wordings: WordingsConfig = Field(
        # Left out of a run's id where nothing is reworded: such a run keeps the id that it had
        # before this setting existed.
        default=_UNWORDED,
        exclude_if=lambda wordings: wordings.dose == 0,
    )

    @field_validator("wordings")
    @classmethod
    def _unread_at_a_dose_of_0(cls, wordings: WordingsConfig) -> WordingsConfig:
        """Replace settings without effect, so that a recorded configuration reads back equal."""
        return wordings if wordings.dose > 0 else _UNWORDED

    @model_validator(mode="after")
    def _the_policy_reads_words(self) -> Self:
        # A setting without effect would give the same run another id.
        told_to_policy = self.wordings.dose > 0 and self.wordings.told_to == "policy"
        # The subclasses declare `prompt`, each with its own allowed values.
        prompt = getattr(self, "prompt", None)
        # These prompts are built from parts of a transcript that rewording does not change.
        if told_to_policy and prompt in ("memory", "compact"):
            raise ValueError(
                f"wordings.told_to=policy has no effect on prompt={prompt}, "
                "which is built from the content of the environment's own sentences; use "
                "prompt=verl_agent or wordings.told_to=credit"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _without_keys_read_elsewhere(cls, data: Any) -> Any:
        """Drop the keys that only other parts of the configuration interpolate."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if key not in _READ_ELSEWHERE}


class AlfworldConfig(EnvironmentSettings):
    """Configuration of ALFWorld.

    Attributes:
        gives_states: Its episodes are ``scpo.envs.base.StatefulEpisode``.
        gives_facts: Its episodes also have a ``given_state`` with structured facts.
        games: Generated on the package's rooms, or the official release.
        generated: Sizes of the generated splits.
        prompt: ``verl_agent``: that of the paper's stack; ``compact``: for tiny models;
            ``memory``: for choice policies.
        history_length: Latest steps shown in the prompt (the paper's K).
        horizon: Steps after which an episode ends unsuccessfully (T_max).
        win_reward: Reward of the step that wins; all others get 0.
        success_threshold: Return that a success exceeds (tau_succ).
        shaper_alpha: Default of ``method.shaper.alpha`` here.
        step_filter: Steps that matching leaves out.
        training: Settings of method, trainer and model that depend on the benchmark.
        failure_retries: How often an episode is started again after its engine failed.
    """

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
        """Name of the benchmark in results."""
        return self.name


class GoalPanelConfig(Strict):
    """A fixed, sorted list of WebShop goals, balanced over categories; see :class:`PanelConfig`."""

    split: Literal["train", "test"]
    goals: PositiveInt | None
    seed: Seed
    subset_of_training: bool = False
    held_out: HeldOut = False
    repeats: PositiveInt = 1


class GeneratedShop(Strict):
    """Seed and size of the generated catalogue, which is a pure function of them."""

    seed: Seed
    products: PositiveInt


class StackWorkers(Strict):
    """verl-agent's workers, each with its own seed and order of the goals (order=verl_agent).

    Attributes:
        seed: Seed of the first training worker; the others count up from it.
        train: Number of training workers.
        test: Number of validation workers.
        test_seed_offset: Added to the seed of validation workers.
    """

    seed: Seed
    train: PositiveInt
    test: PositiveInt
    test_seed_offset: PositiveInt


WebshopReward = Literal["won", "score"]


class WebshopSetting(Strict):
    """Settings in which the paper's text and verl-agent's code differ."""

    reward: WebshopReward
    normalisation: Normalisation
    mini_batch_rows: PositiveInt
    max_prompt_tokens: PositiveInt


class WebshopConfig(EnvironmentSettings):
    """WebShop; ``setting`` selects one of ``settings``. Further fields as in ``AlfworldConfig``.

    Attributes:
        setting: The stack's values or those of the paper's text (ledger 1).
        settings: The values of both.
        catalogue: Generated products, or the official files.
        goals: Goals made from product attributes, or instructions that people wrote.
        nouns: How the reward finds the nouns of titles: spaCy's tagger, as the original; words
            that are not on a stop list; all tokens, as in the recorded golden episodes.
        order: One order of the goals, with a hold-out, or verl-agent's, without one (ledger 2).
        order_seed: Shuffles the goals where ``order`` is fixed.
        test_goals: Number of goals for tests, from the first one on.
        workers: Read only with ``order=verl_agent``.
        max_prompt_characters: Longer prompts of verl-agent's kind are built without history.
        reward: ``won`` gives ``reward_scale`` for a full score and 0 otherwise; ``score`` gives the
            score times ``reward_scale``.
    """

    gives_states: ClassVar[bool] = True
    gives_facts: ClassVar[bool] = True

    name: Literal["webshop"]
    setting: Literal["stack", "paper"]
    # Both are kept in the file, so that `env.setting` can switch all four values at once.
    settings: dict[Literal["stack", "paper"], WebshopSetting]
    catalogue: Literal["generated", "official"]
    generated: GeneratedShop
    goals: Literal["synthetic", "human"]
    nouns: Literal["spacy", "stop_list", "all_tokens"]
    order: Literal["fixed", "verl_agent"]
    order_seed: Seed
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
        """Name of the benchmark in results; each setting is one, so they never share a table."""
        if self.setting == "stack":
            return "webshop"
        return "webshop_paper"

    @model_validator(mode="after")
    def _pages_have_no_pronouns(self) -> Self:
        unknown = [arm for arm in self.wordings.arms if arm in ("pronouns", "aliases")]
        if self.wordings.dose > 0 and unknown:
            raise ValueError(
                f"wordings.arms={', '.join(unknown)} is not defined on env=webshop, whose pages "
                "are labels and titles; allowed: paraphrase, order, suffix"
            )
        return self


EnvConfig = Annotated[AlfworldConfig | WebshopConfig, Field(discriminator="name")]
