"""The acceptance script's report: figures without a threshold, and what an earlier call measured."""

import json

from bench.gpu_acceptance import PARTS
from bench.gpu_report import keep_earlier_report, markdown, new_report, write_report
from sweeps.compose.configuration import compose_run

NAMES = [part.name for part in PARTS]
WORDS = ["scale=paper", "method=scpo"]


def report_with(**findings):
    report = new_report(WORDS, compose_run(WORDS), NAMES, dry=False)
    for name, found in findings.items():
        report["parts"][name] = {"status": "ended", "seconds": 12.3, "findings": found}
    return report


def test_measured_figures_without_a_threshold_are_on_the_page(tmp_path):
    report = report_with(
        scorer={"share_of_flips": 0.0, "pairs_per_s_float16": 812.34, "exit": 0, "last_words": ["done"]},
        step={"peak_gib": [61.25, 60.5], "timing": {"part_s/rollout": 71.0, "estimate_s/rollout": 60.0}},
    )
    write_report(tmp_path, report)
    page = (tmp_path / "report.md").read_text()
    assert "| scorer | pairs_per_s_float16 | 812.3 |" in page
    assert "| step | peak_gib | 61.25, 60.5 |" in page
    assert "| rollout | 71.0 | 60 |" in page
    assert "last_words" not in page
    assert page == markdown(json.loads((tmp_path / "report.json").read_text()))


def test_the_report_of_an_earlier_call_is_kept(tmp_path):
    keep_earlier_report(tmp_path)  # nothing is there yet
    for flips in (0.1, 0.2, 0.3):
        keep_earlier_report(tmp_path)
        write_report(tmp_path, report_with(scorer={"share_of_flips": flips}))
    kept = {
        path.name: json.loads(path.read_text())["parts"]["scorer"]["findings"]["share_of_flips"]
        for path in tmp_path.glob("*.json")
    }
    assert kept == {"report_1.json": 0.1, "report_2.json": 0.2, "report.json": 0.3}
    assert {path.name for path in tmp_path.glob("*.md")} == {"report_1.md", "report_2.md", "report.md"}
