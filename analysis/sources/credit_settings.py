"""Settings that decide which steps a run credits: scorer, matcher and threshold, as recorded."""

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.sources.rows import Row, first_names
from analysis.sources.run_records import Run


def is_exact(config: Mapping[str, Any]) -> bool:
    """True if the scorer of a run compares for equality, so that similarities are only 0 and 1."""
    return (config.get("scorer") or {}).get("kind") == "exact"


def exact_scores(config: Mapping[str, Any]) -> str:
    """Describe the similarities that an exact scorer gives in a run."""
    same = "for equal texts"
    if _shaper(config).get("states"):
        same = "for an equal action that leads to the same state"
    return f"1 {same} and 0 otherwise"


def equal_by_construction(config: Mapping[str, Any]) -> bool:
    """True if every credited step of a run equals a step of its reference by construction.

    Controls are excluded, because they move credit to steps that were not matched.
    """
    return is_exact(config) and _shaper(config).get("allocation", "matched") == "matched"


def credit_settings(config: Mapping[str, Any]) -> str:
    """Name the settings that decide a run's credit.

    Returns:
        For example ``scorer=lexical, matcher=kmp, θ=0.6`` or ``scorer=exact (equal texts only),
        matcher=kmp``, where θ has no effect on the credit; empty for a method without a shaper.
    """
    shaper = _shaper(config)
    if not shaper:
        return ""
    parts = [f"scorer={(config.get('scorer') or {}).get('name', 'not recorded')}"]
    if is_exact(config) and not shaper.get("states"):
        parts[0] += " (equal texts only)"
    if shaper.get("states"):
        parts.append(f"states={shaper['states']}")
    if "matcher" in shaper:
        parts.append(f"matcher={shaper['matcher']}")
    if "theta" in shaper and not is_exact(config):
        parts.append(f"θ={shaper['theta']:g}")
    if shaper.get("allocation", "matched") != "matched":
        parts.append(f"allocation={shaper['allocation']}")
    return ", ".join(parts)


def credit_of_rows(rows: Iterable[Row], runs: Mapping[str, Run]) -> str:
    """``credit_settings`` of rows, with the rows' labels if several settings occur; else without.

    Args:
        rows: The rows; one without a shaper or a finished run is left out.
        runs: Every run by its id.

    Returns:
        Empty if all rows are left out.
    """
    labels: dict[str, dict[str, None]] = {}
    for row in rows:
        for run in row.finished:
            if text := credit_settings(runs[run].config):
                labels.setdefault(text, {})[row.label] = None
    if len(labels) < 2:
        return "".join(labels)
    return "; ".join(f"{first_names(own)}: {text}" for text, own in labels.items())


def _shaper(config: Mapping[str, Any]) -> Mapping[str, Any]:
    method = config.get("method")
    # Runs of another code base may have only the method's name.
    shaper = method.get("shaper") if isinstance(method, dict) else None
    return shaper if isinstance(shaper, dict) else {}
