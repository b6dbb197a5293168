"""Study-scale run folders with chosen curves, and their experiments' records, for the tests of comparisons."""

import zlib
from pathlib import Path

from scpo.records.files import write_json
from scpo.records.identity import recorded_id
from tests.support.run_records import config, write_lines, write_panels, write_settings
from tests.support.whole_logs import whole

GAMES = {"alfworld": {"valid_seen": 140, "valid_unseen": 134}, "webshop": {"test": 200}}
STEPS = (0, 10, 20, 30, 40)
OVERRIDES = {
    "scpo": ("method=scpo",),
    "gigpo": ("method=gigpo",),
    "grpo": ("method=grpo",),
    "plain": ("method=plain",),
    "crbc": ("method=crbc",),
    "gagpo": ("method=gagpo",),
    "chronological": ("method=scpo", "method.shaper.order=chronological"),
    "random_match": ("method=scpo", "method.shaper.allocation=random_match"),
    "scpo_gigpo": ("method=scpo", "method.host=gigpo"),
    "scpo_lexical": ("method=scpo", "scorer=lexical"),
    "scpo_minilm": ("method=scpo", "scorer=minilm"),
    "theta_0_4": ("method=scpo", "method.shaper.theta=0.4"),
    "theta_0_8": ("method=scpo", "method.shaper.theta=0.8"),
}
PRIMARY = {
    "main_table": (("scpo", "gigpo"), ("gigpo", "grpo")),
    "ablation": (("scpo", "chronological"),),
    "controls": (("scpo", "random_match"),),
    "webshop_study": (("scpo", "gigpo"), ("gigpo", "grpo")),
}


def write_study_run(runs_dir, row, seed, curve, *, state="DONE", credit=None, env="alfworld", overrides=()):
    """A run whose held-out success follows ``curve`` (step -> rate, on all panels), and its entry in the record."""
    words = [word for word in OVERRIDES[row] if not word.startswith("method.host=")]
    made = config("study", "", seed, (*words, *overrides, *([] if env == "alfworld" else [f"env={env}"])))
    run = {"id": recorded_id(made), "env": env, "model": "choice", "seed": seed}
    folder = Path(runs_dir) / run["id"]
    if folder.exists():
        return run
    (folder / "diagnostics").mkdir(parents=True)
    write_settings(folder, made)
    write_json(folder / "status.json", {"state": state, "step": 40, "steps": 40, "commit": "0123456789abcdef"})
    write_panels(folder, made)
    write_json(folder / "provenance.json", {"attempts": {"1": {"cpu": "a processor", "dirty": False}}})
    write_lines(folder / "metrics.jsonl", whole(made, _lines(curve, _rollouts(made) | (credit or {}), GAMES[env])))
    write_lines(folder / "timing.jsonl", [{"step": step, "timing_s/step": 0.5} for step in range(1, 41)])
    return run


def _rollouts(made):
    return {"train/episodes": float(made["trainer"]["groups"] * made["trainer"]["group_size"])}


def _lines(curve, credit, panels):
    for step in range(41):
        line = {"step": step}
        if step:
            line |= {"train/success_rate": _between(curve, step), **credit}
        if step in curve:
            for panel, games in panels.items():
                line |= {f"val/{panel}/success_rate": curve[step], f"val/{panel}/episodes": float(games)}
        yield line


def _between(curve, step):
    """On the straight line between the points around a step."""
    last = max(at for at in curve if at <= step)
    following = min((at for at in curve if at > step), default=last)
    share = (step - last) / (following - last) if following > last else 0.0
    return curve[last] + share * (curve[following] - curve[last])


def rising(end, shift=0.0):
    """A curve from 0 to ``end`` whose area differs by ``shift`` from another's."""
    return {0: 0.0, **{step: end * step / 40 + shift for step in STEPS[1:]}}


def _spread(curve, row, seed):
    """The curve with a spread of areas that no printed digit shows: without any, nothing can be tested."""
    noise = zlib.crc32(f"{row}{seed}".encode()) / 2**32
    return {step: rate * (1 - 1e-6 * noise * (step < STEPS[-1])) for step, rate in curve.items()}


def write_study(
    runs_dir, experiments, curves, *, seeds=(0, 1, 2), primary=PRIMARY, credit=None, env="alfworld", overrides=()
):
    """``experiments``: name -> rows; ``curves``: row -> function of the seed. Returns run ids by row."""
    ids = {}
    for experiment, rows in experiments.items():
        listed = []
        for row in rows:
            own = (credit or {}).get(row)
            runs = [
                write_study_run(
                    runs_dir, row, seed, _spread(curves[row](seed), row, seed), credit=own, env=env, overrides=overrides
                )
                for seed in seeds
            ]
            ids[row] = [run["id"] for run in runs]
            listed.append({"name": row, "label": row.upper(), "runs": runs})
        named = {"measure": "validation_area", "comparisons": primary.get(experiment, ())}
        record = {"experiment": experiment, "title": experiment.capitalize(), "scale": "study", "overrides": []}
        record |= {"rows": listed, "primary": named if named["comparisons"] else None}
        write_json(Path(runs_dir) / "experiments" / f"{experiment}-study.json", record)
    return ids


def set_processors(runs_dir, row, processors, capabilities=None):
    """Write the processor of each seed's run of a row, whose seeds are 0, 1, ..."""
    for seed, cpu in enumerate(processors):
        (folder,) = Path(runs_dir).glob(f"alfworld-choice-{row}-s{seed}-*")
        attempt = {"cpu": cpu, "torch_capability": (capabilities or {}).get(seed)}
        write_json(folder / "provenance.json", {"attempts": {"1": attempt}})
