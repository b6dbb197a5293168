"""``docs/study.md``, written wholly by the numbers of an archive of runs."""

from collections import Counter
from collections.abc import Iterable, Iterator

from analysis.answers.credit import credit_lines
from analysis.answers.questions import QUESTIONS, Question, answers, headline, headlined, sentence
from analysis.sources.collect import Collected
from analysis.sources.rows import MissingRunsError, Section
from analysis.stats.comparisons import MAIN, Comparison, effect_text, label_of
from analysis.tables import tab_study, tab_study_effects
from scpo.progress import counted

FIGURES = {
    "fig_study_curves": "Held-out success over training, and differences paired by seed",
    "fig_study_effects": "Every row minus GiGPO and minus SCPO, paired by seed, with its credit beside",
}
UNEQUAL_SEEDS = (
    "A curve is the mean over its row's own finished seeds, and seeds differ by more than methods do: a row of few "
    "seeds may lie anywhere. The differences beside it are of equal seeds; a point without a bar is of one. In the "
    "second figure a point is filled where Holm's correction over all rows of its panel leaves the difference; what "
    "was named before the runs is corrected among its own few, below, and may be told apart there alone."
)
INTRODUCTION = """\
# The laptop study

*This page is written by `python -m analysis study` from [the archive of its runs](study/); edit the command's texts, \
not this file.*

Every method, ablation and control on one policy that learns to win ALFWorld games it never saw, with paired seeds: a \
*choice policy* scores the listed commands by hashed features, after a short imitation start (`scale=study`; settings \
and where they come from: [REPRODUCTION.md](../REPRODUCTION.md#study-scale)). Judged by the area under the curve of \
held-out success over training, which is a mean success rate; this measure and the comparisons that count were named \
in the experiments' files before the runs. They are repeated on WebShop, with five seeds and a section of their own: \
there the policy chooses among the page's clicks and searches made of the instruction's words."""
CONCLUSIONS = """\
## What may be concluded about a language model, and what not

- **The same**: environment, rollouts, rewards, groups, step texts, matcher, credit, advantages and loss are the code \
that trains language models here; only the policy and its size differ. What a rule of credit assigns, to which steps, \
and how much of it reaches an advantage, depends on none of that but on what the policy does.
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
    """The page as Markdown; ``figures``: the names of those that lie beside it."""
    found = {question: answers(data, question) for question in QUESTIONS}
    parts = [
        INTRODUCTION,
        f"**{headline(headlined(data))}**",
        "\n".join(_sources(data)),
        *(_answer(question, of) for question, of in found.items()),
        "\n".join(credit_lines(data)),
        *(f"![{FIGURES[name]}](study/{name}.png)" for name in FIGURES if name in set(figures)),
        UNEQUAL_SEEDS,
        *_tables(data),
        CONCLUSIONS,
        REBUILD,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sources(data: Collected) -> Iterator[str]:
    yield "## Runs\n"
    planned = {run.id for part in data.sections for row in part.rows for run in row.runs}
    if left := len(planned - set(data.by_id)):
        missing = f"Not finished: {left} of {len(planned)} planned runs are missing"
        yield (
            f"**{missing}**, of the rows named below; each answer says how many of its pairs it rests on. "
            "`make study` runs them; of an experiment, its command with `machine.archive=docs/study` does.\n"
        )
    runs = [run for run in data.by_id.values() if run.state == "DONE"]
    hours = sum(sum(data.series(run.id, "timing_s/step").values) for run in runs) / 3600
    yield f"- {len(runs)} finished runs, {hours:.1f} hours of training steps."
    dirty = sum(run.dirty for run in runs)
    changed = f"; {dirty} runs with uncommitted changes" if dirty else ""
    yield f"- Code: {_counted(str(run.commit)[:7] for run in runs)}{changed}."
    yield f"- Processors: {_counted(str(run.processor or 'not recorded') for run in runs)}."
    for part in data.sections:
        yield from _incomplete(part)


def _counted(values: Iterable[str]) -> str:
    return ", ".join(f"{value} ({count} runs)" for value, count in sorted(Counter(values).items()))


def _incomplete(part: Section) -> Iterator[str]:
    rows = [f"{label_of(row)} {row.count}" for row in part.rows if row.missing]
    if rows:
        yield f"- Not complete, seeds finished/planned: {', '.join(rows)}. Only pairs of finished seeds are compared."
        yield from (f"  - `{command}`" for command in part.commands)


def _answer(question: Question, found: list[Comparison]) -> str:
    lines = [f"## {question.text}", ""]
    if not found:
        return "\n".join([*lines, f"Not run yet: `{question.command}`."])
    lines += [f"- {sentence(one)}" for one in found]
    if missing := len(question.pairs) - len(found):
        lines.append(f"- {counted(missing, 'more comparison')} not run yet: `{question.command}`.")
    return "\n".join(lines)


def _tables(data: Collected) -> Iterator[str]:
    yield "## The numbers"
    for build in (tab_study_effects.build, tab_study.build):
        try:
            yield build(data).md().strip()
        except MissingRunsError as missing:
            yield f"No {missing.needed} yet."


def summary(data: Collected) -> str:
    """A line for the terminal."""
    found = answers(data, QUESTIONS[0])
    return "; ".join(f"{one.name} {effect_text(one)}" for one in found) or f"no pair of +experiment={MAIN} is finished"
