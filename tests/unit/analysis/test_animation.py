import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from analysis.__main__ import main
from analysis.animation import success_lines
from analysis.show import experiment_table
from tests.support.run_records import write_ablation, write_experiment, write_lines, write_run

STEPS = 4
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def runs(tmp_path):
    """Two runs after each other, a step every ten seconds."""
    ids = write_ablation(tmp_path / "runs", seeds=(0,), steps=STEPS, every=2)
    for start, (run,) in enumerate(ids.values()):
        at = [f"2026-01-01T10:0{start}:{10 * step:02d}+00:00" for step in range(STEPS + 1)]
        lines = [{"step": step, "at": time} for step, time in enumerate(at)]
        write_lines(tmp_path / "runs" / run / "timing.jsonl", lines)
    return tmp_path / "runs", [run for (run,) in ids.values()]


def drawn(runs_dir, out):
    words = ["animate", "ablation_monotonicity", "--runs-dir", str(runs_dir), "--out", str(out)]
    assert main(words) == 0
    return out.read_text()


def texts(picture):
    return [one.text for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]  # noqa: S314 (our own)


def test_every_step_of_every_run_is_in_it_with_its_success_and_the_table_at_the_end(runs, tmp_path):
    folder, ids = runs
    picture = drawn(folder, tmp_path / "a.svg")
    said = texts(picture)
    assert said[0] == "$ python sweep.py +experiment=ablation_monotonicity 'seeds=[0]'"
    for run in ids:
        for line in map(json.loads, (folder / run / "metrics.jsonl").read_text().splitlines()[1:]):
            state = f"{line['step']:>3}/{STEPS}  training success {100 * line['train/success_rate']:.0f} %"
            assert state in said
    table = success_lines(experiment_table(folder, "ablation_monotonicity"))
    assert said[-len(table) :] == table
    assert any("SCPO (default)" in line and "→" in line for line in table)
    assert "Credit" not in "".join(table)


def test_bars_move_when_the_steps_were_recorded_and_stand_at_their_end_without_animation(runs, tmp_path):
    picture = drawn(runs[0], tmp_path / "a.svg")
    frames = dict(re.findall(r"@keyframes (b\d){(.*?}})", picture))
    moves = {name: re.findall(r"([\d.]+)%{transform:scaleX\(([\d.]+)\)}", text) for name, text in frames.items()}
    first, second = (
        [(float(at), float(share)) for at, share in moves[name] if float(at) < 100] for name in ("b0", "b1")
    )
    assert [share for _, share in first] == [0, 0, 0.25, 0.5, 0.75, 1]
    # The first run's steps at 0, 10, ... 40 s, the second's from 60 to 100 s, which is 60 % of the animation.
    assert [at for at, _ in first[1:]] == pytest.approx([0, 6, 12, 18, 24])
    assert [at for at, _ in second[1:]] == pytest.approx([36, 42, 48, 54, 60])
    assert picture.count("scaleX(1.000);animation:") == 2


def test_the_animation_is_written_beside_the_figures_unless_another_file_is_named(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["animate", "ablation_monotonicity"]) == 0
    assert [path.name for path in (tmp_path / "paper_figures").iterdir()] == ["ablation_monotonicity.svg"]
    assert not (tmp_path / "docs").exists()


def test_the_same_records_give_the_same_bytes(runs, tmp_path):
    assert drawn(runs[0], tmp_path / "a.svg") == drawn(runs[0], tmp_path / "b.svg")


def test_what_cannot_be_shown_is_refused_in_a_line(tmp_path, capsys):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, steps=4, state="RUNNING")]})
    for words, said in (
        (["demo"], "has no experiment demo; it has ablation_monotonicity"),
        (["ablation_monotonicity"], "ablation_monotonicity is not finished: 1 run left"),
    ):
        assert main(["animate", *words, "--runs-dir", str(tmp_path), "--out", str(tmp_path / "x.svg")]) == 1
        assert said in capsys.readouterr().out.replace("\n", " ")
    assert not (tmp_path / "x.svg").exists()


def test_the_readmes_animation_is_small_and_shows_the_table_that_the_readme_prints():
    root = Path(__file__).parents[3]
    readme, picture = (root / "README.md").read_text(), (root / "docs" / "demo.svg").read_text()
    assert len(picture.encode()) < 500_000
    table = success_lines("\n".join(texts(picture)))
    rows = [line for line in table if re.match(r"(GRPO|GiGPO|SCPO) +3/3", line)]
    assert len(rows) == 3
    for row in rows:
        assert row in readme
