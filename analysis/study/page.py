"""``docs/study.md`` as Markdown; every sentence with a number is computed from an archive."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from analysis.build import builders
from analysis.figures import fig_study_rates
from analysis.names import benchmark
from analysis.sources.code_versions import section_notes
from analysis.sources.collected import Collected, MissingRunsError
from analysis.sources.rows import seed_list
from analysis.sources.run_records import UNKNOWN, ExperimentRecord, Run
from analysis.stats.comparisons import (
    CORRECTED_APART,
    Comparison,
    named_comparisons,
    named_too_late,
    superseded,
)
from analysis.stats.measures import AREA, BETTER, over_seeds
from analysis.stats.pairs import seed_ranges
from analysis.stats.study_rows import (
    MAIN,
    SAME_RATE,
    WIDE,
    StudyRow,
    is_of_meaning,
    rate_text,
    started,
    study_rows,
)
from analysis.study.credit import credit_lines, episodes_line, update_lines
from analysis.study.place import Place
from analysis.study.questions import (
    Answer,
    answers,
    effect_text,
    headline,
    headlined,
    p_text,
    sentence,
    without_headline,
)
from analysis.tables import tab_study, tab_study_effects
from scpo.benchmarks import TRAINED_ON
from scpo.progress import counted
from scpo.records.files import write_bytes
from scpo.records.status import State

# Experiments with SCPO and its host on other benchmarks and games than the main table's.
ELSEWHERE = ("official_games", "webshop_study")

# The rows of their comparisons that the opening names: (first, second).
COMPARED_ELSEWHERE = (
    ("scpo_official", "gigpo_official"),
    ("scpo", "gigpo"),
    ("gigpo", "grpo"),
)
ARCHIVE = Path("docs/study")
PAGE = Path("docs/study.md")
TRACKED = Place("study", ARCHIVE, PAGE, ARCHIVE, PAGE)
RATES = "fig_study_rates"
FIGURES = {
    "fig_study_effects": "Trained rows minus GiGPO and minus SCPO, paired by seed, with credit",
    "fig_study_curves": "Held-out success over training, and differences paired by seed",
    RATES: "Area under validation by learning rate, for each method",
}
TITLE = (
    "# The laptop study\n\n"
    "*This page is written by `{command}` from [the archive of its runs]({archive}/); "
    "edit the command's texts, not this file.{first_edition}*"
)
FIRST_EDITION = " The [first edition]({link}) is withdrawn: an entropy bonus decided its numbers."

# Texts of the opening

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
    "has a 95 % Student interval; p is of the paired t-test after Holm's correction over "
    "{tests}. {families} *Resolved* means "
    "p < 0.05 on at least three pairs. "
    "*Rates*: the learning rates of both rows, where they differ. *State*: what is compared where "
    "credit looks for steps from the same state. On ALFWorld CRBC, GraphGPO, RewardFlow and rows "
    "called “by state” compare all that the agent was shown (the observation, the place, what is "
    "held, what was moved); GiGPO, HGPO, G2PO, GAGPO and “CRBC by observation” the last "
    "observation, which hides what is held."
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
TEN_MORE = (
    " Comparisons with twenty pairs are those on ALFWorld that ten pairs left open with an "
    "interval wider than two points. p does not account for this selection; REPRODUCTION.md gives "
    "the fresh ten alone."
)
SAME_CODE = (
    "**Why it may matter all the same.** Rollouts, groups, matcher, credit, advantages and loss "
    "are the code that trains language models here, so a *mechanism* that must act on any policy "
    "can be refuted, and rows can be ranked by how much they deserve GPUs."
)

# Texts of the sections

UNEQUAL_SEEDS = (
    "Curves, and the differences beside them, are of the finished seeds of one experiment; the "
    "comparisons above are of the seeds of all experiments that name them. The figure of effects "
    "has the trained rows of one benchmark that share settings and seeds with GiGPO or SCPO, or "
    "that a named comparison compares with them. A point in it is filled where the corrected test "
    "resolves a comparison that was named before the runs, as the bold text does; a small point "
    "was not named and is not tested."
)
RATES_TEXT = (
    "The marked rate is that of the method's row in the main table, or else in the first other "
    "experiment that has one. Other rows may train at another rate, such as those on another "
    "benchmark; the last table has the rate of each row."
)
CONCLUSIONS = (
    "## What may be concluded about a language model, and what not\n\n"
    "- **The same**: environment, rollouts, rewards, groups, step texts, matcher, credit, "
    "advantages and loss are the code that trains language models here; only the policy and its "
    "size differ. What a rule of credit assigns, to which steps, and how far it moves advantages, "
    "depends on none of that but on what the policy does.\n"
    "- **Exploration differs.** This policy chooses among admissible commands, so no step is "
    'invalid and "Nothing happens." hardly occurs. A language model must also learn to write '
    "commands; credit may help or harm that, and nothing here says which.\n"
    "- **Texts differ.** Steps are templates: equal texts mean the same. A scorer's errors on free "
    "text, which is what a cross-encoder is for, are not tested by equal texts.\n"
    "- **The start differs.** The imitation start decides how often a group has a success at the "
    "beginning, so where credit can exist at all; a pretrained model starts elsewhere.\n"
    "- **So**: an effect that is absent here is not shown to be absent at 1.5B parameters, and one "
    "that is there is not shown to carry over. What the study can do is refute a *mechanism* that "
    "would have to act here too, and say which rows are worth GPUs first."
)
REBUILD = (
    "## Rebuild, extend\n\n"
    "```bash\n"
    "python -m analysis study    # this page, its tables and figures, from docs/study alone\n"
    "python -m analysis study --add main_table --dry-run"
    "   # which finished runs of runs/ would be added\n"
    "make study                  # runs what is missing here, adds it, then the same\n"
    "make study-quick            # three seeds of each row, into paper_figures/study_quick\n"
    "```\n\n"
    "`docs/study/metrics.parquet` (run, step, metric, value), `runs.parquet` (a line a run: "
    "configuration, code, processor) and `experiments.json` (which run is which row, and the "
    "checksums of all three) are all that this page is made of. Runs of several machines merge by "
    "run id: run a part, add it, commit the three files and the page. Any table and figure: "
    "`python -m analysis figures --runs-dir docs/study`."
)
REBUILD_OWN = (
    "## Rebuild, extend\n\n"
    "```bash\n"
    "{command}   # this page, its tables and figures, from its archive alone\n"
    "{command} --add '*' --dry-run   # which finished runs of runs/ would be added\n"
    "```\n\n"
    "`metrics.parquet` (run, step, metric, value), `runs.parquet` (a line a run: configuration, "
    "code, processor) and `experiments.json` (which run is which row, and the checksums of all "
    "three) in [the archive]({archive}/) are all that this page is made of. Runs of several "
    "machines merge by run id: run a part and add it. Any table and figure: `{figures}`."
)
EXACT_SCORER = (
    "**“SCPO” here means SCPO with `scorer=exact`**: two steps are similar if their whole "
    "texts are equal, so that θ and λ decide nothing, and these rows test the reference, the "
    "order and the monotone credit, not similarity of meaning. Rows with a graded scorer name "
    "it; where texts vary: {meaning}."
)


def page(data: Collected, figures: Iterable[str], place: Place = TRACKED) -> str:
    """The page as Markdown.

    Args:
        data: Data of the study's scale.
        figures: Names of the pictures in the archive's folder.
        place: Where the page and its archive are.
    """
    drawn = {name: place.link(place.archive / f"{name}.png") for name in figures}
    comparisons = named_comparisons(data)
    parts = [_title(place), opening(data, comparisons, place)]
    parts += [_answer(answer) for answer in answers(data)]
    parts += [
        _picture("fig_study_effects", drawn),
        UNEQUAL_SEEDS,
        episodes_line(data),
        _picture("fig_study_curves", drawn),
        "\n".join(_rates(data, drawn)),
        "\n".join(update_lines(data)),
        "\n".join(credit_lines(data)),
    ]
    parts += _tables(data)
    lines = run_lines(data, tracked=place.tracked)
    parts += ["\n".join(["## Runs\n", *lines]), CONCLUSIONS, _rebuild(place)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(place: Place) -> str:
    first_edition = ""
    if place.tracked:
        first_edition = FIRST_EDITION.format(link=place.link(ARCHIVE / "first-edition.md"))
    return TITLE.format(
        command=place.command_line,
        archive=place.link(place.archive),
        first_edition=first_edition,
    )


def _rebuild(place: Place) -> str:
    if place == TRACKED:
        return REBUILD
    figures = ["python", "-m", "analysis", "figures", "--runs-dir", str(place.archive)]
    return REBUILD_OWN.format(
        command=place.command_line,
        archive=place.link(place.archive),
        figures=shlex.join(figures),
    )


def summary(data: Collected) -> str:
    """The headlined comparisons in one line, for the terminal."""
    comparisons = named_comparisons(data)
    parts = []
    for comparison in headlined(comparisons):
        parts.append(f"{comparison.name}{comparison.rates} {effect_text(comparison.effect)}")
    return "; ".join(parts) or without_headline(comparisons)


# Opening


def opening(data: Collected, comparisons: Sequence[Comparison], place: Place = TRACKED) -> str:
    """The first lines of the page: headline, question, setting, answers, limits."""
    finished = [comparison for comparison in comparisons if comparison.finished]
    items = [QUESTION, _setting(data, place)]
    if finished:
        items.append(MEASURED.format(tests=_tests(finished), families=CORRECTED_APART))
        items += _findings(data, finished)
    items += [SAME_CODE, NOT_LANGUAGE_MODELS, NOT_EQUALITY]
    lines = [f"**{headline(comparisons)}**", ""]
    lines += [f"{number}. {item}" for number, item in enumerate(items, start=1)]
    return "\n".join(lines)


def _setting(data: Collected, place: Place) -> str:
    """Describe the setting from the configuration and logs of a run of the main table.

    Without such a run, describe it from those of all rows.
    """
    # Any run will do, because rows of the main table have these settings in common.
    runs = (started(data, row.row) for row in _main_rows(data))
    run = next((run for run in runs if run is not None), None)
    if run is None:
        return _setting_of_rows(data)
    text = (
        "**Setting.** A small policy network that scores the listed commands of household games "
        "(ALFWorld's engine) by hashed features, after a short imitation start; not a language "
        f"model. {_training(data, run)}{_other_validation(data, run)}. Rows share games, starts "
        "and random numbers; the commits of their runs are under “Runs”."
    )
    text += _tuned(data)
    if compares_equal_texts(data):
        meaning = "docs/meaning.md of the repository"
        if place.tracked:
            meaning = f"[When does meaning pay?]({place.link(PAGE.with_name('meaning.md'))})"
        text += f" {EXACT_SCORER.format(meaning=meaning)}"
    return text


def _tuned(data: Collected) -> str:
    """Sentence on the methods whose learning rate is the best one of a sweep; empty without any."""
    try:
        sweeps = fig_study_rates.sweeps(data)
    except MissingRunsError:
        return ""
    best = [sweep for sweep in sweeps if sweep.chosen == sweep.best]
    if not best:
        return ""
    methods = counted(len(best), "method or variant", "methods and variants")
    places = ", ".join(map(benchmark, sorted({env for sweep in best for env in sweep.envs})))
    seeds = {seed for sweep in best for seed in sweep.seeds}
    others = {seed for row in study_rows(data) for seed in row.row.seeds}
    apart = "" if seeds & others else ", which no other row has"
    return (
        f" The learning rate of {methods} is the best of a sweep on {places}, on "
        f"{seed_list(seeds)}{apart}; rows may train at another one, and the last table has each "
        f"row's.{_limits_of_sweep(sweeps, best)}"
    )


def _limits_of_sweep(
    sweeps: Sequence[fig_study_rates.Sweep], best: Sequence[fig_study_rates.Sweep]
) -> str:
    """Sentences on the grid, the seeds of a rate and the methods whose best rate is at an edge."""
    rates = {rate for sweep in sweeps for rate in sweep.areas}
    counts = {len(areas) for sweep in sweeps for areas in sweep.areas.values()}
    least, most = min(counts), max(counts)
    seeds = counted(most, "seed") if least == most else f"{least} to {most} seeds"
    span = f"{rate_text(min(rates))} to {rate_text(max(rates))}"
    text = f" The sweep has rates of {span}, on {seeds} each."
    for rate in sorted({sweep.best for sweep in best if sweep.at_the_edge}):
        edge = [sweep.label for sweep in best if sweep.at_the_edge and sweep.best == rate]
        text += (
            f" {rate_text(rate)}, at the edge of the sweep, is best for {len(edge)} of the "
            f"{len(best)} ({'; '.join(edge)}), and rates beyond it were not run."
        )
    unused = [sweep.label for sweep in sweeps if sweep.chosen not in sweep.areas]
    if unused:
        labels = "; ".join(unused)
        text += f" The sweep also has {labels}, which no other experiment has at these rates."
    return text


def _tests(finished: Sequence[Comparison]) -> str:
    """The comparisons that the correction covers, in words."""
    tests = finished[0].effect.tests
    if tests == 1:
        return "the only named comparison of the study"
    return f"all {tests} named comparisons of the study, each counted once"


def _training(data: Collected, run: Run) -> str:
    """Steps, games and validation of a run in words."""
    trainer: dict[str, Any] = run.config["trainer"]
    return (
        f"{trainer['steps']} training steps of {trainer['groups']} games × "
        f"{trainer['group_size']} rollouts; success is measured on {_validation(data, run)}"
    )


def _validation(data: Collected, run: Run, noun: str = "games") -> str:
    """Number of held-out games, and how often a run plays them."""
    trainer: dict[str, Any] = run.config["trainer"]
    every: int = trainer["validation"]["every"]
    last = "" if trainer["steps"] % every == 0 else " and after the last"
    panels = [panel for panel in data.panels(run.id) if panel != TRAINED_ON]
    games = sum(data.series(run.id, f"val/{panel}/episodes").last or 0 for panel in panels)
    often = "after every step" if every == 1 else f"every {every} steps{last}"
    return f"{games:.0f} held-out {noun} {often}"


def _other_validation(data: Collected, main: Run) -> str:
    """The validation of the rows that have another one than this run, by benchmark."""
    usual = _validation(data, main, "tasks")
    others: dict[str, None] = {}
    for row in study_rows(data):
        # Any finished run will do, because the runs of a row differ in their seeds only.
        for run in row.row.finished[:1]:
            validation = _validation(data, data.by_id[run], "tasks")
            if validation == usual:
                continue
            same = row.env == main.head.env.name
            where = "in other rows" if same else f"on {benchmark(row.env)}"
            others[f", {where} on {validation}"] = None
    return "".join(others)


def _setting_of_rows(data: Collected) -> str:
    """Describe the settings of all rows, and the rows and seeds of each setting."""
    rows_by_setting: dict[str, list[StudyRow]] = {}
    for row in study_rows(data):
        finished = [data.by_id[run] for run in row.row.finished]
        if finished:
            words = f"{benchmark(row.env)}: {_training(data, finished[0])}"
            rows_by_setting.setdefault(words, []).append(row)
    if not rows_by_setting:
        return "**Setting.** No run has finished."
    parts = []
    for words, rows in rows_by_setting.items():
        seeds = {data.by_id[run].head.seed for row in rows for run in row.row.finished}
        titles = ", ".join(row.title for row in rows)
        parts.append(f"{words} ({titles}; seeds {seed_ranges(sorted(seeds))})")
    return (
        "**Setting.** A small policy network that scores the listed commands by hashed features, "
        f"after a short imitation start; not a language model. {'. '.join(parts)}. The commits of "
        "the runs are under “Runs”."
    )


def compares_equal_texts(data: Collected) -> bool:
    """True if the scorer of the main table's SCPO is equality of texts."""
    runs = [started(data, row.row) for row in _main_rows(data) if row.row.name == "scpo"]
    return {str(run.config["scorer"]["name"]) for run in runs if run is not None} == {"exact"}


def _main_rows(data: Collected) -> list[StudyRow]:
    rows = []
    for row in study_rows(data):
        experiments = [experiment for experiment, _ in row.names]
        if MAIN in experiments:
            rows.append(row)
    return rows


def _findings(data: Collected, finished: Sequence[Comparison]) -> Iterator[str]:
    # The first headlined comparison, if any, answers the page's question. It is not repeated below.
    first = headlined(finished)[:1]
    for comparison in first:
        at_one_rate = _at_one_rate(finished) if comparison.rates else ""
        where = benchmark(comparison.first.env)
        lead = f"**Does SCPO help?** On {where}: {sentence(comparison)}{at_one_rate}"
        yield f"{lead}{_elsewhere(finished, first)}"
    main = []
    resolved = []
    for comparison in finished:
        if comparison in first:
            continue
        if MAIN in comparison.experiments:
            main.append(comparison)
        elif comparison.effect.resolved:
            resolved.append(comparison)

    if main:
        yield f"**Its scorers and its host.** {'; '.join(map(_brief, main))}."
    if resolved:
        # By absolute size, the largest first.
        resolved.sort(key=lambda comparison: -abs(comparison.effect.difference.mean))
        yield f"**What else is resolved.** {'; '.join(map(_brief, resolved))}."
    area = sum(comparison.effect.resolved for comparison in finished)
    speed = sum(comparison.faster.resolved for comparison in finished)
    last = sum(comparison.better.resolved for comparison in finished)
    yield (
        f"**All together.** Of {len(finished)} comparisons, {area} are resolved in area, {speed} "
        f"in speed and {last} at the last step.{TEN_MORE if _continued(finished) else ''} "
        f"{_spread(data)}"
    )


def _continued(finished: Iterable[Comparison]) -> bool:
    """True if pairs were added to comparisons after the first ones had been seen."""
    return any(name.startswith(WIDE) for each in finished for name in each.experiments)


def _at_one_rate(finished: Sequence[Comparison]) -> str:
    """Sentence on the comparisons whose rows train at one learning rate; empty without any."""
    parts = []
    for comparison in finished:
        if SAME_RATE in comparison.experiments:
            faster = comparison.faster
            parts.append(f"{_brief(comparison)}, {effect_text(faster)} to 50 % ({p_text(faster)})")
    return f" **At one learning rate for both**: {'; '.join(parts)}." if parts else ""


def _elsewhere(finished: Iterable[Comparison], first: Sequence[Comparison]) -> str:
    """Sentence on SCPO, its host and GRPO on other benchmarks and games; empty without any."""
    parts = []
    for comparison in finished:
        asked = any(
            comparison.first.called(first_name) and comparison.second.called(second_name)
            for first_name, second_name in COMPARED_ELSEWHERE
        )
        other_games = set(ELSEWHERE) & set(comparison.experiments)
        if asked and other_games and comparison not in first:
            parts.append(f"{benchmark(comparison.first.env)}, {_brief(comparison)}")
    return f" **Elsewhere**: {'; '.join(parts)}." if parts else ""


def _brief(comparison: Comparison) -> str:
    effect = comparison.effect
    return f"{comparison.name}{comparison.rates} {effect_text(effect)} of area ({p_text(effect)})"


def _spread(data: Collected) -> str:
    """Sentence on the standard deviations over seeds of the two reference rows."""
    rows = _main_rows(data)
    parts = []
    for name in ("gigpo", "scpo"):
        row = next((row for row in rows if row.called(name)), None)
        text = _deviation(data, row) if row is not None else ""
        if text:
            parts.append(text)
    if not parts:
        return ""
    return f"Standard deviation over seeds: {'; '.join(parts)}."


def _deviation(data: Collected, row: StudyRow) -> str:
    """Standard deviations of one row; empty for fewer than two seeds."""
    area = over_seeds(data, row.row, AREA)
    last = over_seeds(data, row.row, BETTER)
    if area.n < 2:
        return ""
    return (
        f"{row.title} {100 * area.std:.1f} points of area and {100 * last.std:.1f} at the last "
        f"step ({area.n} seeds)"
    )


# Sections


def _answer(answer: Answer) -> str:
    lines = [f"## {answer.question}", ""]
    if not answer.finished:
        # An archive that knows the experiment knows how many comparisons it names.
        lead = "Not run yet"
        if answer.comparisons:
            lead = f"{counted(len(answer.comparisons), 'comparison')} not run yet"
        lines.append(f"{lead}: `{answer.command}`.")
        return "\n".join(lines)
    lines += [f"- {sentence(comparison)}" for comparison in answer.finished]
    missing = len(answer.comparisons) - len(answer.finished)
    if missing:
        lines.append(f"- {counted(missing, 'more comparison')} not run yet: `{answer.command}`.")
    return "\n".join(lines)


def _picture(name: str, drawn: Mapping[str, str]) -> str:
    """A picture as Markdown; empty if it is not among ``drawn`` (name -> target of its link)."""
    return f"![{FIGURES[name]}]({drawn[name]})" if name in drawn else ""


def _rates(data: Collected, drawn: Mapping[str, str]) -> Iterator[str]:
    """Section on the sweep over learning rates: the figure, every mean, and the rates in use."""
    yield "## Which learning rate for each method?\n"
    # The page may have a part of the study only; a section without runs names its command.
    try:
        table = fig_study_rates.numbers(data)
    except MissingRunsError as missing:
        yield f"Not run yet: `{missing.command}`."
        return
    yield f"{RATES_TEXT}\n"
    if RATES in drawn:
        yield f"{_picture(RATES, drawn)}\n"
    yield table.md().strip()


def _tables(data: Collected) -> Iterator[str]:
    yield "## The numbers"
    for build in (tab_study_effects.build, tab_study.build):
        try:
            yield build(data).md().strip()
        except MissingRunsError as missing:
            yield f"No {missing.needed} yet."


# Runs


def run_lines(data: Collected, *, meaning: bool = False, tracked: bool = True) -> Iterator[str]:
    """Lines on the finished runs, their code and processors, and the rows with missing seeds.

    Args:
        data: Data of the study's scale.
        meaning: Take the study of reworded observations instead of all other experiments.
        tracked: The runs are of the tracked archive, whose missing ones ``make`` runs.
    """
    records = []
    for record in data.experiments:
        if record.scale in data.scales and is_of_meaning(record.experiment) == meaning:
            records.append(record)
    planned: set[str] = set().union(*(record.run_ids for record in records))
    runs = [run for run in data.by_id.values() if run.state == State.DONE and run.id in planned]
    left = len(planned) - len(runs)
    target = "meaning" if meaning else "study"
    if left:
        how = f"`make {target}` runs" if tracked else "The commands there run"
        yield (
            f"**Not finished: {left} of {len(planned)} planned runs are missing**, of the rows "
            f"named below; each comparison names its finished pairs. {how} what is missing.\n"
        )
    seconds = sum(sum(data.series(run.id, "timing_s/step").values) for run in runs)
    yield f"- {len(runs)} finished runs, {seconds / 3600:.1f} hours of training steps."
    dirty = sum(run.dirty for run in runs)
    changed = f"; {dirty} runs with uncommitted changes" if dirty else ""
    yield f"- Code: {_counted(str(run.commit)[:7] for run in runs)}{changed}."
    parts = []
    for part in data.sections:
        if any(is_of_meaning(name) == meaning for name in part.experiments):
            parts.append(part.with_all_seeds())
    for note in section_notes(parts, data.by_id):
        yield f"- Note: {note}."
    if late := named_too_late(data, meaning=meaning):
        yield f"- Named only after their results, and so not tested: {late}."
    if former := superseded(data, meaning=meaning):
        before = "of settings that a row had before they were changed"
        yield f"- Counted in the correction, {before}: {former}."
    yield f"- Processors: {_counted(_processor(run) for run in runs)}."
    for record in records:
        yield from _incomplete(data, record)


def _processor(run: Run) -> str:
    name = run.processor or "not recorded"
    if run.torch_capability == UNKNOWN:
        return name
    return f"{name}, {run.torch_capability}"


def _counted(values: Iterable[str]) -> str:
    counts = sorted(Counter(values).items())
    return ", ".join(f"{value} ({counted(count, 'run')})" for value, count in counts)


def _incomplete(data: Collected, record: ExperimentRecord) -> Iterator[str]:
    """Lines on the rows of an experiment with missing seeds, and the command that runs these."""
    counts: list[str] = []
    missing: set[int] = set()
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


def draw(data: Collected, names: Iterable[str], folder: Path) -> list[str]:
    """Draw pictures into a folder; returns the names of those that the runs allow."""
    # Figures are written to files; a backend with windows would need a display.
    mpl.use("agg")
    known = builders()
    drawn = []
    for name in names:
        path = folder / f"{name}.png"
        try:
            picture = known[name](data).files()["png"]
        except MissingRunsError:
            # An old picture of runs that are gone would contradict the page.
            path.unlink(missing_ok=True)
            continue
        write_bytes(path, picture, readable=True)
        drawn.append(name)
    return drawn


def between(text: str, markers: tuple[str, str], content: str) -> str:
    """Replace the text between two markers; a text without the markers is returned unchanged."""
    begin, end = markers
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        return text
    return f"{before}{begin}\n{content}\n{end}{after}"
