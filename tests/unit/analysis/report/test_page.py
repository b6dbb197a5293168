import base64
import hashlib
import json
import re

import pytest

from analysis.__main__ import main
from analysis.build import Report, nothing_built
from analysis.report.page import CURVE_BYTES, SCRIPTS, STATIC, _set, configurations, contents, embedded, health_of, page
from analysis.sources.collect import collect
from scpo.records.code_files import code_files
from scpo.records.files import write_json
from tests.support.group_samples import BATCH_WITH_MARKUP, MARKUP, write_groups
from tests.support.run_records import LABELS, log_only, write_ablation, write_experiment, write_run
from tests.support.sketches import sketch
from tests.support.study_runs import rising, write_study


def test_the_command_names_what_is_left_out_and_how_to_finish_it(tmp_path, capsys):
    runs = tmp_path / "runs"
    rows = [write_run(runs), write_run(runs, seed=1, state="INTERRUPTED"), write_run(runs, seed=2)]
    write_experiment(runs, {"scpo": rows})
    (runs / rows[2]["id"] / "config.yaml").write_text("{")
    assert main(["report", "--runs-dir", str(runs), "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert f"left out {rows[2]['id']}: " in told
    assert f"{rows[1]['id']} is INTERRUPTED\n" in told
    assert "Finish them with:\n  python sweep.py " in told
    assert told.index("Finish them with") < told.index("wrote ")


def test_only_what_differs_between_runs_is_there(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0, 1), steps=4, every=2)
    found = configurations(collect(tmp_path))
    assert found["keys"] == ["method.shaper.monotonic", "seed"]
    for row, monotonic in (("scpo", "true"), ("no_monotonicity", "false")):
        for seed, run in enumerate(ids[row]):
            chosen = [options[k] for options, k in zip(found["values"], found["runs"][run], strict=True)]
            assert chosen == [monotonic, str(seed)]


def test_a_key_that_only_one_run_has_is_none_in_the_other_and_places_are_left_out(tmp_path):
    with_shaper = write_run(tmp_path, steps=4)["id"]
    without = write_run(tmp_path, "grpo", steps=4, overrides=("method=grpo", "machine.cache_dir=/elsewhere"))["id"]
    found = configurations(collect(tmp_path))
    theta = found["keys"].index("method.shaper.theta")
    assert found["values"][theta][found["runs"][with_shaper][theta]] == "0.6"
    assert found["values"][theta][found["runs"][without][theta]] is None
    assert not [key for key in found["keys"] if key.startswith("machine.")]


def test_one_run_differs_from_none(tmp_path):
    run = write_run(tmp_path, steps=4)["id"]
    assert configurations(collect(tmp_path)) == {"keys": [], "values": [], "runs": {run: []}}


def embedded_data(text):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


@pytest.fixture(scope="module", autouse=True)
def _sketches():
    """A page shows pictures, however they are drawn."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        sketch(monkeypatch)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page of an ablation with two seeds, whose first run has sampled groups; and the ids of its runs."""
    folder = tmp_path_factory.mktemp("report")
    ids = write_ablation(folder / "runs", seeds=(0, 1), steps=6, every=3, probes=(6,))
    write_groups(folder / "runs" / ids["scpo"][0], 1, 5, batch=BATCH_WITH_MARKUP)
    assert main(["report", "--runs-dir", str(folder / "runs"), "--out", str(folder / "out")]) == 0
    return (folder / "out" / "report.html").read_text(), ids


def test_rows_whose_seeds_ran_under_several_versions_of_the_code_are_named(tmp_path):
    ids = write_ablation(tmp_path / "runs", seeds=(0, 1))
    for number, run in enumerate(ids["scpo"]):
        changed = {"scpo/advantages/gigpo.py": "another"} if number else {}
        write_json(tmp_path / "runs" / run / "code.json", {"files": code_files() | changed})
    data = collect(tmp_path / "runs")
    notes = contents(data, nothing_built(data), group_bytes=0)["notes"]
    assert [note for note in notes if "versions" in note] == [
        f"Note: {LABELS['scpo']}: its seeds ran under several versions of scpo/advantages/gigpo.py."
    ]


def test_every_run_has_its_row_its_numbers_and_its_curves(made):
    data = embedded_data(made[0])
    assert [run["id"] for run in data["runs"]] == [run for runs in made[1].values() for run in runs]
    first = data["runs"][0]
    assert (first["label"], first["seed"], first["scale"], first["state"], first["step"]) == (
        "SCPO (default)",
        0,
        "mini",
        "DONE",
        6,
    )
    place, values = data["curves"]["runs"][first["id"]]["val/valid_seen/success_rate"]
    assert data["curves"]["steps"][place] == [0, 3, 6]
    assert first["values"]["val/valid_seen/success_rate"] == pytest.approx(values[-1], abs=1e-4)
    assert first["values"]["credit/shift_rms"] == 0.2
    assert {"train/success_rate", "timing_s/step"} <= data["curves"]["runs"][first["id"]].keys()


def test_tables_and_figures_are_those_of_the_build(made):
    data = embedded_data(made[0])
    (table,) = [table for table in data["tables"] if table["name"] == "tab_ablation_mini"]
    assert table["blocks"][0]["rows"][0][:3] == ["SCPO (default)", "as printed", "3"]
    assert "93.7 ± 4.1" in table["blocks"][0]["rows"][0]
    figures = {figure["name"]: figure["source"] for figure in data["figures"]}
    assert {"fig_learning_mini", "fig_credit_heatmap_mini"} <= figures.keys()
    assert base64.b64decode(figures["fig_learning_mini"].partition(",")[2]).startswith(b"\x89PNG")


def test_figures_of_an_earlier_build_are_shown_with_the_numbers_of_their_caption(tmp_path):
    write_ablation(tmp_path / "runs", seeds=(0,), steps=6, every=3)
    shown = []
    for _ in range(2):
        assert main(["report", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
        shown.append(embedded_data((tmp_path / "report.html").read_text())["figures"])
    assert shown[0] == shown[1]
    (trend,) = [figure for figure in shown[1] if figure["name"] == "fig_credit_trend_mini"]
    assert trend["caption"].startswith("Credit over training")
    assert {len(row) for row in trend["numbers"]["rows"]} == {len(trend["numbers"]["head"])}


def test_sampled_groups_come_with_the_settings_that_explain_them(made):
    groups = embedded_data(made[0])["groups"]
    run = made[1]["scpo"][0]
    assert [record["step"] for record in groups["runs"][run]] == [1, 5]
    assert {"theta": 0.6, "soft_base": 0.4, "alpha": 0.5, "host": "GiGPO"}.items() <= groups["settings"][run].items()
    assert {"scorer": "minilm", "exact": ""}.items() <= groups["settings"][run].items()
    assert (groups["shown"], groups["recorded"]) == (2, 2)


def test_texts_of_an_environment_cannot_end_the_data(made):
    text, ids = made
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    record = embedded_data(text)["groups"]["runs"][ids["scpo"][0]][0]
    assert record["groups"][0]["task"] == MARKUP


def test_a_folder_whose_name_is_no_utf8_is_on_the_page_like_any_other():
    value = {"problems": [{"path": "run\udcff", "reason": "a copy"}]}
    text = embedded(value)
    assert text.encode()
    assert json.loads(text) == value


def test_embedded_json_is_the_same_json_without_a_tag():
    value = {"a": [MARKUP, "\u2029", "<", 1.5, None]}
    assert json.loads(embedded(value)) == value
    assert not set("<\u2028\u2029") & set(embedded(value))


def test_the_policy_lets_only_the_pages_own_style_and_script_run(made):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', made[0])
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        (source,) = re.findall(rf"<{tag}>(.*?)</{tag}>", made[0], re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_the_page_names_no_other_place():
    text = page({"runs": []})
    addresses = set(re.findall(r"[a-z]+://[^\s\"'<>)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a markup language, fetched by nobody


def test_every_script_is_part_of_the_page_and_none_writes_markup():
    assert {path.name for path in STATIC.glob("*.js")} == set(SCRIPTS)
    for name in SCRIPTS:
        source = (STATIC / name).read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|XMLHttp", source
        ), name


def test_two_builds_give_the_same_bytes(tmp_path):
    run = write_run(tmp_path / "runs", steps=4)["id"]
    write_groups(tmp_path / "runs" / run, 1)
    for out in ("a", "b"):
        assert main(["report", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / out)]) == 0
    assert (tmp_path / "a" / "report.html").read_bytes() == (tmp_path / "b" / "report.html").read_bytes()


def test_a_run_of_no_experiment_is_there_under_its_methods_name(tmp_path):
    write_run(tmp_path / "runs", steps=4, state="RUNNING")
    assert main(["report", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    data = embedded_data((tmp_path / "report.html").read_text())
    assert [(run["label"], run["state"]) for run in data["runs"]] == [("SCPO", "RUNNING")]
    assert data["missing"]
    assert data["groups"]["recorded"] == 0


def test_numbers_that_the_page_rounds_are_not_rounded_before():
    values = {}
    _set(values, "success", 0.20149253731343283)
    assert values == {"success": 0.201493}


def test_long_curves_are_thinned_to_their_ends_and_even_steps(tmp_path, monkeypatch):
    run = write_run(tmp_path / "runs", steps=300)["id"]
    monkeypatch.setattr("analysis.report.page.CURVE_BYTES", 12_000)
    assert main(["report", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    data = embedded_data((tmp_path / "report.html").read_text())
    assert data["points"] < 400
    place, values = data["curves"]["runs"][run]["train/success_rate"]
    steps = data["curves"]["steps"][place]
    assert (steps[0], steps[-1], len(steps)) == (1, 300, data["points"])
    assert len(values) == len(steps)
    assert len(json.dumps(data["curves"])) <= 12_000 < CURVE_BYTES


def test_what_does_not_fit_is_said_on_the_page_and_in_the_terminal(tmp_path, capsys):
    run = write_run(tmp_path / "runs", steps=4)["id"]
    write_groups(tmp_path / "runs" / run, 1, 2, 3)
    assert main(["report", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path), "--megabytes", "0.00001"]) == 0
    assert "0 of 3 sampled training steps fit into the page" in capsys.readouterr().out
    data = embedded_data((tmp_path / "report.html").read_text())
    assert (data["groups"]["shown"], data["groups"]["recorded"]) == (0, 3)


def test_without_runs_there_is_no_page(tmp_path, capsys):
    assert main(["report", "--runs-dir", str(tmp_path / "none"), "--out", str(tmp_path)]) == 1
    assert "make demo" in capsys.readouterr().out
    assert not (tmp_path / "report.html").exists()


def test_what_the_rules_of_health_say_of_a_run_is_on_the_page(tmp_path):
    run = write_run(tmp_path / "runs", steps=4)
    log_only(tmp_path / "runs", run, "actor/entropy", {0: 3.0, 1: 0.01, 2: 0.01, 3: 0.01})
    data = collect(tmp_path / "runs")
    [remark] = list(health_of(data))
    assert remark["run"] == run["id"]
    assert remark["text"].startswith("entropy_collapsed at step 3")


def test_a_run_says_where_wandb_shows_it_and_only_web_addresses_are_linked(tmp_path):
    ids = [write_run(tmp_path / "runs", seed=seed, steps=4)["id"] for seed in range(4)]
    addresses = ("https://wandb.example/x/runs/1", "javascript:alert(1)", None)
    for run, url in zip(ids, addresses, strict=False):
        write_json(tmp_path / "runs" / run / "wandb.json", {"url": url, "mode": "online"})
    (tmp_path / "runs" / ids[3] / "wandb.json").write_text("{")
    assert main(["report", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    data = embedded_data((tmp_path / "report.html").read_text())
    assert {run["id"]: run["url"] for run in data["runs"]} == dict(
        zip(ids, (addresses[0], None, None, None), strict=True)
    )


def test_runs_that_tables_keep_apart_share_no_mean(tmp_path):
    """Shorter runs, a FAILED one and one in no table were averaged under one label."""
    whole = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    failed = write_run(tmp_path, seed=2, state="FAILED")
    short = [write_run(tmp_path, seed=seed, steps=20) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": [*whole, failed]})
    write_experiment(tmp_path, {"scpo": short}, name="short", overrides=["trainer.steps=20"])
    runs = contents(collect(tmp_path), Report((), (), (), (), ()), group_bytes=0)["runs"]
    rows = {run["id"]: run["row"] for run in runs}
    assert len({run["label"] for run in runs}) == 1
    assert {rows[run["id"]] for run in whole} == {"SCPO (default)"}
    assert rows[failed["id"]] == "SCPO (default), not finished"
    (apart,) = {rows[run["id"]] for run in short}
    assert apart.startswith("SCPO (default); trainer.steps=20")


def test_fresh_seeds_of_a_row_keep_its_name(tmp_path):
    """Two rows on seeds of another experiment were both averaged as "scpo, in no table"."""
    names = ("scpo", "chronological")
    curves = {row: lambda seed: rising(0.8) for row in names}
    write_study(tmp_path, {"ablation": names}, curves)
    fresh = write_study(tmp_path, {"more_seeds": names}, curves, seeds=(50, 51))
    runs = contents(collect(tmp_path), Report((), (), (), (), ()), group_bytes=0)["runs"]
    rows = {run["id"]: run["row"] for run in runs}
    assert {row: {rows[run] for run in ids} for row, ids in fresh.items()} == {
        "scpo": {"SCPO"},
        "chronological": {"CHRONOLOGICAL"},
    }
