"""The examples run as shipped, and the README shows the first one as it is."""

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import scpo

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_short_example_credits_what_the_near_miss_did_as_the_success(capsys):
    load("credit_in_20_lines")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("credit ")[2][:3] for line in lines] == ["0.0", "0.0", "0.0", "1.0", "1.0", "0.0", "0.0"]
    assert len((EXAMPLES / "credit_in_20_lines.py").read_text().splitlines()) < 30


def test_the_readme_shows_the_short_example_as_it_is():
    assert (EXAMPLES / "credit_in_20_lines.py").read_text().partition('"""\n\n')[2] in (ROOT / "README.md").read_text()


def test_the_custom_loop_learns():
    rates = load("custom_loop").train("scpo", steps=50)
    assert np.mean(rates[-10:]) > np.mean(rates[:10]) + 0.2


def rows_of_verl(copies=()):
    """Two siblings, interleaved as verl's balancing leaves them, and copies of rows."""
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    columns = {
        "uid": ["a", "a", "a", "a"],
        "traj_uid": ["y", "x", "x", "y"],
        "step": [1, 0, 1, 0],
        "anchor_obs": ["hall", "door", "hall", "door"],
        "action": ["sleep", "go", "win", "go"],
        "next_obs": ["dark", "hall", "won", "hall"],
        "rewards": [0.0, 0.0, 10.0, 0.0],
        "is_action_valid": [True] * 4,
        "episode_rewards": [0.0, 10.0, 10.0, 0.0],
    }
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
    rows = [0, 1, 2, 3, *copies]
    return SimpleNamespace(
        batch={"response_mask": mask[rows].float()},
        non_tensor_batch={name: np.array(values, dtype=object)[rows] for name, values in columns.items()},
    )


def add_advantages(data):
    return load("verl_batch").add_advantages(data, scpo.load_method("scpo"), scpo.load_scorer("exact"), (0, 1))


def test_in_a_batch_of_verl_every_steps_tokens_get_its_own_advantage():
    data = rows_of_verl()
    metrics = add_advantages(data)
    advantages = data.batch["advantages"]
    assert metrics["credit/steps"] == 1.0
    assert (advantages[1:3, 0] > 0).all()
    assert (advantages[[0, 3], 0] < 0).all()
    assert (advantages[data.batch["response_mask"] == 0] == 0).all()


def test_the_example_for_verls_batches_prints_the_advantages_of_its_own_batch(capsys):
    pytest.importorskip("torch", reason="needs torch: make setup")
    runpy.run_path(str(EXAMPLES / "verl_batch.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    advantages = [(line.split()[0], float(line.split()[-1])) for line in lines[:-1]]
    assert len(advantages) == 6
    assert all((advantage > 0) == (name == "won") for name, advantage in advantages)
    assert lines[-1] == "credited steps per failed trajectory: 0.5"


def test_rows_that_a_fork_copied_get_their_originals_advantage_and_change_no_other():
    """A copy was one more time step: the trajectory was longer, and its reward counted twice."""
    data, copied = rows_of_verl(), rows_of_verl(copies=(0, 3, 3, 1))
    assert add_advantages(copied) == add_advantages(data)
    assert (copied.batch["advantages"][:4] == data.batch["advantages"]).all()
    assert (copied.batch["advantages"][4:] == data.batch["advantages"][[0, 3, 3, 1]]).all()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([0, 0, 1, 0], r"rows 0 and 3 have the same traj_uid and step \(0\), but another anchor_obs"),
        ([2, 0, 1, 0], r"trajectory 'y' has 2 steps, the last with step=2: pass all of 0\.\.T-1"),
        ([2, 1, 2, 1], r"trajectory 'x' has 2 steps, the last with step=2"),
    ],
)
def test_steps_that_do_not_count_a_trajectorys_steps_are_refused(steps, message):
    data = rows_of_verl()
    data.non_tensor_batch["step"] = np.array(steps)
    with pytest.raises(ValueError, match=message):
        add_advantages(data)


def test_importing_scpo_loads_neither_numpy_nor_torch():
    code = "import sys, scpo; print(sorted({'numpy', 'torch', 'pydantic', 'hydra'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_assigning_with_a_scorer_that_needs_no_model_loads_no_torch():
    example = str(EXAMPLES / "credit_in_20_lines.py")
    code = f"import sys, runpy; runpy.run_path({example!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.filterwarnings("ignore:the two differ")  # each method of the study trains at its own rate
def test_the_analysts_comparison_works_on_the_study_that_stands():
    """It was of the withdrawn edition, and its selection matched no GraphGPO run of the second."""
    pytest.importorskip("pandas", reason="needs the extra analysis: make setup")
    page = (ROOT / "docs" / "analysts.md").read_text()
    assert "first-edition" not in page
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    fresh, recipe = (block for block in blocks if "scpo.compare" in block)
    names = {"scpo": scpo, "ARCHIVE": str(ROOT / "docs" / "study")}
    for block, pairs in ((fresh, 50), (recipe, 20)):
        code = block.replace('"docs/study"', "ARCHIVE").replace("scpo.compare(", "compared = scpo.compare(")
        exec(code, names)  # noqa: S102
        assert set(names["compared"].index) == {"val/valid_seen/success_rate", "val/valid_unseen/success_rate"}
        assert list(names["compared"].pairs) == [pairs, pairs]
    assert names["fresh"].seed.nunique() == 40
    cells = json.loads((ROOT / "docs" / "compare_runs.ipynb").read_text())["cells"]
    notebook = ["".join(cell["source"]) for cell in cells]
    select = "\n".join(recipe.splitlines()[1:3])
    assert any(select in source for source in notebook)
    # One setting of GraphGPO: the selection leaves none of its seeds out.
    taken, every = (set(names[name][names[name].row == "graphgpo"].seed) for name in ("usual", "success"))
    assert taken == every == {*range(20, 30), *range(50, 60)}
    assert all("20 to 29" in text and "50 to 59" in text for text in (page, "\n".join(notebook)))
