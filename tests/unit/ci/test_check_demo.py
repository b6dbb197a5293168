"""CI's check of the demo finds nothing wrong with whole records, and whatever is wrong with others."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import tests
from tests.support.run_records import write_ablation

EXPERIMENT = "ablation_monotonicity-mini"
SCRIPT = Path(tests.__file__).parents[1] / ".ci" / "check_demo.py"
spec = importlib.util.spec_from_file_location("check_demo", SCRIPT)
check_demo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_demo)


def check(folder):
    return check_demo.main([EXPERIMENT, "--runs", str(folder / "runs"), "--figures", str(folder / "figures")])


@pytest.fixture
def demo(tmp_path):
    """What a demo of two rows and two seeds leaves, as far as the check reads it."""
    ids = write_ablation(tmp_path / "runs", seeds=(0, 1))
    records = tmp_path / "runs" / "experiments"
    (records / "ablation_monotonicity.json").rename(records / f"{EXPERIMENT}.json")
    (tmp_path / "figures").mkdir()
    for name in check_demo.FILES:
        (tmp_path / "figures" / name).write_bytes(b"x" * 600)
    runs = [run for members in ids.values() for run in members]
    step = {"groups": [{"matches": [{"credited": []}, {"credited": [[0, 0, 1.0, 1.0]]}]}]}
    data = {"runs": [{"id": run} for run in runs], "groups": {"runs": {run: [step] for run in runs}}}
    page = f'<script type="application/json" id="data">{json.dumps(data)}</script>'
    (tmp_path / "figures" / "report.html").write_text(page)
    return tmp_path


def a_run(demo):
    return sorted(path.parent for path in demo.glob("runs/*/status.json"))[0]


def fail_a_run(demo):
    (a_run(demo) / "status.json").write_text('{"state": "FAILED"}')


def change_metrics(demo, change):
    for path in demo.glob("runs/*-scpo-s*/metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(lines)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def let_success_fall(demo):
    change_metrics(demo, lambda lines: lines[-1].update({"val/valid_seen/success_rate": 0.0}))


def leave_out_a_panel(demo):
    change_metrics(demo, lambda lines: lines[-1].pop("val/valid_unseen/success_rate"))


def give_no_credit(demo):
    change_metrics(demo, lambda lines: [line.update({"credit/aux_mean": 0.0}) for line in lines])


def empty_a_table(demo):
    (demo / "figures" / "tab_cost_study.csv").write_text("seed\n")


def report_another_run(demo):
    page = demo / "figures" / "report.html"
    scpo = next(demo.glob("runs/*-scpo-s0-*")).name
    page.write_text(page.read_text().replace(scpo, "another"))


def lose_the_report(demo):
    (demo / "figures" / "report.html").unlink()


def lose_the_record(demo):
    (demo / "runs" / "experiments" / f"{EXPERIMENT}.json").unlink()


def leave_one_row(demo):
    path = demo / "runs" / "experiments" / f"{EXPERIMENT}.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"rows": record["rows"][:1]}))


BREAKS = {
    fail_a_run: "is FAILED, not DONE",
    let_success_fall: r"scpo: val/valid_seen/success_rate went from 0\.\d+ to 0\.000, and should rise",
    leave_out_a_panel: "scpo: the first or last step has no val/valid_unseen/success_rate",
    give_no_credit: "scpo: no credit was given",
    empty_a_table: "tab_cost_study.csv is not there or nearly empty",
    report_another_run: "report.html does not show .*\n.* no step of .* that got credit",
    lose_the_report: "records cannot be read: .*report.html",
    lose_the_record: f"records cannot be read: .*{EXPERIMENT}",
    leave_one_row: "compares nothing: its rows are scpo",
}


def test_a_whole_demo_passes(demo):
    assert check(demo) == 0


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda breaks: breaks.__name__)
def test_what_is_missing_or_wrong_is_told(demo, breaks):
    breaks(demo)
    assert re.search(BREAKS[breaks], str(check(demo)))
