"""What `make demo` and `make report` do, as small as can be: a sweep of real runs, its table and figures, the page."""

import json
import re

import pytest

from analysis.__main__ import main
from scpo.records import run_config
from sweeps.compose.matrix import expand
from tests.e2e.local_run import OVERRIDES
from tests.support.warm_starts import ROOT, WarmStart

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

SHORT = [
    *(word for word in OVERRIDES if not word.startswith("method=")),
    *("trainer.steps=1", "trainer.probe_every=1", "model.warm_start.games=6", "model.warm_start.steps=5"),
    *(f"env.validation_panels.{panel}.games=1" for panel in ("train_games", "valid_seen", "valid_unseen")),
]
ABLATION = ["+experiment=ablation_monotonicity", "seeds=[0]"]


def call(cwd, script, *words):
    output, _ = (process := WarmStart(ROOT / script, [*map(str, words)], cwd=cwd)).communicate(timeout=280)
    assert process.returncode == 0, output
    return output


def test_a_sweep_ends_in_a_table_figures_and_a_page_with_its_runs(tmp_path, cache, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [*SHORT, f"machine.cache_dir={cache}"]
    first, *_ = expand("ablation_monotonicity", [*ABLATION[1:], *words]).runs.values()
    call(tmp_path, "train.py", run_config.ensure(first).path)  # its imports are done; the other's the sweep waits for
    assert "1 finished before" in call(tmp_path, "sweep.py", *ABLATION, *words)
    (record,) = (tmp_path / "runs" / "experiments").glob("*.json")
    ids = [run["id"] for row in json.loads(record.read_text())["rows"] for run in row["runs"]]
    assert len(ids) == 2
    states = [json.loads((tmp_path / "runs" / run / "status.json").read_text())["state"] for run in ids]
    assert states == ["DONE", "DONE"]
    assert main(["report"]) == 0
    assert "report.html" in capsys.readouterr().out
    for name in ("tab_ablation_mini.md", "tab_shaper_mini.tex", "tab_cost_mini.csv", "fig_learning_mini.png"):
        assert (tmp_path / "paper_figures" / name).stat().st_size > 500
    page = (tmp_path / "paper_figures" / "report.html").read_text(encoding="utf-8")
    shown = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert {run["id"] for run in shown["runs"]} == set(ids)
    assert set(shown["groups"]["runs"]) <= set(ids)
