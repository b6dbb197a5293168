"""The whole configuration of one run."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    model_validator,
)

from scpo.benchmarks import BENCHMARKS
from scpo.errors import ConfigError
from scpo.schema.env import EnvConfig
from scpo.schema.method import MethodConfig, TrainedMethod, misfit, required
from scpo.schema.model import ModelConfig
from scpo.schema.scorer import ScorerConfig, ScorerRuntime
from scpo.schema.trainer import TrainerConfig
from scpo.strict import Scale, Seed, Strict

# The tracked file with the settings of a cluster.
SITE = "slurm/site.yaml"


class WandbConfig(Strict):
    """W&B mirror of metrics.jsonl, which remains the record of the run.

    Attributes:
        mode: Offline writes W&B's files for a later upload.
        entity: User or team; None: the default of the W&B account.
        init_timeout_s: Seconds to wait for the mirror at the start; then the run trains without it.
        finish_timeout_s: Seconds to wait for the upload at the end of a run.
    """

    mode: Literal["offline", "online", "disabled"]
    project: str
    entity: str | None
    init_timeout_s: PositiveFloat
    finish_timeout_s: PositiveFloat


class ApiLimits(Strict):
    """Limits of API calls; read with ``model.kind: api``.

    Attributes:
        requests_per_minute: Largest rate of requests, over all episodes; they are evenly spaced.
        concurrency: Episodes played at a time.
        timeout_s: Limit of one request, its whole answer included.
        attempts: Attempts at a request before the run stops.
        backoff_s: Bound of the first random wait between attempts; it doubles each time. Read only
            where the endpoint does not ask for a wait.
        longest_wait_s: Bound of every wait, also of one that the endpoint asks for.
    """

    requests_per_minute: PositiveFloat
    concurrency: PositiveInt
    timeout_s: PositiveFloat
    attempts: PositiveInt
    backoff_s: PositiveFloat
    longest_wait_s: PositiveFloat


class MachineConfig(Strict):
    """Settings of this machine; excluded from a run's identity.

    Attributes:
        runs_dir: Folder of run folders.
        archive: An archive of finished runs (``docs/study``), which sweeps do not start again.
        cache_dir: Folder for files that are expensive to build but can be rebuilt; shared by all
            runs.
        data: Folder of the official files by environment; None without one.
        device: Of the local trainer; auto: a GPU if there is one.
        threads: Threads of a run's libraries. The last bits of sums depend on their number, so a
            run that must be repeated to the bit keeps it.
        scorer: Process and deadlines of the scorer.
        api: Limits of API calls.
        resume_across_versions: Resume a run that another version of this code began.
    """

    runs_dir: str
    # Has a default, because older configurations lack this setting.
    archive: str | None = None
    cache_dir: str
    data: dict[str, str | None]
    device: Literal["auto", "cpu", "cuda"]
    threads: PositiveInt
    scorer: ScorerRuntime
    api: ApiLimits
    resume_across_versions: bool


class LocalLauncher(Strict):
    """Pool of slots on this machine.

    Attributes:
        slots: Runs at a time; None: one for each ``gpus_per_run`` GPUs or, where runs use none, for
            each ``machine.threads`` cores.
        gpus_per_run: GPUs of a slot; None: as many as the run that needs most of them.
        fork: Runs without a GPU begin in processes forked from one that has opened their games.
        max_failures: Failed attempts after which a run is not started again.
    """

    name: Literal["local"]
    slots: PositiveInt | None
    gpus_per_run: PositiveInt | None
    # Has a default, because older configurations lack this setting.
    fork: bool = True
    max_failures: PositiveInt


def _site(value: str) -> str:
    """The site file; an empty SCPO_SITE counts as unset."""
    return value or SITE


class SlurmLauncher(Strict):
    """One Slurm job per run, in arrays of jobs with equal resources.

    Attributes:
        gpus: GPUs of a node; None: what the run needs.
        cpus: Cores; None: what the run needs.
        gpu_gb: Memory of one of the cluster's GPUs; a run that needs more is refused.
        parallelism: Jobs of a call that run at a time, over all its arrays.
        time_h: Time limit; None: from the paper's duration of such a run, or an estimate.
        warn_s: How long before its time limit a job is signalled to checkpoint.
        max_timeouts: Number of time limits without a new step after which a run is still requeued;
            at one more it has failed.
        max_failures: Failed attempts after which a run is not started again.
        probe_s: How long a submission waits for a test job, which reads and writes the runs' files
            from a node; 0: no test.
        site: The file with the cluster's own settings, or the name of a preset.
    """

    name: Literal["slurm"]
    gpus: NonNegativeInt | None
    cpus: PositiveInt | None
    gpu_gb: PositiveFloat
    parallelism: PositiveInt
    time_h: PositiveFloat | None
    warn_s: PositiveInt
    max_timeouts: NonNegativeInt
    max_failures: PositiveInt
    # Has a default, because older configurations lack this setting.
    probe_s: NonNegativeInt = 60
    site: Annotated[str, AfterValidator(_site)]


class OtherLauncher(BaseModel):
    """Settings of a launcher added to the registry of ``sweeps.launchers``; it checks its own."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    max_failures: PositiveInt


def _launcher_tag(settings: Any) -> str:
    """Tag of a launcher's settings, from the YAML's dict or from an instance."""
    name = settings.get("name") if isinstance(settings, dict) else getattr(settings, "name", None)
    # Other launchers check their settings themselves, when they are made.
    return name if name in ("local", "slurm") else "other"


LauncherConfig = Annotated[
    Annotated[LocalLauncher, Tag("local")]
    | Annotated[SlurmLauncher, Tag("slurm")]
    | Annotated[OtherLauncher, Tag("other")],
    Discriminator(_launcher_tag),
]


class RunConfig(Strict):
    """Everything that determines one run; its id ignores ``machine``, ``wandb`` and ``launcher``.

    The validators below refuse combinations of sections that cannot run or would not do what they
    state. They run when a configuration is composed, so a sweep is refused as a whole before its
    first run.
    """

    scale: Scale
    seed: Seed
    method: MethodConfig
    env: EnvConfig
    model: ModelConfig
    trainer: TrainerConfig
    scorer: ScorerConfig
    wandb: WandbConfig
    machine: MachineConfig
    launcher: LauncherConfig

    @property
    def trained(self) -> TrainedMethod:
        """The method, if it is trained.

        Raises:
            ConfigError: The method only prompts.
        """
        if self.method.kind == "prompted":
            raise ConfigError(
                f"method {self.method.name!r} only prompts: it is evaluated, not trained"
            )
        return self.method

    @property
    def data_folder(self) -> str | None:
        """Folder of the environment's official files on this machine; None without one."""
        # An empty ALFWORLD_DATA counts as unset.
        return self.machine.data.get(self.env.name) or None

    @model_validator(mode="after")
    def _method_fits_trainer(self) -> Self:
        if reason := misfit(self.method, self.trainer.name):
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _states_are_given(self) -> Self:
        if self.method.kind != "trained":
            return self
        reason = _no_identity(self)
        if reason is None and self.method.reads_states:
            reason = _no_states(self)
        if reason:
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _method_fits_model(self) -> Self:
        model = self.model
        if self.method.kind == "trained":
            if model.kind == "api":
                raise ValueError(
                    f"model={model.name} is behind an API, through which it cannot be trained: "
                    f"method={self.method.name} trains; allowed: method=plain, react or reflexion"
                )
            return self

        agent = self.method.agent
        if agent.name != "plain" and model.kind in ("tiny", "choice"):
            raise ValueError(
                f"method={self.method.name} needs a model that follows instructions (kind "
                f"huggingface or api), got model={model.name}, which writes bare commands; allowed "
                "for it: method=plain"
            )
        # The compact prompt is written for the tiny policy, which was trained on it.
        if (agent.name, model.kind) != ("plain", "tiny") and self.env.prompt == "compact":
            raise ValueError(
                f"method={self.method.name} with model={model.name} reads env.prompt=verl_agent, "
                "got compact: that prompt holds no instructions. Add env.prompt=verl_agent and, "
                "for longer thoughts, trainer.max_prompt_tokens=2048 "
                "trainer.max_response_tokens=512"
            )
        return self

    @model_validator(mode="after")
    def _choice_policy_is_served(self) -> Self:
        if self.model.kind == "choice":
            if reason := _no_choice(self):
                raise ValueError(reason)
        elif self.env.prompt == "memory":
            raise ValueError(
                "only model=choice reads env.prompt=memory, got "
                f"model={self.model.name}; its prompt is "
                f"env.prompt={'compact' if self.model.kind == 'tiny' else 'verl_agent'}"
            )
        return self

    def check_started_here(self) -> None:
        """Check that train.py and sweep.py can run this configuration themselves.

        Raises:
            ConfigError: It trains in verl-agent's own environment; the message names commands.
        """
        if self.trainer.name == "verl_agent" and self.method.kind == "trained":
            raise ConfigError(
                "trainer=verl_agent trains in verl-agent's own environment: make the folder of "
                "each run with `python train.py --prepare trainer=verl_agent ...` and, in that "
                "environment, run `python -m scpo.integrations.verl_agent <folder>` (docs/verl.md)"
            )


def _no_states(config: RunConfig) -> str | None:
    """Reason why the steps of a run have no states to compare; None if they have."""
    settings = ", ".join(config.trained.reads_states)
    asked = f"method={config.method.name} with {settings} compares steps by their states, which"
    instead = "use method.estimator.state_key=anchor, and the shaper's defaults"
    if not config.env.gives_states:
        return f"{asked} env={config.env.name} does not give: {instead}"
    # The fork's rows hold only observations and commands; only in some benchmarks do these
    # determine the state.
    if (
        config.trainer.name == "verl_agent"
        and not BENCHMARKS[config.env.benchmark].states_from_text
    ):
        readable = ", ".join(
            name for name, benchmark in BENCHMARKS.items() if benchmark.states_from_text
        )
        return (
            f"{asked} trainer=verl_agent can read on env={readable} only, got "
            f"env={config.env.name}: {instead}"
        )
    return None


def _no_identity(config: RunConfig) -> str | None:
    """Reason why the run cannot compare states as its method asks; None if it can."""
    for setting, identity in config.trained.identities.items():
        asked = f"{setting}={identity.name}"
        # Results that use the simulator's state must not share a table with those of real agents.
        if "truth" in identity.requires and config.scale != "study":
            return (
                f"{asked} reads the simulator's state, which an agent never has: scale=study "
                f"only, got scale={config.scale}; use states=history or states=entities"
            )
        # Two names of one run would enter a table as two rows.
        if "truth" in identity.requires and config.env.wordings.dose == 0:
            return (
                f"{asked} is states=exact where nothing is reworded (env.wordings.dose=0): "
                "use states=exact"
            )
        lacks_facts = config.trainer.name == "verl_agent" or not config.env.gives_facts
        if lacks_facts and identity.requires & {"facts", "truth"}:
            return (
                f"{asked} reads what env={config.env.name} with trainer={config.trainer.name} does "
                "not give; use states=history or states=entities, which read texts and actions"
            )

    shaper = config.trained.shaper
    if shaper is not None and shaper.states is not None and config.scorer.kind != "exact":
        return (
            f"method.shaper.states={shaper.states} compares states instead of scoring texts, so "
            f"scorer={config.scorer.name} would not be read; use scorer=exact"
        )

    return None


def _no_choice(config: RunConfig) -> str | None:
    """Reason why a choice policy cannot run this configuration; None if it can."""
    if config.trainer.name != "local":
        return (
            f"model=choice trains on trainer=local only, got trainer={config.trainer.name}: it "
            "chooses among commands and writes no text, so it does not need a text engine"
        )
    if config.env.prompt != "memory":
        return (
            f"model=choice reads only env.prompt=memory, got env={config.env.name} with env.prompt="
            f"{config.env.prompt}; scale=study sets all that it needs"
        )
    if config.trainer.max_response_tokens != 1:
        return (
            "model=choice answers with one token, the number of a command: "
            f"trainer.max_response_tokens must be 1, got {config.trainer.max_response_tokens}; "
            "scale=study sets it"
        )
    if "hindsight_logprob" in required(config.method):
        return (
            f"method={config.method.name} needs hindsight_logprob, which model=choice does not "
            "provide: hindsight is text before the prompt, which a choice policy does not read; "
            "models that do: tiny, huggingface"
        )

    return None
