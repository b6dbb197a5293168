"""The study of reworded observations: its figure, its own family of comparisons, the block in its page."""

from pathlib import Path

import pytest
import yaml

import scpo
from analysis import __main__ as analysis
from analysis.figures import fig_meaning
from analysis.rendering.style import COLUMN_WIDTH, Look, drawn_as
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.stats.comparisons import named_comparisons
from analysis.study import meaning
from analysis.study.agreement import ALFWORLD
from scpo.records.archive_index import read_index
from scpo.records.files import write_json
from scpo.schema.method import METHOD_LABELS
from tests.support.study_runs import rising, write_study, write_study_run

ROOT = Path(__file__).resolve().parents[4]

SEEDS = (30, 31, 32)
# Row -> (method, further overrides, label, end of its curve at doses 0 and 1).
ROWS = {
    "grpo": ("grpo", (), "GRPO", (0.6, 0.6)),
    "crbc_exact": ("crbc", (), "CRBC, equal texts", (0.9, 0.61)),
    "crbc_history": ("crbc", ("method.estimator.states=history",), "CRBC, history", (0.9, 0.88)),
}
DOSES = {"meaning_dose0": 0, "meaning": 1}


def write_meaning(folder):
    """Both experiments, three seeds a row."""
    for experiment, dose in DOSES.items():
        rows = []
        for name, (method, words, label, ends) in ROWS.items():
            runs = [
                write_study_run(
                    folder,
                    method,
                    seed,
                    rising(ends[dose], 0.01 * (seed % 2)),
                    overrides=(*words, f"env.wordings.dose={dose}"),
                )
                for seed in SEEDS
            ]
            rows.append({"name": name, "label": label, "runs": runs})
        primary = {"measure": "validation_area", "comparisons": [["crbc_history", "crbc_exact"]]}
        record = {"experiment": experiment, "title": experiment, "scale": "study", "rows": rows, "primary": primary}
        write_json(folder / "experiments" / f"{experiment}-study.json", record)


@pytest.fixture
def runs(tmp_path):
    write_meaning(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def data(runs):
    return collect(runs).at_scale("study")


def test_the_page_of_an_archive_of_one_s_own_shows_the_picture_of_that_archive(runs, tmp_path):
    archive, page = tmp_path / "mine" / "runs of mine", tmp_path / "mine.md"
    words = ["--archive", str(archive), "--page", str(page), "--create", "--allow-uncommitted", "--add", "*"]
    assert analysis.main(["meaning", "--runs", str(runs), *words]) == 0
    assert "(mine/runs%20of%20mine/fig_meaning.png)" in page.read_text()
    assert (archive / "fig_meaning.png").exists()


def test_a_line_goes_through_the_doses_of_one_identity(data):
    found = {(line.method, line.identity): sorted(line.rows) for line in fig_meaning.lines(data)}
    assert found == {
        ("grpo", "GRPO"): [0, 1],
        ("crbc", "equal texts"): [0, 1],
        ("crbc", "history"): [0, 1],
    }


def test_the_figure_has_a_panel_for_each_method_and_the_baseline_in_it(data):
    made = fig_meaning.build(data)
    (axis,) = made.figure.axes
    assert axis.get_title() == "CRBC"
    assert [text.get_text() for text in made.figure.legends[0].get_texts()] == ["history", "equal texts", "GRPO"]
    with drawn_as(Look(width=COLUMN_WIDTH)):
        assert fig_meaning.build(data).figure.get_figwidth() == COLUMN_WIDTH


def test_the_table_holds_areas_by_dose_and_the_difference_to_the_baseline(data):
    table = fig_meaning.numbers(data)
    assert table.numbers == ("Area at 0 % reworded (%)", "Area at 100 % reworded (%)", "Minus GRPO")
    crbc = next(block for block in table.blocks if block.title == "CRBC")
    exact, history = crbc.rows
    assert (exact[0], exact[1], exact[2].text, exact[3].text) == ("equal texts", "3", "45.3 ± 0.5", "30.8 ± 0.5")
    assert exact[4].text.startswith("+0.5")
    assert history[4].text.startswith("+14.0")
    assert "Seeds 30 to 32; learning rates: 2e-3 of GRPO; 4e-3 of CRBC." in table.caption


def test_other_rewordings_have_no_axis_of_doses(runs):
    words = ("env.wordings.dose=1", "env.wordings.arms=[suffix]")
    run = write_study_run(runs, "crbc", 30, rising(0.9), overrides=words)
    rows = [{"name": "exact_suffix", "label": "CRBC, suffix", "runs": [run]}]
    record = {"experiment": "meaning_arms", "title": "Arms", "scale": "study", "rows": rows}
    write_json(runs / "experiments" / "meaning_arms-study.json", record)
    found = fig_meaning.lines(collect(runs).at_scale("study"))
    assert "suffix" not in [line.identity for line in found]
    left_out = "rows under other arms of rewording (env.wordings.arms): CRBC, suffix."
    data = collect(runs)
    assert left_out in fig_meaning.build(data.at_scale("study")).numbers.caption
    with pytest.raises(MissingRunsError, match=r"a method that compares states.*other arms.*: CRBC, suffix"):
        fig_meaning.build(Selection(rows=("grpo", "exact_suffix")).of(data).at_scale("study"))


def test_rows_on_fresh_seeds_are_paired_among_themselves(runs):
    words = ("env.wordings.dose=1",)
    made = {
        name: [write_study_run(runs, name, seed, rising(end), overrides=words) for seed in (40, 41)]
        for name, end in (("grpo", 0.5), ("crbc", 0.9))
    }
    rows = [{"name": name, "label": f"{name.upper()}, reworded", "runs": ids} for name, ids in made.items()]
    record = {"experiment": fig_meaning.FRESH, "title": "Fresh", "scale": "study", "rows": rows}
    write_json(runs / "experiments" / f"{fig_meaning.FRESH}-study.json", record)
    data = collect(runs).at_scale("study")
    baseline = next(line for line in fig_meaning.lines(data) if line.method == "grpo")
    assert len(baseline.highest.row.finished) == len(SEEDS)
    grpo, crbc = (block.rows[0] for block in fig_meaning.numbers(data, fresh=True).blocks)
    assert (grpo[1], crbc[1]) == ("2", "2")
    assert crbc[-1].text.startswith("+20.0")


def test_at_one_dose_a_method_that_compares_states_is_drawn_and_rows_on_fresh_seeds_are_named(runs):
    words = ("env.wordings.dose=1",)
    fresh = [write_study_run(runs, "crbc", 40, rising(0.9), overrides=words)]
    rows = [{"name": "crbc_fresh", "label": "CRBC, reworded", "runs": fresh}]
    record = {"experiment": fig_meaning.FRESH, "title": "Fresh", "scale": "study", "rows": rows}
    write_json(runs / "experiments" / f"{fig_meaning.FRESH}-study.json", record)
    data = collect(runs)
    made = fig_meaning.build(Selection(experiments=("meaning", fig_meaning.FRESH)).of(data).at_scale("study"))
    assert [axis.get_title() for axis in made.figure.axes] == ["CRBC"]
    assert [text.get_text() for text in made.figure.legends[0].get_texts()] == ["history", "equal texts", "GRPO"]
    of_fresh = "rows of meaning_fresh, which is on seeds of its own: CRBC, reworded"
    assert f"Not shown: {of_fresh}." in made.numbers.caption
    with pytest.raises(MissingRunsError, match=of_fresh):
        fig_meaning.build(Selection(experiments=(fig_meaning.FRESH,)).of(data).at_scale("study"))


def test_without_such_runs_the_figure_names_the_command(tmp_path):
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, dict.fromkeys(("scpo", "gigpo"), lambda _: rising(0.9)))
    with pytest.raises(MissingRunsError, match="reworded"):
        fig_meaning.build(collect(tmp_path).at_scale("study"))


def test_its_comparisons_are_a_family_of_their_own(runs):
    curves = dict.fromkeys(("scpo", "gigpo"), lambda seed: rising(0.9, 0.01 * (seed % 2)))
    write_study(runs, {"main_table": ("scpo", "gigpo")}, curves)
    data = collect(runs).at_scale("study")
    assert [found.name for found in named_comparisons(data)] == ["SCPO − GiGPO"]
    names = [found.name for found in named_comparisons(data, meaning=True)]
    assert names == ["CRBC, history − CRBC, equal texts"] * 2  # one for each dose


def test_the_command_adds_runs_and_writes_between_the_markers(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "docs" / "meaning.md"
    page.parent.mkdir()
    page.write_text("before\n{}\nold\n{}\nafter\n".format(*meaning.MARKERS))
    assert analysis.main(["meaning", "--create", "--add", "meaning*"]) == 0
    text = page.read_text()
    assert (text.partition("\n")[0], text.splitlines()[-1]) == ("before", "after")
    assert "\nold\n" not in text
    assert "![Area under validation over the share of reworded observations](meaning/fig_meaning.png)" in text
    assert (page.parent / "meaning" / "fig_meaning.png").is_file()
    assert "- 18 finished runs" in text
    assert "CRBC, history − CRBC, equal texts +13.5 points" in capsys.readouterr().out


def test_a_new_page_is_made_as_the_studys_is(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--create", "--add", "meaning*", "--archive", "archive", "--page", "new/page.md"]
    assert analysis.main(["meaning", *words]) == 0
    text = (tmp_path / "new" / "page.md").read_text()
    assert text.startswith(meaning.MARKERS[0])
    assert "- 18 finished runs" in text
    assert analysis.main(["meaning", *words[3:]]) == 0
    assert (tmp_path / "new" / "page.md").read_text() == text


@pytest.mark.parametrize("path", sorted((ROOT / "conf/experiment").glob("meaning*.yaml")), ids=lambda path: path.stem)
def test_every_row_is_labelled_with_its_method_in_the_experiment_and_in_the_archive(path):
    rows = {row["name"]: row for row in yaml.safe_load(path.read_text())["experiment"]["rows"]}
    (record,) = (r for r in read_index(ROOT / "docs/meaning")[0].experiments if r["experiment"] == path.stem)
    for row in record["rows"]:
        method = rows[row["name"]]["overrides"][0].removeprefix("method=")
        assert row["label"] == rows[row["name"]]["label"]
        assert row["label"].startswith(METHOD_LABELS[method])


def test_the_committed_page_has_what_the_committed_archive_gives():
    data = collect(ROOT / meaning.ARCHIVE).at_scale("study")
    page = (ROOT / meaning.PAGE).read_text()
    same = meaning.with_results(page, data, [meaning.FIGURE]) == page
    assert same, "what the page is made by has changed: give `python -m analysis meaning` and commit docs/meaning.md"


def test_the_studys_archive_takes_no_run_of_reworded_observations(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--create", "--add", "*", "--archive", "archive", "--page", "page.md"]
    assert analysis.main(["study", *words]) == 1
    assert "no finished run of an experiment at scale=study matches '*'" in capsys.readouterr().out


def test_without_an_archive_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert analysis.main(["meaning"]) == 1
    assert "python -m analysis meaning --archive docs/meaning --create" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "head"), [("alfworld", "| training step |"), ("webshop", "| WebShop, training step |")]
)
def test_the_agreement_that_the_page_prints_is_that_of_the_archive(env, head):
    root = Path(__file__).parents[4]
    section = (root / "docs/meaning.md").read_text().split("## Why some identities failed")[1]
    lines = section[section.index(head) :].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    steps = [int(cell) for cell in cells[0][1:]]
    logged = scpo.load_runs(root / "docs/meaning", metrics="states/*")
    # Rows that ran only where every observation is reworded.
    settings = logged[logged.row.isin(["crbc_oracle", "effects_pronouns"])].setting.unique()
    reworded = logged[logged.setting.isin(settings) & (logged.env == env)]
    for label, *printed in cells[2:]:
        words, measure = label.replace("`", "").split(": ")
        row = "effects_pronouns" if "pronouns" in words else f"crbc_{words}"
        own = reworded[(reworded.row == row) & (reworded.metric == f"states/{measure.split()[0]}")]
        assert own.seed.nunique() == 10, label
        assert printed == [f"{own[own.step == step].value.mean():.2f}" for step in steps], label
    # The text was "mean of ten seeds" for all of them.
    cosines = reworded[reworded.row.isin(["crbc_effects", "crbc_learned"]) & (reworded.metric == "states/cosine")]
    (seeds,) = set(cosines[cosines.step == 1].groupby("row").seed.nunique())
    assert seeds == {"alfworld": 8, "webshop": 9}[env]
    (text,) = section[: section.index(head)].strip().splitlines()[-1:]
    assert f"means over 10 seeds, those of the cosine at training step 1 over the {seeds} that have a value:" in text


def test_without_runs_of_its_rows_a_table_of_agreement_is_not_written(data):
    text = "\n".join((*ALFWORLD.markers, *meaning.MARKERS))
    assert "Not run yet." in meaning.with_results(text, data, []).partition(meaning.MARKERS[0])[0]
