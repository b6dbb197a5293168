"""How long every table and figure takes from the logs of a large study: 100 runs x 150 steps x 80 metrics.

The runs are synthetic: twenty rows of five seeds, with success by family on two panels, credit and
timing, as a paper's study would log them; step texts of one run. The goal is 60 s on two cores; the
ratios say where time goes.

    python -m bench.bench_figures [--runs 100] [--steps 150] [--metrics 80]
"""

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.build import build_from
from analysis.sources.collect import collect
from scpo.records.files import write_json
from scpo.records.identity import recorded_id
from scpo.schema.env import FAMILIES
from sweeps.compose.configuration import compose_run
from tests.support.run_records import write_panels, write_settings
from tests.support.whole_logs import whole

SEEDS = 5
METHODS = ("scpo", "gigpo", "grpo", "rloo", "ppo", "empg", "hcapo", "hgpo", "dapo", "g2po")
ROWS = (*METHODS, "chronological")
GOAL_S = 60


def main() -> None:
    """Write the logs, build twice, print seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("runs", 100), ("steps", 150), ("metrics", 80)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        runs, out = Path(folder) / "runs", Path(folder) / "out"
        write_study(runs, options.runs, options.steps, options.metrics)
        megabytes = sum(path.stat().st_size for path in runs.rglob("*.jsonl")) / 1e6
        data, collecting = timed(lambda: collect(runs))
        report, drawing = timed(lambda: build_from(data, out))
        _, again = timed(lambda: build_from(data, out))
    values = len(data.metrics)
    if not values:
        raise SystemExit(f"{data.problems[0].path}: {data.problems[0].reason}: nothing is measured")
    print(f"{options.runs} runs, {values:,} values, {megabytes:.0f} MB of logs, {len(report.outputs)} outputs")
    for failure in report.failures:
        print(f"  not built: {failure.name}: {failure.reason}")
    total = collecting + drawing
    print(f"{'':10}{'wall s':>8}{'CPU s':>8}  share of the CPU")
    print(f"{'collect':10}{collecting}  {collecting.cpu / total.cpu:.0%}, {values / collecting.cpu:,.0f} values/s")
    print(f"{'draw':10}{drawing}  {drawing.cpu / total.cpu:.0%}")
    print(f"{'total':10}{total}  {total.wall / GOAL_S:.0%} of the goal of {GOAL_S} s of wall time")
    print(f"{'again':10}{again}  {again.cpu / drawing.cpu:.0%} of drawing: nothing had changed")


class Seconds(NamedTuple):
    """Wall and CPU time: on a machine that does other things too, only the second says what the work costs."""

    wall: float
    cpu: float

    def __add__(self, other: "Seconds") -> "Seconds":  # type: ignore[override]
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)

    def __str__(self) -> str:
        return f"{self.wall:8.1f}{self.cpu:8.1f}"


def timed(act: Callable[[], Any]) -> tuple[Any, Seconds]:
    """What it gives, and how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = act()
    return made, Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def write_study(runs_dir: Path, runs: int, steps: int, metrics: int) -> None:
    """Run folders at paper scale and the record of the experiment that they are rows of."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for i in range(runs):
        place = i // SEEDS
        row = ROWS[place] if place < len(ROWS) else f"row_{place}"
        made = config(row if row in METHODS else "scpo", seed=i % SEEDS, steps=steps)
        if row == "chronological":
            made["method"]["shaper"]["order"] = row
        elif row not in METHODS:
            made["method"]["shaper"]["alpha"] = 0.5 + 0.01 * place  # a configuration, and so an id, of its own
        folder = runs_dir / recorded_id(made)
        write_run(folder, made, steps, metrics)
        rows.setdefault(row, []).append({"id": folder.name, "env": "alfworld", "model": "1.5B", "seed": i % SEEDS})
    write_step_texts(runs_dir / rows["scpo"][0]["id"])
    listed = [{"name": name, "label": name, "runs": made} for name, made in rows.items()]
    record = {"experiment": "main_table", "title": "bench", "scale": "paper", "rows": listed}
    write_json(runs_dir / "experiments" / "main_table.json", record)


def config(method: str, *, seed: int, steps: int) -> dict[str, Any]:
    """A whole configuration at paper scale."""
    overrides = ["scale=paper", f"method={method}", "trainer=local", f"seed={seed}", f"trainer.steps={steps}"]
    return compose_run(overrides).model_dump(mode="json")


def write_run(folder: Path, made: dict[str, Any], steps: int, metrics: int) -> None:
    """One finished run: ``metrics`` values at every step, validation every five."""
    (folder / "diagnostics").mkdir(parents=True)
    write_settings(folder, made)
    status = {"state": "DONE", "step": steps, "steps": steps, "commit": "0" * 40}
    write_json(folder / "status.json", status)
    write_panels(folder, made)
    noise = np.random.default_rng(made["seed"])
    lines = whole(made, [line(step, steps, metrics, noise) for step in range(steps + 1)])
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def line(step: int, steps: int, metrics: int, noise: np.random.Generator) -> dict[str, float]:
    """Success that rises, credit, stages of the shaper, and as many others as asked for."""
    rise = 0.2 + 0.7 * step / steps
    made: dict[str, float] = {"step": step, "train/success_rate": rise, "credit/steps": 10 * rise}
    made |= {"credit/aux_mean": 0.03, "timing_s/step": 280 + 10 * float(noise.random())}
    made |= {f"timing_s/scpo/{name}": 0.1 for name in ("scoring", "self_similarity", "text", "matching")}
    if step % 5 == 0:
        for panel in ("valid_seen", "valid_unseen"):
            rates = np.clip(rise + noise.normal(0, 0.1, len(FAMILIES)), 0, 1)
            made |= {
                f"val/{panel}/{name}/success_rate": float(x) for name, x in zip(FAMILIES.values(), rates, strict=True)
            }
            made |= {f"val/{panel}/success_rate": float(rates.mean()), f"val/{panel}/episodes": 140.0}
    return made | {f"actor/metric_{k}": float(noise.random()) for k in range(metrics - len(made) + 1)}


def write_step_texts(folder: Path) -> None:
    """Five batches of 600 steps, of which a third are distinct texts."""
    numbers = np.random.default_rng(0)
    for step in range(1, 6):
        place = numbers.integers(0, 200, 600)
        columns = {
            "group": np.arange(600) // 75,
            "trajectory": np.arange(600) // 15,
            "text": np.array([f"go to shelf {k} || You arrive at shelf {k}. You see a vase {k % 7}." for k in place]),
            "success": np.arange(600) // 15 % 3 == 0,
            "credit": (numbers.random(600) < 0.1) * 1.0,
        }
        np.savez_compressed(folder / "diagnostics" / f"step_texts_step_{step:05d}.npz", **columns)


if __name__ == "__main__":
    main()
