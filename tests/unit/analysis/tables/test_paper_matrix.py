"""The paper's whole main table from fabricated runs: every cell holds the numbers of its own runs and of no others."""

import re
import statistics
from dataclasses import replace
from itertools import product

import pytest

from analysis.names import COLUMNS, METHODS, success_metric
from analysis.rendering.table import Number
from analysis.sources.collect import collect
from analysis.tables import tab_main
from scpo.schema.method import METHOD_LABELS
from tests.support.fabricated_runs import NOT_STARTED, STEPS, invented, of_experiment, write_record, write_runs

HOLES = {  # (row, environment, model, seed): state
    ("scpo", "webshop", "1.5B", 0): "FAILED",
    ("grpo", "alfworld", "1.5B", 2): NOT_STARTED,
    ("hcapo", "alfworld", "1.5B", 1): "RUNNING",
    **{("rloo", "webshop", "7B", seed): NOT_STARTED for seed in range(3)},
    **{("hgpo", "alfworld", "7B", seed): "FAILED" for seed in range(3)},
}
SHORT, LONG = "trainer.steps=25 (the others: 150)", "env.horizon=30 (the others: 15)"
UNKNOWN = "newcomer"
PANELS = {"valid_seen": ("valid_seen", "test"), "valid_unseen": ("valid_unseen", None)}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    """Three settings and two scales: {(scale, setting): runs}, and the table of the paper's scale."""
    folder = tmp_path_factory.mktemp("matrix")
    asked = of_experiment("main_table", "scale=paper", "env=[alfworld,webshop]")
    assert len({run.id for run in asked}) == 112
    asked = [run.changed(trainer__name="local") if run.row == "hcapo" else run for run in asked]
    main = [replace(run, state=HOLES.get((run.row, run.env, run.model, run.seed), "DONE")) for run in asked]
    main += [run.changed(method=UNKNOWN) for run in asked if run.row == "gigpo" and run.env == "alfworld"]
    few = [run for run in asked if run.row in ("grpo", "gigpo", "scpo") and run.model == "1.5B"]
    runs = {
        ("paper", ""): main,
        ("paper", SHORT): [run.changed(trainer__steps=25) for run in few if run.env == "alfworld"],
        ("paper", LONG): [run.changed(env__horizon=30) for run in few if run.env == "webshop"],
        ("mini", ""): [run.changed(scale="mini") for run in few],
    }
    for (scale, setting), written in runs.items():
        write_runs(folder, written)
        write_record(folder, f"{scale}_{re.sub(r'[^a-z]', '', setting) or 'main_table'}", written)
    data = collect(folder)
    assert not data.problems
    return runs, data


def lines(data, scale):
    """(title, size, setting, ALFWorld's panel, WebShop's, method, what, seeds, cells by column) of measured lines."""
    made = tab_main.build(data.at_scale(scale))
    assert made.words == ("Type", "Method", "Numbers", "Seeds", "State key")
    for block in made.blocks:
        unseen, trained = "valid_unseen" in block.title, "train_games" in block.title
        panels = ("train_games",) * 2 if trained else PANELS["valid_unseen" if unseen else "valid_seen"]
        setting = next((one for one in (SHORT, LONG) if one in block.title), "")
        size = re.search(r"1\.5B|7B|GPT-4o|Gemini|Closed", block.title)[0]
        for kind, label, what, seeds, key, *cells in block.rows:
            assert kind in ("Prompting", "RL")
            assert label
            if what not in ("published", "quoted"):
                shown = dict(zip(made.numbers, cells, strict=True))
                yield block.title, size, setting, panels, label, what, seeds, shown | {"key": key}


def name_of(label):
    names = {text: name for name, text in METHOD_LABELS.items()} | {
        "GPT-4o": "gpt_4o",
        "Gemini-2.5-Pro": "gemini_2_5_pro",
    }
    bare = label.rstrip("†‡§¶*")
    return names.get(bare, bare)


def rows_of(runs, size, label):
    """The runs of the row with this label, by environment and seed; the mark of a footnote left out."""
    name = name_of(label)
    model = {"gpt_4o": "GPT-4o", "gemini_2_5_pro": "Gemini-2.5-Pro"}.get(name, size)
    found = [run for run in runs if run.row == name and run.model == model]
    return {env: {run.seed: run for run in found if run.env == env} for env in ("alfworld", "webshop")}


def finished(runs):
    return {seed: run for seed, run in runs.items() if run.state == "DONE"}


def expected(runs, metric, judged, which):
    """Mean ± std over the finished runs; at the best step by ``judged``, or at the last."""
    values = []
    for run in finished(runs).values():
        best = max(STEPS, key=lambda step: (invented(run.id, judged, step), -step))
        values.append(100 * invented(run.id, metric, best if which == "best" else STEPS[-1]))
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}ʳ" if len(values) > 1 else f"{mean}ʳ"


def expected_difference(ours, theirs, metric):
    pairs = [(ours[seed].id, theirs[seed].id) for seed in finished(ours).keys() & finished(theirs).keys()]
    values = [100 * (invented(a, metric, STEPS[-1]) - invented(b, metric, STEPS[-1])) for a, b in pairs]
    return f"{statistics.fmean(values):+.1f}".replace("-", "−") if values else "–"


def columns(panels):
    """(column, environment, metric, metric that the best is chosen by, checkpoint)."""
    home, shop = panels
    for column in COLUMNS:
        yield column, "alfworld", success_metric(home, column), success_metric(home), "last"
    yield "All, best", "alfworld", success_metric(home), success_metric(home), "best"
    for which, end in (("last", ""), ("best", ", best")):
        for column, name in (("Score", "score"), ("Succ", "success_rate")):
            yield f"{column}{end}", "webshop", f"val/{shop}/{name}", f"val/{shop}/success_rate", which


@pytest.mark.parametrize("scale", ["paper", "mini"])
def test_every_cell_holds_the_numbers_of_its_own_runs(matrix, scale):
    runs, data = matrix
    seen, cells_checked = set(), 0
    for title, size, setting, panels, label, what, seeds, cells in lines(data, scale):
        mine = runs[scale, setting]
        minus = what == "paired by seed"
        rows = rows_of(mine, size, label.removeprefix("SCPO − ") if minus else label)
        scpo = rows_of(mine, size, "SCPO")
        blank = {"alfworld": setting == LONG, "webshop": setting == SHORT or panels[1] is None}
        prompted = METHODS.get(name_of(label.removeprefix("SCPO − ")), METHODS["scpo"]).kind == "Prompting"
        for column, env, metric, judged, which in columns(panels):
            here = {} if blank[env] else rows[env]
            if minus:
                want = expected_difference({} if blank[env] else scpo[env], here, metric) if which == "last" else "–"
                assert cells[column].mean == want, (title, label, column)
            elif what == "re-run here":
                want = "–" if prompted and which == "best" else expected(here, metric, judged, which)
                assert cells[column].text == want, (title, label, what, column)
            seen |= {run.id for run in finished(here).values()}
            cells_checked += 1
        counts = [f"{len(finished(one))}/{len(one)}" if one else "n/a" for env, one in rows.items() if not (
            (env == "alfworld" and setting == LONG) or (env == "webshop" and setting == SHORT))]  # fmt: skip
        if what == "re-run here":
            assert seeds == ("; ".join(counts) if len(set(counts)) > 1 else counts[0]), (title, label)
    done = {run.id for (at, _), written in runs.items() if at == scale for run in written if run.state == "DONE"}
    assert seen == done
    assert cells_checked > (1000 if scale == "paper" else 100)


def test_every_method_and_setting_has_its_lines_once(matrix):
    _, data = matrix
    found = [(title, label, what) for title, _, _, _, label, what, _, _ in lines(data, "paper")]
    assert len(found) == len(set(found))
    labels = {label for _, label, _ in found}
    assert UNKNOWN in labels
    marks = {text: mark for mark, text in tab_main.build(data.at_scale("paper")).footnotes.items()}
    own_trainer = marks["SCPO: trainer=verl (HCAPO: local)"]
    assert {"HCAPO†", f"SCPO − HCAPO{own_trainer}", "SCPO − GiGPO", f"SCPO − {UNKNOWN}"} <= labels
    titles = {title for title, _, _ in found}
    for setting, panel in product((SHORT, LONG), ("valid_seen", "test")):
        assert sum(setting in title and panel in title for title in titles) == (
            2 if (setting == SHORT) == (panel == "valid_seen") else 0
        )


def test_the_identity_of_states_of_an_estimator_is_next_to_its_numbers(matrix):
    _, data = matrix
    keys = {label: cells["key"] for _, _, _, _, label, what, _, cells in lines(data, "paper") if what == "re-run here"}
    assert (keys["GiGPO"], keys["GRPO"], keys["Plain prompt"]) == ("anchor", "–", "–")


def test_a_setting_that_differs_for_a_reason_has_a_mark_and_a_footnote(matrix):
    _, data = matrix
    caption = tab_main.build(data.at_scale("paper")).caption
    assert "† trainer=local (the others: verl)." in caption


def test_what_scpo_adds_has_an_interval_over_the_seeds_that_both_have(matrix):
    _, data = matrix
    line = next(one for one in lines(data, "paper") if one[1] == "1.5B" and one[4] == "SCPO − GRPO" and not one[2])
    assert line[6] == "2"  # seeds 0 and 1 on ALFWorld, 1 and 2 on WebShop
    overall = line[7]["All"]
    assert isinstance(overall, Number)
    low, high = (float(bound.replace("−", "-")) for bound in overall.interval)
    assert (low + high) / 2 == pytest.approx(float(overall.mean.replace("−", "-")), abs=0.11)
    assert line[7]["Pick"].interval is None


def test_no_table_holds_two_scales(matrix):
    _, data = matrix
    assert data.scales == ("mini", "paper")
    assert all("mini scale" not in block.title for block in tab_main.build(data.at_scale("paper")).blocks)
    assert all("paper scale" not in block.title for block in tab_main.build(data.at_scale("mini")).blocks)
