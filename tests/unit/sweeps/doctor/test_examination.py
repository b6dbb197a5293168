"""The doctor's examination as a whole, and its command."""

import json
import re
from pathlib import Path

from rich.console import Console

from scpo.findings import Level, error, ok, warning
from sweeps import __main__ as cli
from sweeps.doctor import gpu_path, machine
from sweeps.doctor.examination import QUICK, examine, read_subject, show_findings
from sweeps.doctor.packages import needed_extras
from tests.support.doctor_findings import only


def test_this_machine_and_the_defaults_have_no_error(subject):
    assert not [one for one in examine(subject(), slow=False) if one.level is Level.ERROR]


def test_a_check_that_breaks_is_a_finding_and_stops_no_other(subject, monkeypatch):
    monkeypatch.setitem(QUICK, "cpus", lambda _: (_ for _ in ()).throw(OSError("no such counter")))
    found = list(examine(subject(), slow=False))
    assert only(found).text == "the check itself failed: OSError: no such counter"
    assert {"packages", "disk", "wandb"} <= {one.check for one in found}


def test_what_several_configurations_lack_is_found_once(subject, monkeypatch):
    monkeypatch.setitem(QUICK, "cpus", lambda _: iter([warning("cpus", "few", "more")] * 2))
    assert [one.text for one in examine(subject(), slow=False) if one.check == "cpus"] == ["few"]


def test_the_exit_status_and_json_are_for_scripts(tmp_path, capsys):
    runs = f"machine.runs_dir={tmp_path}"
    assert cli.main(["doctor", runs, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert {"check", "level", "text", "fix"} == set(records[0])
    assert cli.main(["doctor", runs, "env.games=official", "machine.data.alfworld=null"]) == 1
    assert "fix: alfworld-download" in capsys.readouterr().out
    assert cli.main(["doctor", "method.shaper.thet=1"]) == 2
    assert not (tmp_path / "runs").exists()


def test_errors_are_the_last_lines_and_what_is_ok_the_first():
    console = Console(width=200, record=True)
    found = [error("disk", "full", "a disk"), ok("cpus", "2"), warning("wandb", "no key", "login"), ok("gpus", "none")]
    assert show_findings(console, found) == found
    levels = [line.split()[0] for line in console.export_text().splitlines() if "fix:" not in line]
    assert levels == ["ok", "ok", "warning", "error"]


def test_an_experiment_is_looked_at_once_for_each_environment_and_model():
    subject = read_subject(["+experiment=prompting", "scale=paper", "env=webshop", "model=qwen2_5_1_5b"])
    assert len({(one.env.name, one.model.name) for one in subject.configs}) == len(subject.configs)
    assert subject.runs > len(subject.configs)
    assert {"agents", "track", "webshop"} <= set(needed_extras(subject))


def test_verls_installation_scores_with_a_cross_encoder(subject):
    """docs/verl.md installs no extra for it."""
    assert "local" not in needed_extras(read_subject(["scale=paper", "method=scpo"]))
    assert "local" in needed_extras(read_subject(["scale=paper", "method=scpo", "scorer=minilm"]))
    assert "local" in needed_extras(subject("scorer=bge_reranker_v2_m3", "trainer=local"))


def test_the_output_on_the_doctors_page_has_the_numbers_of_the_program(subject, monkeypatch):
    """Disk and memory of the ablation were those of an earlier estimate."""
    page = (Path(__file__).parents[4] / "docs" / "doctor.md").read_text()
    words, shown = re.search(r"carry \(`(.*?)`\):\n\n```\n(.*?)```", page, re.DOTALL).groups()
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    monkeypatch.setattr("sweeps.resources.usable_cores", lambda: 2)
    monkeypatch.setattr(machine, "_cpu_quota", lambda: None)
    monkeypatch.setattr(machine, "installed_gpus", list)
    monkeypatch.setattr("sweeps.resources.visible_gpus", list)
    asked = subject(*words.split())
    needs = [
        one.text.partition("; ")[2]
        for check in (machine.check_memory, machine.check_disk)
        for one in check(asked)
        if "GiB free" in one.text
    ]
    assert len(needs) == 2
    assert all(f"; {text}\n" in shown for text in needs)
    (hours,) = gpu_path.check_hours(asked)
    (cpus,) = machine.check_cpus(asked)
    assert f"ok       {hours.check}: {hours.text}\nok " in shown
    assert f"ok       cpus: {cpus.text}\nok " in shown
    ends = [shown.count(f"{level} ") for level in ("ok      ", "warning ", "error   ")]
    assert "{} ok, {} warning, {} error; --deep loads".format(*ends) in shown
