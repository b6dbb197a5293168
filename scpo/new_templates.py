"""Templates of the files that ``python -m scpo.new`` writes; names in braces are filled in."""

ESTIMATOR = '''"""{label}: TODO one line and the source (arXiv id, section)."""

from typing import Literal

from scpo.advantages.estimator import Estimator, GroupSettings
from scpo.advantages.groups import as_advantage, group_ids
from scpo.advantages.outcomes import row_scores, score_moments
from scpo.steps import FloatArray, StepBatch


class {title}Settings(GroupSettings):
    name: Literal["{name}"]


def {name}(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: {title}Settings
) -> FloatArray:
    """A_i = s_i - mean(s) over the group's values; TODO the paper's formula, its units.

    s = episode return - penalty * [invalid], in the unit of the rewards. Step returns and bonus
    are not read.
    """
    id_N = group_ids(batch.group_N)
    score_N = row_scores(batch, config)
    mean_G = score_moments(batch, score_N, id_N, config).mean_G
    return as_advantage(score_N - mean_G[id_N])


# An estimator that separates the steps of a trajectory also gives step_term, the part of the
# advantage that does so (gigpo.py): metrics and tables read it.
{constant} = Estimator(
    {title}Settings,
    {name},
    requires=frozenset(),
    labels={{"{name}": "{label}"}},
)
'''
ESTIMATOR_YAML = """# {label}: TODO what it is and its source. Every value with where it comes from.
name: {name}
gamma: 0.95 # Table 3
invalid_penalty: 0.1 # Table 3
statistics: rows # ledger 4
std_floor: 1.0e-5 # ours, see estimator/grpo.yaml
"""
METHOD_YAML = """# {label} (arXiv TODO): TODO one line; with PPO's clipped update as in verl-agent.
defaults:
  - /estimator@estimator: {name}
  - _self_

kind: trained
name: {name}
shaper: null
sampling: null # siblings in groups, once
clip_high: 0.2 # verl-agent's default
"""
RATE_YAML = """# @package _global_
# {label} on the laptop: the rate of GRPO and GiGPO, not tuned. TODO tune it like theirs: of four
# rates, take the one with the largest mean area under validation on seeds 100 to 102
# (+experiment=learning_rates). WebShop has a rate of its own.
trainer:
  optimizer:
    learning_rate: 2.0e-3 # ours
"""
ESTIMATOR_TEST = """import numpy as np

from scpo.advantages.{name} import {name}
from tests.support.step_batches import make_batch, settings_of


def advantages(batch, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return {name}(batch, zero_N, zero_N, settings_of("{name}", **changes))


def test_hand_worked_group():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a", 0))  # scores 1 1 1 0, mean 3/4
    assert np.allclose(advantages(batch), [0.25, 0.25, 0.25, -0.75])
"""
IDENTITY = '''"""States are equal if TODO one line and the source."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.steps import IntArray


def {name}(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each set of words; TODO what is compared, and what it does not distinguish."""
    return key_ids(frozenset(text.lower().split()) for text in visits.text_M)


{constant} = Identity("{name}", "{label}", {name})
'''
IDENTITY_TEST = """from scpo.states.registry import IDENTITIES, identify
from tests.support.step_batches import make_batch


def test_hand_worked_group():
    batch = make_batch(*[(0, k, "x", 0) for k in range(3)], anchor_N=["a mug", "mug a", "a pen"])
    source_N = identify(batch, "anchor", IDENTITIES["{name}"]).source_N
    assert source_N[0] == source_N[1] != source_N[2]
"""
SCORER = '''"""Scorer {label}: TODO one line and the source."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scpo.schema.scorer.{name} import {title}Scorer
from scpo.scoring import SCORERS


class {title}:
    """Share of the words of two step texts that both have; TODO the formula."""

    def __init__(self, config: {title}Scorer) -> None:
        self.name = config.identity

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Similarity of each pair in [0, 1]."""
        return np.fromiter(
            (_similarity(first, second) for first, second in pairs),
            dtype=np.float32,
            count=len(pairs),
        )


def _similarity(first: str, second: str) -> float:
    words, others = set(first.lower().split()), set(second.lower().split())
    if not words | others:
        return 1.0
    return len(words & others) / len(words | others)


SCORERS["{name}"] = lambda config, device, cache_dir: {title}(config)
'''
SCORER_SETTINGS = '''"""Settings of the scorer {label}."""

from typing import Literal

from scpo.schema.scorer_entry import ScorerSettings


class {title}Scorer(ScorerSettings):
    """TODO the formula; every setting that changes a score goes into ``identity``."""

    kind: Literal["{name}"]


# This file is found by its name (scpo/schema/scorer/__init__.py).
SETTINGS = {title}Scorer
'''
SCORER_YAML = """# {label}: TODO what it is and its source. Every value with where it comes from.
kind: {name}
name: {name}
"""
SCORER_TEST = """import numpy as np
import pytest

from scpo.library import load_scorer


def test_hand_worked_pairs():
    scores = load_scorer("{name}").score([("open fridge", "open drawer"), ("open fridge", "look")])
    assert scores.tolist() == pytest.approx([1 / 3, 0])


def test_scores_lie_between_0_and_1_and_equal_texts_are_most_similar():
    texts = ["", "look", "open fridge 1", "Open the fridge.", "close fridge 1"]
    pairs = [(first, second) for first in texts for second in texts]
    scores = load_scorer("{name}").score(pairs)
    assert scores.dtype == np.float32
    assert scores.shape == (len(pairs),)
    assert np.all((scores >= 0) & (scores <= 1))
    assert all(score == 1 for score, pair in zip(scores, pairs, strict=True) if len(set(pair)) == 1)
    assert load_scorer("{name}").score([]).shape == (0,)
"""
MATCHER = '''"""Matcher {label}: TODO one line and the source."""

from collections.abc import Sequence

from scpo.shaping.matcher import MATCHERS, Cell, Credited, Matching, MatchRule, MatchTrace


def {name}_match(rule: MatchRule, m: int, order: Sequence[int]) -> Matching:
    """TODO the rule in one line.

    As written, a step may only match the next position. A step that does not match it is left out,
    and the walk stays at its position.
    """
    j = -1
    walk, credited = [], []
    for v in order:
        score = yield Cell("failed", j + 1, v)
        if score >= rule.theta:
            j += 1
            credited.append(Credited(j, v, float(score), float(rule.credit(score))))
        walk.append((v, j))
        if j == m - 1:
            if rule.stops:
                break
            j = -1
    return MatchTrace(tuple(walk), tuple(credited))


# This file is found by its name (scpo/shaping/__init__.py).
MATCHERS["{name}"] = {name}_match
'''
MATCHER_TEST = """import numpy as np

from scpo.shaping.matcher import match_dense


def test_hand_worked_credit():
    similarity = np.array([[1, 0, 0], [0, 0, 0.7]], np.float32)  # reference steps x failed steps
    credit_l = match_dense(similarity, np.eye(2), 0.6, 0.4, order=range(3), matcher="{name}")
    assert np.allclose(credit_l, [1, 0, 0.5])  # (0.7 - 0.4) / (1 - 0.4)
"""
FIGURE = '''"""{label}: TODO one line on what the figure shows."""

from analysis import names
from analysis.line_styles import line_styles
from analysis.rendering.style import COLUMN_WIDTH, Drawing, canvas_width, house_style, new_figure
from analysis.rendering.table import Block, Table, percent
from analysis.sources.collected import Collected, missing_runs
from scpo.benchmarks import BENCHMARKS

# TODO: what the figure is about; the rest says what is drawn.
CAPTION = "Success (%), last checkpoint, {{panel}}: mean ± standard deviation over seeds."


def build(data: Collected) -> Drawing:
    """One point per row of the first section with finished runs.

    Raises:
        MissingRunsError: No run is finished.
    """
    sections = [part for part in data.sections if any(row.finished for row in part.rows)]
    if not sections:
        raise missing_runs("finished run", data.sections)
    part = sections[0]
    rows = [row for row in part.rows if row.finished]
    # Each benchmark has panels of its own.
    panel = BENCHMARKS[part.env].judged[part.scale]
    success = [data.summary(row, names.success_metric(panel), "last") for row in rows]
    styles = line_styles(rows)
    with house_style():
        figure = new_figure(canvas_width(COLUMN_WIDTH), 0.6 + 0.22 * len(rows))
        axis = figure.subplots()
        for place, (row, rate) in enumerate(zip(rows, success, strict=True)):
            style = styles[row.name]
            axis.errorbar(
                100 * rate.mean, place, xerr=100 * rate.std, color=style.color, marker=style.marker
            )
        axis.set_yticks(range(len(rows)), [row.label for row in rows])
        axis.invert_yaxis()
        axis.set_xlim(left=0)
        # A short text, because long labels of rows leave a narrow axis that would cut it off.
        axis.set_xlabel("success (%)")
    cells = tuple(
        (row.label, row.count, percent(rate)) for row, rate in zip(rows, success, strict=True)
    )
    title = names.panel_title(part.env, panel)
    block = Block(names.place(part.scale, part.env, part.model), cells)
    table = Table(
        words=("Method", "Seeds"),
        numbers=("Success",),
        blocks=(block,),
        caption=names.with_note(CAPTION.format(panel=title), part.scale),
        label=f"fig:{name}-{{part.scale}}",
    )
    return Drawing(figure, table)
'''
FIGURE_TEST = """import pytest

from analysis.figures.fig_{name} import build
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from tests.support.run_records import log_only, write_experiment, write_run

SUCCESS = "val/train_games/success_rate"


def test_a_row_is_a_point_at_its_success(tmp_path):
    run = write_run(tmp_path, "gigpo", 0)
    log_only(tmp_path, run, SUCCESS, {{0: 0.1, 20: 0.9, 40: 0.8}})
    write_experiment(tmp_path, {{"gigpo": [run]}}, name="ablation")
    drawn = build(collect(tmp_path).at_scale("mini"))
    assert drawn.figure.axes[0].get_lines()[0].get_xdata() == pytest.approx([80])


def test_each_benchmark_has_its_own_panel(tmp_path):
    run = write_run(tmp_path, "gigpo", 0, overrides=("method=gigpo", "env=webshop"))
    log_only(tmp_path, run, "val/test/success_rate", {{0: 0.1, 40: 0.6}})
    write_experiment(tmp_path, {{"gigpo": [run]}}, name="ablation")
    drawn = build(collect(tmp_path).at_scale("mini"))
    assert drawn.figure.axes[0].get_lines()[0].get_xdata() == pytest.approx([60])
    assert "held-out goals" in drawn.numbers.caption


def test_no_label_is_cut_off(tmp_path):
    name = "a row with a label of forty letters here"
    write_experiment(tmp_path, {{name: [write_run(tmp_path, "gigpo", 0)]}}, name="ablation")
    figure = build(collect(tmp_path).at_scale("mini")).figure
    figure.draw_without_rendering()
    label = figure.axes[0].xaxis.label.get_window_extent()
    assert label.x0 >= 0
    assert label.x1 <= figure.bbox.x1


def test_without_a_finished_run_nothing_is_drawn(tmp_path):
    with pytest.raises(MissingRunsError):
        build(collect(tmp_path).at_scale("mini"))
"""
EXPERIMENT_YAML = """# @package _global_
# {label}: TODO the question that it asks (ours, or the paper's section).
# Each row runs on every seed.
experiment:
  name: {name}
  title: "{label}"
  axes:
    env: [alfworld]
    model: {{ mini: [tiny], study: [choice], paper: [qwen2_5_1_5b] }}
    seeds: {{ mini: 3, study: 10, paper: 3 }} # a number: 0, 1, ...; or a list of seeds
  rows:
    - {{ name: gigpo, label: GiGPO, overrides: [method=gigpo] }}
    - {{ name: scpo, label: SCPO, overrides: [method=scpo] }}
  primary: # named before the runs; each is the first minus the second, paired by seed
    measure: validation_area # ours: mean held-out success over training
    comparisons: [[scpo, gigpo]] # ours
"""
