"""Notes on settings that compared runs should share: the estimator of a host, those of both benchmarks."""

import json

import pytest

import scpo
from analysis.build import build_from
from analysis.show import experiment_table
from analysis.sources.code_versions import section_notes
from analysis.sources.collect import collect
from analysis.tables import tab_beyond, tab_main
from scpo.records.files import write_json
from tests.support.run_records import write_experiment, write_run
from tests.support.sketches import sketch

OMEGA = "method.estimator.omega=2.0"
NOTE = "method.estimator.omega=1.0 (gigpo: 2.0)"


def pair(runs_dir, gigpo=(OMEGA,), scpo=(), **more):
    """An experiment of SCPO and its host, each with overrides of its own."""
    rows = {}
    for name, overrides in {"gigpo": ("method=gigpo", *gigpo), "scpo": scpo, **more}.items():
        rows[name] = [write_run(runs_dir, name, seed, overrides=overrides) for seed in (0, 1)]
    write_experiment(runs_dir, rows, name="pair")
    return collect(runs_dir)


def differs(data):
    (part,) = data.sections
    return {row.name: row.differs for row in part.rows}


def test_a_row_names_the_settings_of_its_estimator_that_its_host_does_not_have(tmp_path):
    data = pair(tmp_path)
    assert differs(data) == {"gigpo": "", "scpo": NOTE}
    scale = data.scales[0]
    for build in (tab_main.build, tab_beyond.build):
        table = build(data.at_scale(scale))
        assert NOTE in table.footnotes.values()
    labels = [line[1] for block in tab_main.build(data.at_scale(scale)).blocks for line in block.rows]
    assert "SCPO† − GiGPO" in labels
    assert f"note: SCPO (default): {NOTE}" in experiment_table(tmp_path, "pair")


def test_rows_with_the_estimator_of_their_host_have_no_note(tmp_path):
    assert set(differs(pair(tmp_path, gigpo=())).values()) == {""}


def test_a_row_may_change_a_setting_together_with_a_row_of_its_host(tmp_path):
    changed = {"gigpo_2": ("method=gigpo", OMEGA), "scpo_2": (OMEGA,)}
    assert set(differs(pair(tmp_path, gigpo=(), **changed)).values()) == {""}
    # The default row is compared with the default row of its host.
    changed = {"gigpo_1": ("method=gigpo",), "scpo_2": (OMEGA,)}
    assert differs(pair(tmp_path / "second", **changed))["scpo"] == NOTE


def test_a_comparison_of_two_methods_warns_of_their_estimators(tmp_path):
    pair(tmp_path)
    runs = scpo.load_runs(tmp_path)
    warning = r"more than the method: method\.estimator\.omega=1\.0 \(the others: 2\.0\)"
    with pytest.warns(UserWarning, match=warning):
        scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"])


def test_outputs_without_a_footnote_have_the_note_in_their_caption(tmp_path, monkeypatch):
    sketch(monkeypatch)
    pair(tmp_path / "runs")
    data = collect(tmp_path / "runs")
    (cost,) = build_from(data, tmp_path / "out", only=["tab_cost"]).outputs
    (main,) = build_from(data, tmp_path / "out", only=["tab_main"]).outputs
    assert f"Note: SCPO (default): {NOTE}." in cost.made.full_caption
    assert main.made.full_caption.count(NOTE) == 1


def both_benchmarks(runs_dir, of_shop):
    rows = {"gigpo": [], "scpo": []}
    for row, made in rows.items():
        for env, own in (("alfworld", ()), ("webshop", of_shop)):
            overrides = (f"method={row}", f"env={env}", *own)
            made += [write_run(runs_dir, row, seed, overrides=overrides) for seed in (0, 1)]
    write_experiment(runs_dir, rows, name="main_table")
    return collect(runs_dir)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ((OMEGA,), "method.estimator.omega=1.0 on ALFWorld, 2.0 on WebShop"),
        (("trainer.groups=2",), "trainer.groups=8 on ALFWorld, 2 on WebShop"),
    ],
)
def test_a_row_with_other_settings_on_the_other_benchmark_has_a_note(tmp_path, overrides, text):
    data = both_benchmarks(tmp_path, overrides)
    assert section_notes(data.sections, data.by_id) == (f"gigpo, SCPO (default): {text}",)


def test_a_footnote_of_one_benchmark_of_a_line_names_it(tmp_path):
    rows = {"gigpo": [], "scpo": []}
    for row, env, own in (("gigpo", "alfworld", ()), ("gigpo", "webshop", (OMEGA,)), ("scpo", "alfworld", ()),
                          ("scpo", "webshop", ())):  # fmt: skip
        overrides = (f"method={row}", f"env={env}", *own)
        rows[row] += [write_run(tmp_path, row, seed, overrides=overrides) for seed in (0, 1)]
    write_experiment(tmp_path, rows, name="main_table")
    data = collect(tmp_path)
    table = tab_main.build(data.at_scale(data.scales[0]))
    assert list(table.footnotes.values()) == [f"on WebShop: {NOTE}"]


def test_settings_that_the_benchmarks_define_have_no_note(tmp_path):
    data = both_benchmarks(tmp_path, ())
    alphas = {run.config["method"]["shaper"]["alpha"] for run in data.by_id.values() if run.head.method.shaper}
    assert len(alphas) == 2
    assert section_notes(data.sections, data.by_id) == ()


def test_a_row_of_an_own_method_names_all_settings_of_its_shaper_and_its_host(tmp_path):
    mine = ("method.name=mine", "estimator@method.estimator=hgpo", "method.shaper.theta=0.7", "method.shaper.alpha=1.0")
    data = pair(tmp_path, gigpo=(), mine=mine)
    settings = {"estimator": ("hgpo", "gigpo"), "shaper.alpha": ("1.0", "0.5"), "shaper.theta": ("0.7", "0.6")}
    note = "; ".join(f"method.{key}={own} (SCPO (default): {usual})" for key, (own, usual) in settings.items())
    assert differs(data) == {"gigpo": "", "scpo": "", "mine": note}


def given(runs_dir):
    """Caption of ``tab_beyond`` after the record of the second call has replaced that of the first."""
    data = collect(runs_dir)
    (output,) = build_from(data, runs_dir / "out", only=["tab_beyond"]).outputs
    return output.made.full_caption


def test_settings_of_a_call_are_not_claimed_of_rows_of_another_call(tmp_path):
    pair(tmp_path)
    records = tmp_path / "experiments"
    path = records / "pair.json"
    both = json.loads(path.read_text())
    write_json(path, both | {"overrides": [OMEGA]})
    assert f"given on the command line: {OMEGA} for all runs of pair" in given(tmp_path)
    rows = {row["name"]: row for row in both["rows"]}
    write_json(path, both | {"overrides": [OMEGA], "rows": [rows["gigpo"]]})
    first = both | {"experiment": "pair_3b9231", "rows": [rows["scpo"]]}
    write_json(records / "pair_3b9231.json", first)
    caption = given(tmp_path)
    assert (
        f"given on the command line: {OMEGA} for gigpo of pair, not for SCPO (default): method.estimator.omega=1.0."
        in caption
    )
    assert "all runs of pair" not in caption


def test_settings_of_a_call_that_rows_of_another_call_share_are_of_all_runs(tmp_path):
    rows = {"gigpo": ("method=gigpo", OMEGA), "scpo": (OMEGA,)}
    made = {name: [write_run(tmp_path, name, seed, overrides=own) for seed in (0, 1)] for name, own in rows.items()}
    write_experiment(tmp_path, {"gigpo": made["gigpo"]}, name="pair", overrides=(OMEGA,))
    write_experiment(tmp_path, {"scpo": made["scpo"]}, name="other")
    assert f"given on the command line: {OMEGA} for all runs of pair" in given(tmp_path)
