"""The best setting of a search as an experiment, beside the one it started from, on seeds that no trial has seen."""

from pathlib import Path
from typing import Any

from scpo.tracking.atomic import write_bytes
from sweeps.search.plan import Plan
from sweeps.search.results import Result
from sweeps.search.space import override_texts

WINNER = "best.yaml"
AXES = ("scale", "env", "model")


def write_winner(plan: Plan, best: Result, default: Result | None) -> Path:
    """Write ``best.yaml`` into the search's folder."""
    path = plan.folder / WINNER
    write_bytes(path, _text(plan, best, default).encode())
    return path


def command(plan: Plan) -> str:
    """What runs it; settings of the machine come from the command line, as ever."""
    machine = [override.text for override in plan.overrides if override.of_machine]
    overrides = [f"+experiment={plan.folder / WINNER}", f"scale={plan.scale}", *machine]
    return " ".join(["python sweep.py", *(f"'{one}'" if set(one) & set("[]{}$ ") else one for one in overrides)])


def experiment_name(plan: Plan) -> str:
    """A name that an experiment may have."""
    return "best_of_" + "".join(letter if letter.isalnum() else "_" for letter in plan.study_id.lower())


def _text(plan: Plan, best: Result, default: Result | None) -> str:
    import yaml

    head = (
        f"# @package _global_\n# The best of {plan.study_id}: trial {best.number}, mean {best.summary.mean:.4f} of "
        f"{plan.metric} over seeds {', '.join(map(str, plan.seeds))}.\n"
        "# Chosen on those seeds, it is reported on others, beside the setting that the search started from.\n"
    )
    return head + yaml.safe_dump({"experiment": _experiment(plan, best, default)}, sort_keys=False, width=120)


def _experiment(plan: Plan, best: Result, default: Result | None) -> dict[str, Any]:
    rows = [_row(plan, "tuned", f"tuned (trial {best.number})", override_texts(plan.search.space, best.params))]
    if default is not None and default.number != best.number:
        rows.insert(0, _row(plan, "untuned", "as configured", []))
    return {
        "name": experiment_name(plan),
        "title": f"The best of a search over {plan.search.title}, on fresh seeds",
        "axes": {
            "env": [_value(plan, "env")],
            "model": [_value(plan, "model")],
            "seeds": list(plan.search.fresh_seeds),
        },
        "rows": rows,
    }


def _row(plan: Plan, name: str, label: str, values: list[str]) -> dict[str, Any]:
    kept = [one.text for one in plan.overrides if not one.of_machine and one.key not in AXES]
    return {"name": name, "label": label, "overrides": [*kept, *values], "scales": [plan.scale]}


def _value(plan: Plan, key: str) -> str:
    """The last choice of a config group's file."""
    return next(str(override.value) for override in reversed(plan.overrides) if override.key == key)
