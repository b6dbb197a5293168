"""First ten lines of the study's page: question, setting, answers, limits."""

from collections.abc import Iterator, Sequence
from typing import Any

from scpo.intervals import summarise

from analysis.answers.questions import (
    effect_text,
    headline,
    headlined,
    p_text,
    sentence,
)
from analysis.naming.names import TRAINED_ON
from analysis.sources.collect import Collected
from analysis.stats.comparisons import Comparison
from analysis.stats.measures import AREA, BETTER, by_seed
from analysis.stats.study_rows import MAIN, TUNING, StudyRow, started, study_rows

QUESTION = (
    "**Question.** GRPO gives every step of a rollout the same advantage. GiGPO adds a term that "
    "compares steps taken in the same state. SCPO, the method of the reproduced paper, also "
    "credits steps of a failed rollout that match steps of a successful rollout of the same task. "
    "Does that, or another rule of step credit, make a policy learn faster or end better?"
)
MEASURED = (
    "**Measured.** *Area under validation*: mean held-out success over training, in points; it is "
    "the measure that was named before the runs. *Faster*: training steps to 50 % held-out "
    "success. *Better*: held-out success after the last step. A difference is paired by seed and "
    "has a 95 % Student interval; p is of the paired t-test after Holm's correction over all "
    "{tests} named comparisons of the study, each counted once. *Resolved* means p < 0.05."
)
NOT_LANGUAGE_MODELS = (
    "**Not to be concluded: anything about the size of effects in language models.** This policy "
    "chooses among admissible commands, reads templates and starts from imitation; the paper's "
    "models write free text and start from pretraining."
)
NOT_EQUALITY = (
    "**Not to be concluded: equality.** A comparison that is not resolved is compatible with every "
    "difference in its interval, and some would need more seeds than were run."
)
SAME_CODE = (
    "**Why it may matter all the same.** Rollouts, groups, matcher, credit, advantages and loss "
    "are the code that trains language models here, so a *mechanism* that must act on any policy "
    "can be refuted, and rows can be ranked by how much they deserve GPUs."
)


def opening(data: Collected, comparisons: Sequence[Comparison]) -> str:
    """Ten lines, one idea each, after the headline."""
    finished = [comparison for comparison in comparisons if comparison.finished]
    lines = [f"**{headline(comparisons)}**", "", f"1. {QUESTION}"]
    parts = [_setting(data)]
    if finished:
        parts.append(MEASURED.format(tests=finished[0].effect.tests))
        parts += _answers(data, finished)
    parts += [SAME_CODE, NOT_LANGUAGE_MODELS, NOT_EQUALITY]
    lines += [f"{number}. {part}" for number, part in enumerate(parts, 2)]
    return "\n".join(lines)


def _setting(data: Collected) -> str:
    """From the configuration and logs of a run of the main table."""
    rows = [row for row in study_rows(data) if any(name == MAIN for name, _ in row.names)]
    run = next((found for row in rows if (found := started(data, row.row))), None)
    if run is None:
        return "**Setting.** No run of the main table has finished."
    trainer: dict[str, Any] = run.config["trainer"]
    panels = [panel for panel in data.panels(run.id) if panel != TRAINED_ON]
    games = sum(data.series(run.id, f"val/{panel}/episodes").last or 0 for panel in panels)
    text = (
        "**Setting.** A small policy network that scores the listed commands of household games "
        "(ALFWorld's engine) by hashed features, after a short imitation start; not a language "
        "model. "
        f"{trainer['steps']} training steps of {trainer['groups']} games × "
        f"{trainer['group_size']} rollouts; success is measured on {games:.0f} held-out games "
        f"every {trainer['validation']['every']} steps. Rows share code, games, starts and random "
        f"numbers."
    )
    if _tuned(data):
        text += (
            " Each method trains at the learning rate chosen for it on seeds that are not reported."
        )
    return text


def _tuned(data: Collected) -> bool:
    return any(record.experiment in TUNING for record in data.experiments)


def _answers(data: Collected, finished: Sequence[Comparison]) -> Iterator[str]:
    first = headlined(finished)[:1]
    for comparison in first:
        yield f"**Does SCPO help?** {sentence(comparison)}"
    main = [one for one in finished if MAIN in one.experiments and one not in first]
    if main:
        yield f"**Its scorers and its host.** {'; '.join(map(_brief, main))}."
    resolved = [one for one in finished if one.effect.resolved and one not in (*first, *main)]
    if resolved:
        ordered = sorted(resolved, key=lambda one: -abs(one.effect.difference.mean))
        yield f"**What else is resolved.** {'; '.join(map(_brief, ordered))}."
    counts = {
        question: sum(getattr(one, question).resolved for one in finished)
        for question in ("effect", "faster", "better")
    }
    yield (
        f"**All together.** Of {len(finished)} comparisons, {counts['effect']} are resolved in "
        f"area, {counts['faster']} in speed and {counts['better']} at the last step. "
        f"{_spread(data)}"
    )


def _brief(comparison: Comparison) -> str:
    effect = comparison.effect
    return f"{comparison.name} {effect_text(effect)} of area ({p_text(effect)})"


def _spread(data: Collected) -> str:
    """Standard deviation over seeds of the two reference rows."""
    rows = [row for row in study_rows(data) if any(name == MAIN for name, _ in row.names)]
    parts = []
    for name in ("gigpo", "scpo"):
        row = next((row for row in rows if row.called(name)), None)
        if row is not None and (text := _deviation(data, row)):
            parts.append(text)
    return f"Standard deviation over seeds: {'; '.join(parts)}." if parts else ""


def _deviation(data: Collected, row: StudyRow) -> str:
    area, last = (summarise(by_seed(data, row.row, measure).values()) for measure in (AREA, BETTER))
    if area.n < 2:
        return ""
    return f"{row.title} {100 * area.std:.1f} points of area and {100 * last.std:.1f} at the last step ({area.n} seeds)"
