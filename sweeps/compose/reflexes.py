"""What people type out of the habit of another tool, and the one command that does here what they want."""

import shlex
from collections.abc import Sequence

FLAGS = {
    "-m": "an experiment's axes are the sweep, and key=a,b adds one",
    "--multirun": "an experiment's axes are the sweep, and key=a,b adds one",
    "--dry-run": "write dry_run=true",
    "--dry_run": "write dry_run=true",
    "--dryrun": "write dry_run=true",
    "-n": "write dry_run=true",
    "--cfg": "it shows the configuration of one run",
    "--seed": "seeds are an axis",
}
DRY = {"dryrun", "dry-run", "dry_run", "dryRun"}
SITE = {"partition", "account", "qos", "constraint", "gres", "memory_gb", "max_time_h"}
SHORT = {
    "lr": "trainer.optimizer.learning_rate",
    "theta": "method.shaper.theta",
    "lambda": "method.shaper.soft_base",
    "alpha": "method.shaper.alpha",
    "n": "trainer.group_size",
    "gpus": "launcher.gpus",
}
"""What a last part of a key is called elsewhere."""


def explain_flag(flag: str, words: Sequence[str], script: str) -> str:
    """A flag that neither script has, with the command that was meant."""
    name, _, value = flag.partition("=")
    rest = [word for word in words if word != flag]
    why = FLAGS.get(name, "there is no such flag")
    if name == "--cfg":
        rest = [word for word in rest if word != "job" and not word.startswith("+")]
        return f"{flag}: {why}: {_command('train.py', rest)} --cfg job"
    if name in ("-m", "--multirun"):
        chosen = (
            rest if any(word.startswith(("+experiment", "+search")) for word in rest) else ["+experiment=one", *rest]
        )
        return f"{flag}: {why}: {_command('sweep.py', chosen)}"
    if "dry_run=true" in why:
        chosen = rest if any(word.startswith("+") for word in rest) else ["+experiment=one", *rest]
        return f"{flag}: {why}: {_command('sweep.py', [*chosen, 'dry_run=true'])}"
    if any(word.startswith("--") and "=" in word and not word.startswith("--seed=") for word in words):
        plain = [word.removeprefix("--") for word in words]
        return (
            f"{flag}: no dashes here: {_command(script, plain)} (for wandb agent: ${{args_no_hyphens}}, docs/live.md)"
        )
    if name == "--seed":
        given = f"seed={value or 0}" if script == "train.py" else f"seeds=[{value or 0}]"
        return f"{flag}: {why if script == 'sweep.py' else 'write it as an override'}: {given}"
    return f"{flag}: {why}; `python {script} --help` shows what there is"


def explain_launcher(words: Sequence[str]) -> str | None:
    """What was asked of a launcher where one run runs here, with the command that asks it; None: nothing."""
    asked = [word for word in words if word.lstrip("+").startswith(("launcher", "hydra/launcher"))]
    if all(word == "launcher=local" for word in asked):
        return None
    seeds = [word.partition("=")[2] for word in words if word.startswith("seed=")] or ["0"]
    rest = [word for word in words if not word.lstrip("+").startswith(("seed=", "hydra/launcher"))]
    chosen = [] if any(word.startswith("launcher=") for word in rest) else ["launcher=slurm_a800x4"]
    command = _command("sweep.py", ["+experiment=one", *rest, f"seeds=[{seeds[-1]}]", *chosen])
    return f"{asked[0]}: train.py runs its run here, by itself; a launcher is sweep.py's: {command}"


def explain_foreign_key(key: str, value: object) -> str | None:
    """A key of another tool; None: of none that is known."""
    if key in DRY:
        return f"{key}={value}: it is called dry_run: dry_run=true"
    if key.startswith("hydra"):
        if "launcher" in key:
            return f"{key}={value}: launchers are chosen here by launcher=slurm_a800x4 (Slurm) or launcher=local"
        if "sweeper" in key:
            return f"{key}={value}: Optuna searches are python sweep.py +search=<name>; an axis is key=a,b"
        return f"{key}={value}: Hydra composes here and does no more; folders: machine.runs_dir=<folder>"
    parent, _, name = key.rpartition(".")
    if parent == "launcher" and name in SITE:
        return f"{key}={value}: it is the cluster's own: slurm/site.yaml: {name} (another file: launcher.site=<file>)"
    return None


def _command(script: str, words: Sequence[str]) -> str:
    return " ".join(["python", script, *(shlex.quote(word) for word in words)])
