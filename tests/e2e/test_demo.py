"""What `make demo` promises, checked on the runs it left behind (CI runs this after the demo)."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "runs" / "experiments" / "demo-study.json"

pytestmark = pytest.mark.skipif(not MANIFEST.exists(), reason="no demo was run here: make demo")


def runs():
    rows = json.loads(MANIFEST.read_text())["rows"]
    return [ROOT / "runs" / run["id"] for row in rows for run in row["runs"]]


def with_credit():
    return [folder for folder in runs() if "-scpo-" in folder.name]


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_three_seeds_of_three_methods_are_done():
    assert len(runs()) == 9
    assert {json.loads((folder / "status.json").read_text())["state"] for folder in runs()} == {"DONE"}


def test_held_out_success_rises_in_every_run():
    for folder in runs():
        first, last = metrics(folder)[0], metrics(folder)[-1]
        for panel in ("valid_seen", "valid_unseen"):
            assert last[f"val/{panel}/success_rate"] > first[f"val/{panel}/success_rate"] + 0.3


def test_groups_were_active_and_credit_was_given():
    for folder in with_credit():
        assert max(line.get("credit/active_groups", 0) for line in metrics(folder)) > 0
        assert max(line.get("credit/aux_mean", 0) for line in metrics(folder)) > 0


def test_table_and_figures_are_there():
    for name in (
        *("tab_main_study.md", "tab_shaper_study.tex", "tab_cost_study.csv", "fig_learning_study.png"),
        *("fig_credit_heatmap_study.png", "fig_credit_trend_study.pdf", "fig_credit_tsne_study.md"),
    ):
        assert (ROOT / "paper_figures" / name).stat().st_size > 500


def test_the_report_shows_the_runs_and_why_steps_got_credit():
    text = (ROOT / "paper_figures" / "report.html").read_text()
    shown = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert {folder.name for folder in runs()} <= {run["id"] for run in shown["runs"]}
    for folder in with_credit():
        credited = [
            cell
            for step in shown["groups"]["runs"][folder.name]
            for group in step["groups"]
            for match in group["matches"]
            for cell in match["credited"]
        ]
        assert credited
