"""Settings of the shaper in the configurations of finished runs, next to the paper's."""

from collections.abc import Callable
from typing import Any

from analysis.rendering.table import Table
from analysis.sources.collected import Collected
from analysis.tables.settings_table import Config, Entry, at, settings_table
from scpo.schema.method import method_label
from scpo.shaping.shaper import ShaperConfig

CAPTION = (
    "Settings of the shaper in the finished runs, as recorded, and the paper's. "
    "Where rows of one table differ (ablations, sweeps), every value that ran is given, the "
    "default's first."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run with a shaper has finished."""
    return settings_table(data, ENTRIES, shaped=True, caption=CAPTION, label="tab:shaper")


# Setting -> value in configurations -> printed name; other settings are printed as they are.
WORDS = {
    "matcher": {"kmp": "Algorithm 2", "forward": "forward"},
    "reference": {
        "longest": "longest success",
        "shortest": "shortest success",
        "random": "random success",
    },
    "after_full_match": {"stop": "the walk stops", "restart": "from the reference's first step"},
    "reference_order": {"time": "in time", "batch": "rows of the trainer's batch"},
    "order": {
        "balanced": "reordered (batches balanced)",
        "chronological": "temporal",
        "length": "longest first",
        "random": "random",
    },
    "allocation": {
        "matched": "where it was matched",
        "random_match": "on random steps",
        "uniform_bonus": "spread evenly",
        "graph": "on shortest ways of the graph",
    },
    "amount": {
        "similarity": "by similarity",
        "distance": "by similarity and distance along the reference",
    },
    "added_to": {"returns": "step returns", "advantages": "advantages"},
    "credited_states": {
        "all": "all",
        "anchor_without_success": "observations at which no sibling succeeded",
        "state_without_success": "states at which no sibling succeeded",
    },
    "step_text": {
        "action_next_observation": "action ‖ next observation",
        "observation_action": "observation ‖ action",
        "action_next_state": "action ‖ next state",
    },
}
SCORERS = {
    "exact": "equal texts",
    "minilm": "all-MiniLM-L6-v2",
    "bge_reranker_v2_m3": "BGE-Reranker-v2-m3",
}


def _shaper(name: str) -> Callable[[Config], Any]:
    """Function that returns a setting of the shaper from a configuration, as it is printed."""

    def read(config: Config) -> Any:
        value = at(config, f"method.shaper.{name}")
        if value is None:
            # Records leave out settings that are off.
            value = ShaperConfig.model_fields[name].get_default()
        if name not in WORDS:
            return value
        return WORDS[name].get(value, value)

    return read


def _scorer(config: Config) -> Any:
    # The path of a scorer that is a model, which names the model exactly; else its printed name.
    name = at(config, "scorer.name")
    return at(config, "scorer.path") or SCORERS.get(name, name)


def _host(config: Config) -> str | None:
    name = at(config, "method.estimator.name")
    return method_label(name) if name else None


def _scorer_batch(config: Config) -> str | None:
    tokens = at(config, "scorer.batch_tokens")
    if tokens:
        return f"{tokens} tokens"
    # The bi-encoder encodes one text at a time.
    if at(config, "scorer.kind") == "bi_encoder":
        return "1 text"
    return None


def _remembered(config: Config) -> str:
    if at(config, "method.shaper.reference_buffer") in (None, "off"):
        return "none"
    age = at(config, "method.shaper.reference_max_age")
    return "last success of the task" + (f", at most {age} steps old" if age else "")


def _identity(config: Config) -> str:
    """What decides that a failed step equals one of the reference: the scorer, unless states do."""
    states = at(config, "method.shaper.states")
    if states is None:
        return "similarity of step texts"
    threshold = at(config, "method.shaper.states_threshold")
    return f"states={states}" + ("" if threshold is None else f", threshold {threshold:g}")


def _scope(config: Config) -> str:
    """Trajectories that may get credit: always the failed siblings, as in the paper."""
    # Controls give the same amount of credit to other steps.
    moved = at(config, "method.shaper.allocation") != "matched"
    return "failed siblings" + (", on other steps than matched" if moved else "")


def _precision(config: Config) -> str | None:
    """Precision of the scorer's arithmetic; None for lexical and exact scorers.

    ``auto`` is fp16 on a GPU and fp32 on a CPU.
    """
    words = {
        "float16": "fp16",
        "float32": "fp32",
        "bfloat16": "bf16",
        "auto": "fp16 (GPU), fp32 (CPU)",
    }
    # The bi-encoder has no such setting and always computes in float32.
    dtype = at(config, "scorer.dtype")
    if dtype is None and at(config, "scorer.kind") == "bi_encoder":
        return "fp32"
    return words.get(str(dtype))


def _filter(config: Config) -> str:
    no_ops = at(config, "method.shaper.step_filter.no_op_observations") or []
    filtered = ["invalid", "empty"]
    filtered += [f"“{text}”" for text in no_ops]
    if at(config, "method.shaper.step_filter.no_op_if_unchanged"):
        filtered.append("page unchanged")
    return ", ".join(filtered)


ENTRIES = (
    Entry("Match threshold θ", "0.6", _shaper("theta")),
    Entry("Soft base λ", "0.4", _shaper("soft_base")),
    Entry("Auxiliary weight α", "0.5 (ALFWorld) / 1.0 (WebShop)", _shaper("alpha")),
    Entry("Success threshold τ", "0.0 (ALFWorld) / 9.0 (WebShop)", "env.success_threshold"),
    Entry("Reference Π", "longest success", _shaper("reference")),
    Entry("Apply scope", "failed siblings", _scope),
    Entry("Reference of groups that all fail", "none", _remembered),
    Entry("Matcher", "monotonic semantic credit", _shaper("matcher")),
    Entry("Matches by", "similarity of step texts", _identity),
    Entry("Monotonic", "yes; disabled in one ablation", _shaper("monotonic")),
    Entry("Without monotonicity, after a full match", "–", _shaper("after_full_match")),
    Entry("Order of the reference's steps", "–", _shaper("reference_order")),
    Entry("Processing order π", "reordered; temporal in one ablation", _shaper("order")),
    Entry("Ranks of the order", "4 GPUs", _shaper("order_ranks")),
    Entry("Allocation of the credit", "where it was matched", _shaper("allocation")),
    Entry("Amount of a match", "by similarity", _shaper("amount")),
    Entry("Credited states", "all", _shaper("credited_states")),
    Entry("Credit added to", "step returns", _shaper("added_to")),
    Entry("Filtered steps", "invalid, no-op and empty observations", _filter),
    Entry("Step text", "action ‖ observation", _shaper("step_text")),
    Entry("Scorer", "BGE-Reranker-v2-m3", _scorer),
    Entry("Precision", "fp16", _precision),
    Entry("Scorer's batch", "64 pairs", _scorer_batch),
    Entry("All pairs scored", "yes", _shaper("dense")),
    Entry("Host estimator", "GiGPO", _host),
    Entry("Step weight ω", "–", "method.estimator.omega"),
)
