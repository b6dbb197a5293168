"""The whole configuration as pydantic models, extra keys forbidden; imports nothing heavy."""

from scpo.advantages.registry import HOSTS, WITH_STEP_TERM, configuration_folders
from scpo.schema.agent import AGENT_LABELS, AgentConfig, PlainAgent, ReactAgent, ReflexionAgent
from scpo.schema.env import (
    FAMILIES,
    TUNING,
    AlfworldConfig,
    EnvConfig,
    GeneratedGames,
    GoalPanelConfig,
    PanelConfig,
    WebshopConfig,
)
from scpo.schema.experiment import Experiment, ExperimentRow, Measure
from scpo.schema.method import (
    COMPARES_STATES,
    METHOD_LABELS,
    PROVIDES,
    DynamicSampling,
    IndependentSampling,
    MethodConfig,
    SamplingConfig,
    TrainedMethod,
    method_label,
    misfit,
    required,
)
from scpo.schema.model import (
    ApiModel,
    ChoiceModel,
    HuggingFaceModel,
    Imitation,
    ModelConfig,
    Prices,
    TinyModel,
    WarmStart,
)
from scpo.schema.run import (
    ApiLimits,
    LauncherConfig,
    LocalLauncher,
    RunConfig,
    SlurmLauncher,
)
from scpo.schema.scorer import (
    BiEncoderScorer,
    CrossEncoderScorer,
    ExactScorer,
    LexicalScorer,
    ScorerConfig,
    ScorerRuntime,
)
from scpo.schema.search import (
    Choice,
    Dimension,
    LogRange,
    MedianPruning,
    SamplerConfig,
    Search,
    StepRange,
    Tuning,
)
from scpo.schema.trainer import LocalTrainer, LossConfig, TrainerSettings, VerlTrainer
from scpo.shaping.shaper import ShaperConfig
from scpo.strict import MACHINE_SECTIONS, Scale
