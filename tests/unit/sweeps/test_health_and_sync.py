import io
import json
from argparse import Namespace

from rich.console import Console

from scpo.errors import UnreadableError
from scpo.records import JsonLines
from scpo.records.health import RULES
from sweeps import wandb_commands
from sweeps.status import show_health
from tests.support import fake_runs as fake


def shown(call, *arguments):
    out = io.StringIO()
    return call(Console(file=out, width=300), *arguments), out.getvalue()


def log(folder, metric, values):
    for step, value in enumerate(values):
        JsonLines(folder.metrics).append({"step": step, metric: value})


def test_rules_are_replayed_on_finished_runs(tmp_path):
    ill, well = (fake.make_run(tmp_path, f"seed={seed}") for seed in range(2))
    log(ill, "actor/entropy", [3.0, 0.01, 0.01, 0.01])
    log(well, "actor/entropy", [3.0, 2.0, 2.0])
    fine, said = shown(show_health, [ill, well], Namespace(rules=RULES, json=False))
    assert not fine
    assert f"{ill.run_id}: warn: entropy_collapsed at step 3" in said
    assert "2 runs looked at, 1 with remarks" in said
    assert shown(show_health, [well], Namespace(rules=RULES, json=False))[0]


def test_a_run_that_cannot_be_read_is_not_in_health(tmp_path):
    well, cut = (fake.make_run(tmp_path, f"seed={seed}") for seed in range(2))
    log(well, "actor/entropy", [3.0, 2.0, 2.0])
    cut.metrics.write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    fine, said = shown(show_health, [well, cut], Namespace(rules=RULES, json=False))
    assert not fine
    assert cut.run_id in said
    assert "1 run looked at, 0 with remarks" in said


def test_a_rule_on_a_metric_that_no_run_logs_is_named(tmp_path, capsys):
    folder = fake.make_run(tmp_path)
    log(folder, "train/success_rate", [0.5, 0.5])
    rules = tmp_path / "mine.yaml"
    level = "high: 1, steps: 1, level: warn"
    rules.write_text(
        f"typed: {{kind: outside, metric: train/sucess_rate, {level}}}\n"
        f"right: {{kind: outside, metric: train/*, {level}}}\n"
        f"shipped: {{kind: outside, metric: credit/above_theta, {level}}}\n"
    )
    fine, said = shown(show_health, [folder], Namespace(rules=rules, json=True))
    assert (fine, json.loads(said)) == (True, {folder.run_id: []})
    named = f"{rules}: typed: none of these runs logs train/sucess_rate; did you mean train/success_rate?"
    assert capsys.readouterr().err.split() == named.split()


def test_each_offline_folder_is_pushed_once(tmp_path):
    folder = fake.make_run(tmp_path)
    for name in ("1", "2", "3"):
        (folder.path / "wandb" / f"offline-run-{name}").mkdir(parents=True)
    (folder.path / "wandb" / "offline-run-1" / "x.wandb.synced").touch()
    pushed = []

    def push(path):
        pushed.append(path.name)
        return path.name != "offline-run-3", "no server" if path.name == "offline-run-3" else "done"

    worked, said = shown(wandb_commands.sync, [folder], push)
    assert pushed == ["offline-run-2", "offline-run-3"]
    assert not worked
    assert "error: " in said
    assert "3 offline folders, 1 could not be synced" in said


def test_a_run_that_may_not_be_read_is_no_success(tmp_path, monkeypatch):
    folder = fake.make_run(tmp_path)

    def refuse(_):
        raise UnreadableError("permission denied")

    monkeypatch.setattr(wandb_commands, "check_readable", refuse)
    worked, said = shown(wandb_commands.sync, [folder], lambda _: (True, "done"))
    assert not worked
    assert f"error: {folder.run_id}: permission denied" in said
