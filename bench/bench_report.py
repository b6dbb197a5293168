"""Size and opening time of the report on 100 runs of the paper's length, as shares of the limits that it keeps.

    python -m bench.bench_report

Each run logs 60 metrics for 150 steps, validates every 5, and has sampled 2 groups of 8 siblings of
50 steps, 6 times. The time is Chromium's, from the start of the navigation until the credit
inspector is drawn. Numbers are invented.
"""

import importlib.util
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from analysis.__main__ import REPORT as NAME
from analysis.__main__ import main
from bench.random_walks import walks
from scpo.credit.assign import assign
from scpo.diagnostics.sampled_groups import save_groups
from scpo.records import RunFolder, run_config
from scpo.records.files import write_json
from scpo.records.identity import run_id
from scpo.schema.env import FAMILIES
from scpo.schema.run import RunConfig
from scpo.scoring import make_scorer
from scpo.steps import StepBatch
from sweeps.compose.configuration import compose_run

ROWS = {
    "scpo": [],
    "chronological": ["method.shaper.order=chronological"],
    "no_monotonicity": ["method.shaper.monotonic=false"],
    "shortest_reference": ["method.shaper.reference=shortest"],
}
SEEDS, STEPS, EVERY, METRICS = 25, 150, 5, 60
SAMPLED = (1, 30, 60, 90, 120, 150)
GROUPS, SIBLINGS, HORIZON, PLACES = 2, 8, 50, 40
LIMIT_MB, LIMIT_S, TRIES = 15.0, 2.0, 5


def write_runs(folder: Path) -> None:
    """100 finished runs and the record of their experiment."""
    rows = []
    for name, overrides in ROWS.items():
        config = compose_run(["scale=paper", "scorer=exact", f"machine.runs_dir={folder}", *overrides])
        runs = [write_run(folder, config.model_copy(update={"seed": seed})) for seed in range(SEEDS)]
        write_samples(runs, config)
        rows.append({"name": name, "label": name, "runs": [planned(run, seed) for seed, run in enumerate(runs)]})
    record = {"experiment": "ablation", "title": "Ablation", "scale": "paper", "rows": rows}
    write_json(folder / "experiments" / "ablation.json", record)


def planned(run: RunFolder, seed: int) -> dict[str, Any]:
    """A run as the record of its experiment names it."""
    config = run_config.read_config(run)
    return {"id": run.run_id, "env": config.env.name, "model": config.model.name, "seed": seed}


def write_run(folder: Path, config: RunConfig) -> RunFolder:
    """A run folder without its samples."""
    run = RunFolder(folder / run_id(config))
    run_config.write_config(run, config)
    write_json(run.status, {"state": "DONE", "step": STEPS, "steps": STEPS})
    rng = np.random.default_rng(config.seed)
    run.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines(rng)))
    return run


def lines(rng: np.random.Generator) -> Iterator[dict[str, float]]:
    """What a run logs: 60 metrics at each step, and success by family at each validation."""
    for step in range(STEPS + 1):
        line = {"step": step, "train/success_rate": rng.random()}
        line |= {f"actor/metric_{k}": rng.normal() for k in range(METRICS - 1)}
        if step % EVERY == 0:
            line["val/valid_seen/success_rate"] = rng.random()
            line |= {f"val/valid_seen/{family}/success_rate": rng.random() for family in FAMILIES.values()}
        yield line


def write_samples(runs: list[RunFolder], config: RunConfig) -> None:
    """Sample the groups of the first run; the others hold the same files."""
    for step in SAMPLED:
        batch, scorer = rollouts(np.random.default_rng(step)), make_scorer(config.scorer, device="cpu")
        _, told = assign(batch, scorer, config.method, seed=(config.seed, step))
        save_groups(runs[0], step, batch, told, config=config, scorer=scorer)
    for run in runs[1:]:
        shutil.copytree(runs[0].diagnostics, run.diagnostics)


def rollouts(rng: np.random.Generator) -> StepBatch:
    """Groups that walk through rooms of 40 places at random; every other sibling succeeds at the end."""
    rows = GROUPS * SIBLINGS * HORIZON
    place_N = rng.integers(PLACES, size=rows)
    seen = [
        f"You arrive at place {k}. On the place {k}, you see {', '.join(f'a thing {j}' for j in range(k % 9))}."
        for k in range(PLACES)
    ]
    return walks(
        (GROUPS, SIBLINGS, HORIZON),
        np.arange(GROUPS * SIBLINGS) % 2 == 0,
        task_N=["put a thing in a place"] * rows,
        anchor_N=[seen[k] for k in np.roll(place_N, 1)],
        action_N=[f"go to place {k}" for k in place_N],
        next_observation_N=[seen[k] for k in place_N],
    )


def opening_seconds(page: Path) -> float | None:
    """The median of five openings in a new tab each; None without Playwright and a Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None or importlib.util.find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver, driver.chromium.launch(executable_path=path, args=["--no-sandbox"]) as browser:
        return float(np.median([_open_once(browser, page) for _ in range(TRIES)]))


def _open_once(browser: Any, page: Path) -> float:
    tab = browser.new_page(viewport={"width": 1366, "height": 768})
    tab.goto(page.as_uri())
    tab.wait_for_selector(".columns .step")
    milliseconds = tab.evaluate("new Promise(done => requestAnimationFrame(() => done(performance.now())))")
    tab.close()
    return float(milliseconds) / 1000


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        runs, out = Path(folder, "runs"), Path(folder, "out")
        write_runs(runs)
        started = time.perf_counter()
        main(["report", "--runs-dir", str(runs), "--out", str(out)])
        print(f"built from {len(ROWS) * SEEDS} runs in {time.perf_counter() - started:.1f} s")
        megabytes = (out / NAME).stat().st_size / 1e6
        print(f"size     {megabytes:.1f} MB, {megabytes / LIMIT_MB:.2f} of the limit of {LIMIT_MB:.0f} MB")
        seconds = opening_seconds(out / NAME)
        if seconds is None:
            print("opening  not measured: it needs Chromium and pip install 'scpo[browser]'")
        else:
            print(f"opening  {seconds:.2f} s, {seconds / LIMIT_S:.2f} of the limit of {LIMIT_S:.0f} s")
