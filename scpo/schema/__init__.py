"""The whole configuration as pydantic models, extra keys forbidden; imports nothing heavy."""

from scpo.schema.env import (
    AlfworldConfig,
    BenchmarkTraining,
    EnvConfig,
    GeneratedGames,
    GeneratedShop,
    GoalPanelConfig,
    PanelConfig,
    StackWorkers,
    WebshopConfig,
)
from scpo.schema.method import EstimatorConfig, GigpoSettings, GrpoSettings, MethodConfig, ShaperConfig, StepFilter
from scpo.schema.model import HuggingFaceModel, ModelConfig, TinyModel, WarmStart
from scpo.schema.run import (
    MACHINE_SECTIONS,
    Experiment,
    ExperimentRow,
    LauncherConfig,
    MachineConfig,
    RunConfig,
    WandbConfig,
)
from scpo.schema.scorer import BiEncoderScorer, ExactScorer, ScorerConfig
from scpo.schema.trainer import LocalTrainer, LossConfig, OptimizerConfig, TrainerConfig, ValidationConfig

__all__ = [
    "MACHINE_SECTIONS",
    "AlfworldConfig",
    "BenchmarkTraining",
    "BiEncoderScorer",
    "EnvConfig",
    "EstimatorConfig",
    "ExactScorer",
    "Experiment",
    "ExperimentRow",
    "GeneratedGames",
    "GeneratedShop",
    "GigpoSettings",
    "GoalPanelConfig",
    "GrpoSettings",
    "HuggingFaceModel",
    "LauncherConfig",
    "LocalTrainer",
    "LossConfig",
    "MachineConfig",
    "MethodConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PanelConfig",
    "RunConfig",
    "ScorerConfig",
    "ShaperConfig",
    "StackWorkers",
    "StepFilter",
    "TinyModel",
    "TrainerConfig",
    "ValidationConfig",
    "WandbConfig",
    "WarmStart",
    "WebshopConfig",
]
