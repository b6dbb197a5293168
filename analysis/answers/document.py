"""``docs/study.md``, written wholly by the numbers of an archive of runs."""

from collections import Counter
from collections.abc import Iterable, Iterator

from scpo.progress import counted
from scpo.records import State

from analysis.answers.credit import credit_lines, update_lines
from analysis.answers.opening import opening
from analysis.answers.questions import Answer, answers, effect_text, headlined, sentence
from analysis.figures import fig_study_rates
from analysis.sources.collect import Collected
from analysis.sources.rows import MissingRunsError
from analysis.sources.run_records import UNKNOWN, ExperimentRecord, Run
from analysis.stats.comparisons import named_comparisons
from analysis.stats.study_rows import MAIN
from analysis.tables import tab_study, tab_study_effects

RATES = "fig_study_rates"
FIGURES = {
    "fig_study_effects": "Every row minus GiGPO and minus SCPO, paired by seed, with its credit",
    "fig_study_curves": "Held-out success over training, and differences paired by seed",
    RATES: "Area under validation by learning rate, for each method",
}
TITLE = """\
# The laptop study

*This page is written by `python -m analysis study` from [the archive of its runs](study/); edit the command's texts, \
not this file. The [first edition](study/first-edition.md) is withdrawn: an entropy bonus decided its numbers.*"""
UNEQUAL_SEEDS = (
    "A curve is the mean over its row's own finished seeds; the differences are of equal seeds. "
    "In the figure of effects a point is filled where the corrected test resolves a comparison "
    "that was named before the runs, as the bold text does; a small point was not named and is "
    "not tested."
)
RATES_TEXT = (
    "Each trained method was run at each learning rate on tuning seeds that are reported nowhere "
    "else. The marked rate is the one at which the method trains in every other experiment of "
    "this page."
)
CONCLUSIONS = """\
## What may be concluded about a language model, and what not

- **The same**: environment, rollouts, rewards, groups, step texts, matcher, credit, advantages and loss are the code \
that trains language models here; only the policy and its size differ. What a rule of credit assigns, to which steps, \
and how far it moves advantages, depends on none of that but on what the policy does.
- **Exploration differs.** This policy chooses among admissible commands, so no step is invalid and "Nothing happens." \
hardly occurs. A language model must also learn to write commands; credit may help or harm that, and nothing here \
says which.
- **Texts differ.** Steps are templates: equal texts mean the same. A scorer's errors on free text, which is what a \
cross-encoder is for, are not tested by equal texts.
- **The start differs.** The imitation start decides how often a group has a success at the beginning, so where \
credit can exist at all; a pretrained model starts elsewhere.
- **So**: an effect that is absent here is not shown to be absent at 1.5B parameters, and one that is there is not \
shown to carry over. What the study can do is refute a *mechanism* that would have to act here too, and say which \
rows are worth GPUs first."""
REBUILD = """\
## Rebuild, extend

```bash
python -m analysis study    # this page, its tables and figures, from docs/study alone
python -m analysis study --add main_table --dry-run   # which finished runs of runs/ would be added
make study                  # runs what is missing here, adds it, then the same
make study-quick            # three seeds of each row, into paper_figures/study_quick
```

`docs/study/metrics.parquet` (run, step, metric, value), `runs.parquet` (a line a run: configuration, code, \
processor) and `experiments.json` (which run is which row, and the checksums of all three) are all that this page is \
made of. Runs of several machines merge by run id: run a part, add it, commit the three files and the page. Any table \
and figure: `python -m analysis figures --runs-dir docs/study`."""


def page(data: Collected, figures: Iterable[str]) -> str:
    """The page as Markdown; ``figures``: names of those in the archive's folder."""
    drawn = set(figures)
    comparisons = named_comparisons(data)
    parts = [
        TITLE,
        opening(data, comparisons),
        *(_answer(answer) for answer in answers(data)),
        _picture("fig_study_effects", drawn),
        UNEQUAL_SEEDS,
        _picture("fig_study_curves", drawn),
        "\n".join(_rates(data, drawn)),
        "\n".join(update_lines(data)),
        "\n".join(credit_lines(data)),
        *_tables(data),
        "\n".join(_sources(data)),
        CONCLUSIONS,
        REBUILD,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _picture(name: str, drawn: set[str]) -> str:
    return f"![{FIGURES[name]}](study/{name}.png)" if name in drawn else ""


def _rates(data: Collected, drawn: set[str]) -> Iterator[str]:
    """The sweep over learning rates: every mean, the figure and the rate that the study uses."""
    yield "## Which learning rate for each method?\n"
    try:
        table = fig_study_rates.numbers(data)
    except MissingRunsError as missing:
        yield f"Not run yet: `{missing.command}`."
        return
    yield f"{RATES_TEXT}\n"
    if RATES in drawn:
        yield f"{_picture(RATES, drawn)}\n"
    yield table.md().strip()


def _sources(data: Collected) -> Iterator[str]:
    yield "## Runs\n"
    records = [record for record in data.experiments if record.scale in data.scales]
    planned = {run.id for record in records for row in record.rows for run in row.runs}
    runs = [run for run in data.by_id.values() if run.state == State.DONE and run.id in planned]
    if left := len(planned) - len(runs):
        yield (
            f"**Not finished: {left} of {len(planned)} planned runs are missing**, of the rows "
            f"named below; each "
            "comparison names its finished pairs. `make study` runs what is missing.\n"
        )
    hours = sum(sum(data.series(run.id, "timing_s/step").values) for run in runs) / 3600
    yield f"- {len(runs)} finished runs, {hours:.1f} hours of training steps."
    dirty = sum(run.dirty for run in runs)
    changed = f"; {dirty} runs with uncommitted changes" if dirty else ""
    yield f"- Code: {_counted(str(run.commit)[:7] for run in runs)}{changed}."
    yield f"- Processors: {_counted(_processor(run) for run in runs)}."
    for record in records:
        yield from _incomplete(data, record)


def _processor(run: Run) -> str:
    name = run.processor or "not recorded"
    return name if run.torch_capability == UNKNOWN else f"{name}, {run.torch_capability}"


def _counted(values: Iterable[str]) -> str:
    counts = sorted(Counter(values).items())
    return ", ".join(f"{value} ({counted(count, 'run')})" for value, count in counts)


def _incomplete(data: Collected, record: ExperimentRecord) -> Iterator[str]:
    """Rows of an experiment that lack seeds, and the command that runs these."""
    counts, missing = [], set()
    for row in record.rows:
        lacking = [run.seed for run in row.runs if not _is_done(data, run.id)]
        if lacking:
            counts.append(f"{row.label} {len(row.runs) - len(lacking)}/{len(row.runs)}")
            missing.update(lacking)
    if counts:
        yield f"- {record.title}, seeds finished/planned: {', '.join(counts)}."
        yield f"  - `{record.command(sorted(missing))}`"


def _is_done(data: Collected, run: str) -> bool:
    return run in data.by_id and data.by_id[run].state == State.DONE


def _answer(answer: Answer) -> str:
    lines = [f"## {answer.question}", ""]
    if not answer.finished:
        return "\n".join([*lines, f"Not run yet: `{answer.command}`."])
    lines += [f"- {sentence(comparison)}" for comparison in answer.finished]
    if missing := len(answer.comparisons) - len(answer.finished):
        lines.append(f"- {counted(missing, 'more comparison')} not run yet: `{answer.command}`.")
    return "\n".join(lines)


def _tables(data: Collected) -> Iterator[str]:
    yield "## The numbers"
    for build in (tab_study_effects.build, tab_study.build):
        try:
            yield build(data).md().strip()
        except MissingRunsError as missing:
            yield f"No {missing.needed} yet."


def summary(data: Collected) -> str:
    """One line for the terminal."""
    found = headlined(named_comparisons(data))
    parts = [f"{one.name} {effect_text(one.effect)}" for one in found]
    return "; ".join(parts) or f"no pair of +experiment={MAIN} is finished"
