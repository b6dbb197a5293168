import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import sweep
from analysis.show import experiment_table
from scpo.errors import ConfigError, RecordError
from scpo.records import RunFolder, State, manifest, run_config, verify
from scpo.records.archive_index import METRICS
from scpo.records.code_files import code_files
from scpo.records.files import file_sum, locked, read_json, write_json
from scpo.records.run_folders import finished_in
from sweeps import __main__ as cli
from sweeps import dispatch, housekeeping
from sweeps.compose.matrix import expand
from sweeps.compose.overrides import read_request
from sweeps.dispatch import exit_status
from sweeps.launchers.run_process import Outcome
from sweeps.launchers.slurm import launcher as cluster
from sweeps.launchers.slurm.job_limits import JobLimits
from sweeps.launchers.slurm.observer import Observer
from sweeps.records import attempt
from sweeps.records.reconcile import Action, decide
from sweeps.status import statuses
from tests.faults import fake_train
from tests.support import fake_runs as fake
from tests.support.fake_slurm import FakeSlurm, quick_records
from tests.support.run_records import write_archive_index, write_experiment

ROOT = Path(__file__).parents[3]


def call(script, *words, cwd, python=()):
    command = [sys.executable, *python, str(ROOT / script), *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("states", "code"), [("DD", 0), ("", 0), ("DF", 1), ("FI", 1), ("XR", 1), ("DI", 130), ("DR", 3), ("RI", 130)]
)
def test_the_exit_status_is_that_of_the_worst_run(states, code):
    by_letter = {str(state)[0]: state for state in (State.DONE, State.FAILED, State.INTERRUPTED, State.RUNNING)}
    by_letter["X"] = State.DAMAGED
    assert exit_status([Outcome(by_letter[letter]) for letter in states]) == code


def test_a_stopped_sweep_says_that_runs_without_a_checkpoint_begin_anew_with_their_warm_start(tmp_path):
    words = [*fake.QUICK, "seeds=[0]", f"machine.runs_dir={tmp_path}"]
    matrix = expand("ablation_monotonicity", words)
    stopped = dict.fromkeys(matrix.runs, Outcome(State.INTERRUPTED))
    said = dispatch._what_is_kept(matrix, stopped)
    assert said == (
        "Stopped before the first checkpoint: the same command begins anew, with the warm start if that was not "
        "finished."
    )
    first, *_ = (RunFolder(tmp_path / run_id) for run_id in matrix.runs)
    first.checkpoint(2).mkdir(parents=True)
    first.mark_complete(2, {}, {})
    said = dispatch._what_is_kept(matrix, stopped)
    assert said.endswith(
        "goes on from the checkpoints, and begins anew for 1 run without one, with the warm start if that was not "
        "finished."
    )
    assert dispatch._what_is_kept(matrix, {first.run_id: Outcome(State.INTERRUPTED)}).endswith("the checkpoints.")


@pytest.mark.parametrize(("failures", "begun"), [(1, "2 runs"), (3, "1 run")])
def test_a_stopped_sweep_counts_failed_runs_without_a_checkpoint_that_it_would_start_again(tmp_path, failures, begun):
    """Only those that the Ctrl-C had interrupted were counted."""
    words = [*fake.QUICK, "launcher.max_failures=3", "seeds=[0,1]", f"machine.runs_dir={tmp_path}"]
    matrix = expand("ablation_monotonicity", words)
    outcomes = {}
    for run_id, config in matrix.runs.items():
        run_config.ensure(config)
        outcomes[run_id] = Outcome(State.DONE)
    kept, stopped, failed, cancelled = (RunFolder(tmp_path / run_id) for run_id in matrix.runs)
    kept.checkpoint(2).mkdir(parents=True)
    kept.mark_complete(2, {}, {})
    failed.update_status(state=State.FAILED, failures=failures)
    for folder, state in ((kept, State.FAILED), (stopped, State.INTERRUPTED), (failed, State.FAILED)):
        outcomes[folder.run_id] = Outcome(state)
    outcomes[cancelled.run_id] = Outcome(State.CANCELLED)
    assert f" begins anew for {begun} without one" in dispatch._what_is_kept(matrix, outcomes)


def test_sweep_alone_lists_the_experiments_and_writes_nothing(tmp_path):
    done = call("sweep.py", cwd=tmp_path)
    assert done.returncode == 0
    assert "ablation_monotonicity" in done.stdout
    assert "Ablation: monotonic crediting" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_dry_run_shows_the_matrix_writes_nothing_and_imports_nothing_heavy(tmp_path):
    words = ("+experiment=ablation_monotonicity", "dry_run=true", "seeds=[0]")
    done = call("sweep.py", *words, cwd=tmp_path, python=("-X", "importtime"))
    assert done.returncode == 0
    assert "no_monotonicity-s0-" in done.stdout
    assert done.stdout.count("start (first start)") == 2
    assert not list(tmp_path.iterdir())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pydantic" in imported
    assert not imported & {"torch", "scipy", "transformers", "wandb", "pandas", "textworld"}


def test_a_dry_run_names_what_would_be_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    words = ("+experiment=webshop_study", "dry_run=true", "scale=study", "seeds=[0]", "env.catalogue=official")
    done = call("sweep.py", *words, cwd=tmp_path)
    assert done.returncode == 0
    assert "would not start here: catalogue: official catalogue: WEBSHOP_DATA is not set" in " ".join(
        done.stdout.split()
    )


def test_runs_to_be_mirrored_without_a_key_are_noted_before_they_start(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ("+experiment=ablation_monotonicity", "dry_run=true", "seeds=[0]")

    def dry_run(mode):
        return " ".join(call("sweep.py", *words, f"wandb.mode={mode}", cwd=tmp_path).stdout.split())

    note = "wandb.mode=online, but this machine has no key for W&B (WANDB_API_KEY, ~/.netrc)"
    assert note in dry_run("online")
    assert note not in dry_run("offline")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert note not in dry_run("online")


def test_a_dry_run_tells_what_is_finished(tmp_path):
    folder = fake.make_run(tmp_path)
    attempt.run(folder, fake_train.train)
    words = ("+experiment=ablation_monotonicity", "dry_run=true", "seeds=[0]", f"machine.runs_dir={tmp_path}")
    done = call("sweep.py", *words, *fake.QUICK, cwd=tmp_path)
    assert "skip (finished before)" in done.stdout
    assert "start (first start)" in done.stdout


def test_finished_runs_of_an_edited_estimator_are_named_with_the_way_to_run_them_again(tmp_path):
    folder = fake.make_run(tmp_path)
    folder.update_status(state=State.DONE)
    files = code_files()
    words = ("+experiment=ablation_monotonicity", "dry_run=true", "seeds=[0]", f"machine.runs_dir={tmp_path}")

    def dry_run(changed):
        write_json(folder.code, {"files": files | dict.fromkeys(changed, "another")})
        return " ".join(call("sweep.py", *words, *fake.QUICK, cwd=tmp_path).stdout.split())

    told = dry_run(["scpo/advantages/gigpo.py"])
    assert "1 finished run of other code, changed since: scpo/advantages/gigpo.py." in told
    assert f"first: python -m sweeps rm --finished {folder.run_id}" in told
    assert "of other code" not in dry_run(["scpo/advantages/crbc.py", "sweeps/dispatch.py"])


def test_a_dry_run_names_the_runs_whose_resume_other_code_would_refuse(tmp_path):
    folder = fake.make_run(tmp_path)
    folder.update_status(state=State.INTERRUPTED, step=2)
    folder.checkpoint(2).mkdir(parents=True)
    folder.mark_complete(2, {}, {})
    words = ("+experiment=ablation_monotonicity", "dry_run=true", "seeds=[0]", f"machine.runs_dir={tmp_path}")

    def dry_run(changed, *more):
        files = code_files() | dict.fromkeys(changed, "another")
        write_json(folder.code, {"files": files})
        before = folder.code.read_bytes()
        said = " ".join(call("sweep.py", *words, *fake.QUICK, *more, cwd=tmp_path).stdout.split())
        assert folder.code.read_bytes() == before
        return said

    said = dry_run(["scpo/advantages/gigpo.py"])
    assert f"not started: {folder.run_id} stopped at step 2 under other code. Changed since: scpo/advantages" in said
    assert "leave (not started under other code, see the note)" in said
    assert "goes on" not in said
    assert "not started" not in dry_run(["sweeps/dispatch.py"])
    assert "not started" not in dry_run(["scpo/advantages/gigpo.py"], "machine.resume_across_versions=true")


def test_runs_of_an_unchanged_method_are_not_offered_for_deletion_with_those_of_an_edited_one(tmp_path):
    folders = [fake.make_run(tmp_path, "method=gigpo"), fake.make_run(tmp_path, "method=grpo")]
    files = code_files()
    for folder, changed in zip(folders, ("scpo/advantages/gigpo.py", "scpo/steps.py"), strict=True):
        folder.update_status(state=State.DONE)
        write_json(folder.code, {"files": files | {changed: "another"}})
    words = ("+experiment=one", "method=gigpo,grpo", "dry_run=true", "seeds=[0]", f"machine.runs_dir={tmp_path}")
    told = " ".join(call("sweep.py", *words, *fake.QUICK, cwd=tmp_path).stdout.split())
    for folder, changed in zip(folders, ("scpo/advantages/gigpo.py", "scpo/steps.py"), strict=True):
        again = f"To run it again, first: python -m sweeps rm --finished {folder.run_id}"
        assert f"1 finished run of other code, changed since: {changed}. {again}" in told


def test_what_an_archive_holds_is_not_run_again(tmp_path):
    ids = list(expand("ablation_monotonicity", ["seeds=[0]"]).runs)
    archive = tmp_path / "archive"
    words = ("+experiment=ablation_monotonicity", "seeds=[0]", f"machine.archive={archive}")
    write_archive_index(archive, ids[:1])
    shown = call("sweep.py", *words, "dry_run=true", cwd=tmp_path).stdout
    assert (shown.count("skip (finished, in"), shown.count("start (first start)")) == (1, 1)
    write_archive_index(archive, ids)
    done = call("sweep.py", *words, cwd=tmp_path)
    assert (done.returncode, "2 finished, in" in done.stdout) == (0, True)
    assert not [path for path in (tmp_path / "runs").iterdir() if path.name in ids]


def test_a_file_of_an_archive_that_changed_is_refused(tmp_path):
    write_archive_index(tmp_path / "archive", ["a-run"])
    assert finished_in(str(tmp_path / "archive")) == {"a-run"}
    (tmp_path / "archive" / METRICS).write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"is damaged \(metrics.parquet\)"):
        finished_in(str(tmp_path / "archive"))


def test_a_damaged_archive_is_refused_before_a_folder_is_made(tmp_path):
    (tmp_path / "runs.parquet").write_bytes(b"no table")
    done = call("sweep.py", "+experiment=ablation_monotonicity", f"machine.archive={tmp_path}", cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "is no archive of runs that can be read" in " ".join(done.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["runs.parquet"]


@pytest.mark.parametrize("script", ["sweep.py", "train.py"])
def test_help_and_mistakes_take_no_stack_trace(script, tmp_path):
    assert f"python {script}" in call(script, "--help", cwd=tmp_path).stdout
    words = ["+experiment=ablation", "method=scop"] if script == "sweep.py" else ["method=scop"]
    done = call(script, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean scpo?" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_train_refuses_a_folder_that_is_none(tmp_path):
    done = call("train.py", "runs/nothing", cwd=tmp_path)
    assert (done.returncode, "no run folder runs/nothing" in done.stderr) == (2, True)


def test_status_shows_runs_lost_ones_and_damaged_ones(tmp_path):
    lost, damaged = fake.make_run(tmp_path), fake.make_run(tmp_path, "seed=1")
    lost.metrics.write_text("".join(f'{{"step": {step}}}\n' for step in range(3)))
    lost.update_status(state=State.RUNNING, step=2)
    damaged.status.write_text("{")
    command = [sys.executable, "-m", "sweeps", "status", "*-s?-*", "--runs-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "LOST" in lines[lost.run_id]
    assert "2/4" in lines[lost.run_id]
    assert "DAMAGED" in lines[damaged.run_id]


def test_a_dry_run_for_slurm_shows_hours_and_the_sbatch_text_and_writes_nothing(tmp_path):
    pytest.importorskip("submitit", reason="needs submitit: make setup")
    words = ("+experiment=ablation", "scale=paper", "launcher=slurm_a800x4", f"launcher.site={ROOT}/slurm/site.yaml")
    done = call("sweep.py", *words, "dry_run=true", cwd=tmp_path, python=("-X", "importtime"))
    assert done.returncode == 0, done.stderr
    assert "about 664 GPU-hours, of which 664 still to start" in done.stdout
    assert "12 jobs of at most 21 h; sbatch would read:" in done.stdout
    assert "#SBATCH --array=0-11%12" in done.stdout
    assert not list(tmp_path.iterdir())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"torch", "transformers", "wandb", "pandas", "textworld"}


@pytest.fixture
def status(capsys):
    """``python -m sweeps <words>`` without the start of a process."""

    def call(runs_dir, *words):
        code = cli.main([*words, "--runs-dir", str(runs_dir)])
        return SimpleNamespace(returncode=code, **capsys.readouterr()._asdict())

    return call


def test_status_is_there_for_programs_too(status, tmp_path):
    folder = fake.make_run(tmp_path)
    (row,) = json.loads(status(tmp_path, "status", "--json").out)
    assert (row["run_id"], row["state"], row["steps"]) == (folder.run_id, "PENDING", 4)


def test_runs_are_cancelled_retried_verified_and_their_logs_shown(status, tmp_path):
    folder = fake.make_run(tmp_path)
    assert "cancelled" in status(tmp_path, "cancel", folder.run_id).out
    assert folder.read_status().state is State.CANCELLED
    # It is a run of train.py.
    said = status(tmp_path, "retry", "alfworld-*").out
    assert said == f"{folder.run_id}: belongs to no experiment; goes on with: python train.py {folder.path}\n"
    fake.finish(fake.start("fake_train.py", folder.path))
    refused = status(tmp_path, "retry", folder.run_id)
    assert (refused.returncode, "is DONE" in refused.err + refused.out) == (1, True)
    failed = fake.make_run(tmp_path, "seed=1")
    failed.update_status(state=State.FAILED)
    of_all = status(tmp_path, "retry", "alfworld-*")
    assert of_all.returncode == 0
    assert f"{folder.run_id}: left as it is, DONE\n" in of_all.out
    assert failed.run_id in of_all.out
    shutil.rmtree(failed.path)
    assert folder.run_id in status(tmp_path, "logs", folder.run_id, "-n", "3").out
    assert "1 run, 0 problems" in status(tmp_path, "verify").out
    folder.status.write_text("{")
    damaged = status(tmp_path, "verify")
    assert (damaged.returncode, "status.json is damaged" in damaged.out.replace("\n", "")) == (1, True)
    assert status(tmp_path, "status", "nothing-like-that").returncode == 2


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((), " wandb.mode=disabled"),
        (("wandb.mode=offline", "launcher.slots=1"), " launcher.slots=1"),
        (
            ("wandb.mode=offline", "launcher=slurm_a800x4", "launcher.time_h=3"),
            " launcher=slurm_a800x4 launcher.time_h=3.0",
        ),
        (
            ("wandb.mode=online", "wandb.project=mine", "wandb.entity=us", "machine.threads=2"),
            " wandb.mode=online wandb.project=mine wandb.entity=us machine.threads=2",
        ),
    ],
)
def test_a_retried_run_goes_on_with_launcher_wandb_and_machine_that_it_had(status, tmp_path, overrides, words):
    folder = fake.make_run(tmp_path, *overrides)
    status(tmp_path, "cancel", folder.run_id)
    run = {"id": folder.run_id, "env": "alfworld", "model": "tiny", "seed": 0}
    write_experiment(tmp_path, {"scpo": [run]}, name="ablation")
    said = status(tmp_path, "retry", folder.run_id).out
    assert f": python sweep.py +experiment=ablation 'seeds=[0]'{words} machine.runs_dir=" in said


def test_watching_ends_when_nothing_moves_any_more(status, tmp_path):
    fake.make_run(tmp_path).update_status(state=State.DONE)
    assert "DONE" in status(tmp_path, "status", "--watch", "0.1").out


def test_a_dry_run_of_api_rows_names_cost_missing_keys_and_the_doctor(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", "a-key")
    shown = call(
        "sweep.py", "+experiment=prompting", "scale=paper", "env=alfworld", "dry_run=true", cwd=tmp_path
    ).stdout
    assert "API cost, at most: GPT-4o " in shown
    assert "not set here: OPENAI_API_KEY; export OPENAI_API_KEY=<your key>" in shown
    assert "python -m sweeps doctor +experiment=prompting scale=paper env=alfworld" in shown
    assert not list(tmp_path.iterdir())


def test_jobs_that_would_be_refused_are_refused_before_hours_are_shown(tmp_path):
    words = ["+experiment=ablation_monotonicity", "scale=paper", "launcher=slurm_a800x4", "launcher.gpus=2"]
    words += ["seeds=[0]", f"launcher.site={ROOT / 'slurm' / 'site.yaml'}", "dry_run=true"]
    done = call("sweep.py", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "launcher.gpus=2, the run takes 4 of each node" in done.stderr
    assert "GPU-hours" not in done.stdout


@pytest.fixture
def submitted(tmp_path, monkeypatch):
    """A matrix of four runs of `tmp_path` that wait for their jobs, and the scheduler."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").symlink_to(ROOT / "slurm")
    matrix = expand(
        "ablation_monotonicity",
        [*fake.QUICK, "launcher=slurm_a800x4", "launcher.time_h=1", "launcher.warn_s=600", "seeds=[0,1]"],
    )
    slurm = FakeSlurm()

    def launcher_for(configs):
        return cluster.Cluster(configs[0].launcher, Path("runs"), slurm, slurm, outside=lambda: False)

    with quick_records():
        dispatch.run(Console(file=io.StringIO()), matrix, launcher_for, Observer(slurm))
        yield matrix, slurm


@pytest.fixture
def finished(submitted):
    """The same four runs, finished, as a matrix of this machine."""
    _, slurm = submitted
    slurm.run_all()
    return expand("ablation_monotonicity", [*fake.QUICK, "launcher.slots=2", "seeds=[0,1]"])


def test_the_table_at_the_end_shows_submitted_runs_as_status_does(submitted, monkeypatch):
    matrix, slurm = submitted
    monkeypatch.setattr(dispatch, "Slurm", lambda: slurm)
    out = io.StringIO()
    sweep.show_table(Console(file=out, width=500), matrix)
    assert out.getvalue().count(" is QUEUED\n") == 4


@pytest.mark.parametrize(
    ("later", "given"),
    [
        (["method=gigpo,grpo", "trainer.steps=3"], "method=gigpo,grpo trainer.checkpoint_every=2 trainer.steps=3"),
        (["method=scpo,grpo"], "method=scpo,grpo trainer.steps=4 trainer.checkpoint_every=2"),
    ],
)
def test_the_table_at_the_end_is_that_of_the_call_and_names_a_later_one(tmp_path, monkeypatch, later, given):
    words = ["+experiment=one", "seeds=[0]", *fake.QUICK, f"machine.runs_dir={tmp_path}"]
    own, other = read_request([*words, "method=gigpo,grpo"]), read_request([*words, *later])

    def both_start(_console, matrix, _script):
        for each in (matrix, expand(other.name, other.overrides)):
            for config in each.runs.values():
                run_config.ensure(config)
            manifest.update(tmp_path, each.manifest)
        return 0

    monkeypatch.setattr(dispatch, "dispatch", both_start)
    monkeypatch.setattr(dispatch, "has_results", lambda _: True)
    out = io.StringIO()
    assert sweep.sweep(Console(file=out, width=500), own) == 0
    told = out.getvalue()
    ids = expand(own.name, own.overrides).runs
    assert "given: trainer.steps=4 trainer.checkpoint_every=2\n" in told
    assert [line.split()[-3] for line in told.splitlines() if line.startswith("missing: ")] == list(ids)
    (kept,) = manifest.other_names(tmp_path).keys() - {"one_by_method"}
    assert (
        "note: the record one_by_method is now that of a later call, python sweep.py +experiment=one "
        f"{given}; this call's is kept as {kept}\n"
    ) in told


def test_runs_of_earlier_seeds_stay_in_the_table_of_a_call(tmp_path):
    for seeds in ("[1]", "[0]"):
        matrix = expand("one", [f"machine.runs_dir={tmp_path}", f"seeds={seeds}", "method=gigpo,grpo"])
        for config in matrix.runs.values():
            run_config.ensure(config)
        manifest.update(tmp_path, matrix.manifest)
    rows = dispatch.record_of_call(matrix).rows
    assert [[run.seed for run in row.runs] for row in rows] == [[0, 1], [0, 1]]
    assert not list(dispatch.of_replaced_record(matrix))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["seeds=[0,1,2]"], None),
        (["seeds=[0,1]"], "2 of them of earlier calls: seeds 0, 1, 2; this call named seeds 0, 1\n"),
        (
            ["seeds=[0]", "rows=[scpo]"],
            "5 of them of earlier calls: seeds 0, 1, 2; rows scpo, no_monotonicity; this call named seed 0; row scpo\n",
        ),
    ],
)
def test_a_note_under_the_table_names_its_seeds_and_rows_of_earlier_calls(tmp_path, monkeypatch, words, told):
    own = [*fake.QUICK, f"machine.runs_dir={tmp_path}"]
    for each in (["seeds=[0,1,2]"], words):
        matrix = expand("ablation_monotonicity", [*own, *each])
        for config in matrix.runs.values():
            run_config.ensure(config)
        manifest.update(tmp_path, matrix.manifest)
    monkeypatch.setattr(dispatch, "has_results", lambda _: True)
    monkeypatch.setattr(dispatch, "dispatch", lambda *_: 0)
    out = io.StringIO()
    sweep.sweep(Console(file=out, width=500), read_request(["+experiment=ablation_monotonicity", *own, *words]))
    of_all = f"note: the table is of all runs of ablation_monotonicity in {tmp_path} with these overrides, "
    assert f"{of_all}{told}" in out.getvalue() if told else "the table is of all" not in out.getvalue()


def sweep_here(matrix, monkeypatch):
    """(exit status, what was printed) of a sweep on this machine that starts nothing."""
    monkeypatch.setattr(dispatch, "refuse_what_cannot_start", lambda _: None)
    out = io.StringIO()
    launcher = SimpleNamespace(detached=False, check=lambda configs: 1)
    status = dispatch.run(Console(file=out, width=500), matrix, lambda _: launcher, Observer(FakeSlurm()))
    return status, out.getvalue()


class Meanwhile:
    """A launcher of one slot; ``happens(folder)`` while its run trains gives the outcome."""

    detached, poll_s, signals, free = False, 0.0, 0, 1

    def __init__(self, happens):
        self.happens = happens
        self.started = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def check(self, configs):
        return 1

    def start(self, runs, _title):
        self.started = {run_id: folder for run_id, (folder, _) in runs.items()}
        return []

    def poll(self):
        return {run_id: self.happens(folder) for run_id, folder in self.started.items()}


def train_here(folder):
    attempt.run(folder, fake_train.train)
    return Outcome(folder.read_status().state)


@pytest.fixture
def sweep_of_two(tmp_path, monkeypatch):
    """(run of another process, its lock, sweep) of an experiment with two seeds.

    ``sweep(happens)`` starts the second run: (exit status, what was printed, what was sent).
    """
    matrix = expand("one", [*fake.QUICK, "method=gigpo", "seeds=[0,1]", f"machine.runs_dir={tmp_path}"])
    theirs = run_config.ensure(next(iter(matrix.runs.values())))
    theirs.update_status(state=State.RUNNING, pid=os.getpid(), host=socket.gethostname(), attempt=1)
    monkeypatch.setattr(dispatch, "refuse_what_cannot_start", lambda _: None)
    sent = []
    monkeypatch.setattr(dispatch, "notify", sent.append)

    def sweep(happens):
        out = io.StringIO()
        launcher = Meanwhile(happens)
        status = dispatch.run(Console(file=out, width=500), matrix, lambda _: launcher, Observer(FakeSlurm()))
        return status, out.getvalue(), sent

    with contextlib.ExitStack() as lock:
        lock.enter_context(locked(theirs.lock))
        yield theirs, lock, sweep


def test_a_run_that_another_process_finishes_meanwhile_is_done_at_the_end(sweep_of_two):
    theirs, lock, sweep = sweep_of_two

    def happens(folder):
        lock.close()
        train_here(theirs)
        return train_here(folder)

    status, told, sent = sweep(happens)
    assert (status, sent) == (0, ["scpo: one ended: 2 DONE"])
    assert "1 to run, 1 run by another process\n" in told
    assert told.endswith("2 runs: 2 DONE\n")


def test_a_run_whose_process_is_killed_meanwhile_is_lost_at_the_end(sweep_of_two):
    theirs, lock, sweep = sweep_of_two

    def happens(folder):
        lock.close()
        return train_here(folder)

    status, told, sent = sweep(happens)
    assert (status, sent) == (1, ["scpo: one ended: 1 DONE, 1 LOST"])
    assert "2 runs: 1 DONE, 1 LOST\n" in told
    assert f"LOST {theirs.run_id}: its process ended without recording why" in told


def test_a_run_that_another_process_still_runs_is_named_at_the_end(sweep_of_two):
    theirs, _, sweep = sweep_of_two
    status, told, sent = sweep(train_here)
    assert (status, sent) == (3, ["scpo: one ended: 1 DONE, 1 RUNNING"])
    end = told.partition("2 runs: 1 RUNNING, 1 DONE\n")[2]
    assert f"1 run of other processes ({os.getpid()} on" in end
    assert f"python -m sweeps status {theirs.run_id} " in end


@pytest.mark.parametrize(("end", "code"), [(State.DONE, 0), (State.INTERRUPTED, 130)])
def test_a_run_that_another_sweep_began_first_ends_as_it_did_there(sweep_of_two, end, code):
    theirs, lock, sweep = sweep_of_two

    def happens(folder):
        lock.close()
        train_here(theirs)
        train_here(folder) if end is State.DONE else folder.update_status(state=end)
        return Outcome(State.RUNNING, "another process runs it")

    assert sweep(happens)[0] == code


def under_other_code(folder):
    folder.update_status(state=State.INTERRUPTED, step=2)
    folder.checkpoint(2).mkdir(parents=True, exist_ok=True)
    folder.mark_complete(2, {}, {})
    write_json(folder.code, {"files": code_files() | {"scpo/advantages/gigpo.py": "another"}})
    return folder


def test_a_run_whose_resume_would_be_refused_is_not_started_here(sweep_of_two):
    theirs, lock, sweep = sweep_of_two
    lock.close()
    under_other_code(theirs)
    status, told, _ = sweep(train_here)
    assert status == 1
    assert "1 to run, 1 not started under other code, see the note\n" in told
    assert f"note: not started: {theirs.run_id} stopped at step 2 under other code. Changed since: " in told
    assert "2 runs: 1 DONE, 1 not started\n" in told
    assert theirs.read_status().state is State.INTERRUPTED


def test_a_run_whose_resume_would_be_refused_is_not_submitted(submitted):
    matrix, slurm = submitted
    slurm.run_all()
    slurm.submitted.clear()
    run_id = next(run_id for run_id, config in matrix.runs.items() if config.seed == 1)
    folder = under_other_code(RunFolder(Path("runs") / run_id))
    out = io.StringIO()

    def launcher_for(configs):
        return cluster.Cluster(configs[0].launcher, Path("runs"), slurm, slurm, outside=lambda: False)

    status = dispatch.run(Console(file=out, width=500), matrix, launcher_for, Observer(slurm))
    assert (status, slurm.submitted) == (1, [])
    assert "3 finished before" in out.getvalue()
    assert "1 not started under other code, see the note\n" in out.getvalue()
    assert (
        f"note: not started: {folder.run_id} stopped at step {folder.complete_checkpoints()[-1]} under"
        in out.getvalue()
    )


def test_a_finished_run_whose_log_was_changed_is_counted_as_damaged(finished, monkeypatch):
    assert sweep_here(finished, monkeypatch)[0] == 0
    run_id = list(finished.runs)[1]
    log = Path("runs", run_id, "metrics.jsonl")
    log.write_text(log.read_text().replace("success_rate", "success_rat3"))
    status, told = sweep_here(finished, monkeypatch)
    assert status == 1
    assert "3 finished before, 1 DAMAGED" in told
    assert "4 runs: 3 DONE, 1 DAMAGED" in told
    assert f"DAMAGED {run_id}: {log}" in told
    assert f"python -m sweeps verify {run_id} " in told
    assert "A run without a copy of it runs again by the same command once its folder is moved out of runs\n" in told
    assert "rm --finished" not in told


def test_a_damaged_file_that_no_number_depends_on_has_its_own_remedy_everywhere(finished, monkeypatch, capsys):
    """`verify`, tables and the sweep advised to delete the finished run for an empty job.json."""
    assert sweep_here(finished, monkeypatch)[0] == 0
    folder = RunFolder(Path("runs", list(finished.runs)[1]))
    folder.job.write_bytes(b"")
    answer = (
        f"{folder.job} is damaged: Expecting value: line 1 column 1 (char 0). No result depends on it. Delete it if "
        "the scheduler has no such job, then start the sweep again. The run is finished, and its metrics.jsonl is whole"
    )
    status, told = sweep_here(finished, monkeypatch)
    assert (status, f"DAMAGED {folder.run_id}: {answer}\n" in told) == (1, True)
    assert verify.problems(folder) == [answer]
    (row,) = statuses([folder], Observer(FakeSlurm()))
    assert (row.state, row.remark) == (State.DAMAGED, answer)
    assert f"left out: {folder.run_id}: {answer}\n" in experiment_table(Path("runs"), "ablation_monotonicity")
    words = [*fake.QUICK, "launcher.slots=2", "seeds=[0,1]", "dry_run=true"]
    capsys.readouterr()
    dispatch.preview(Console(width=500), read_request(["+experiment=ablation_monotonicity", *words]), ROOT / "train.py")
    shown = f"leave (DAMAGED; `python -m sweeps verify {folder.run_id}` names the damage and what to do)"
    assert shown in capsys.readouterr().out
    folder.job.unlink()
    assert sweep_here(finished, monkeypatch)[0] == 0


def test_a_half_deleted_run_has_one_state_and_one_answer_everywhere(finished, monkeypatch, capsys):
    run_id = list(finished.runs)[1]
    for name in ("config.yaml", "status.json"):
        Path("runs", run_id, name).unlink()
    answer = (
        f"cannot read record runs/{run_id}/config.yaml: No such file or directory. Restore the file from a copy, or "
        "move the run folder away to start that run again"
    )
    status, told = sweep_here(finished, monkeypatch)
    assert (status, f"DAMAGED {run_id}: {answer}\n" in told) == (1, True)
    table = experiment_table(Path("runs"), "ablation_monotonicity")
    assert f"{run_id} is DAMAGED\n" in table
    assert f"left out: {run_id}: {answer}\n" in table
    rows = {row.run_id: row for row in statuses(fake.folders("runs"), Observer(FakeSlurm()))}
    assert (rows[run_id].state, rows[run_id].remark) == (State.DAMAGED, answer)
    words = [*fake.QUICK, "launcher.slots=2", "seeds=[0,1]", "dry_run=true"]
    dispatch.preview(Console(width=500), read_request(["+experiment=ablation_monotonicity", *words]), ROOT / "train.py")
    assert "leave (DAMAGED; " in capsys.readouterr().out


def test_the_table_of_a_dry_run_names_runs_that_this_machine_would_refuse(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("sweeps.resources.installed_gpus", lambda: [("Card", 23.99)])
    words = ["scale=paper", "trainer=verl_1gpu", "method=scpo,plain", "seeds=[0]", f"machine.runs_dir={tmp_path}"]
    request = read_request(["+experiment=one", *words, "dry_run=true"])
    dispatch.preview(Console(width=500), request, ROOT / "train.py")
    shown = capsys.readouterr().out
    would = {line.split()[0]: line.strip() for line in shown.splitlines() if " NEW " in line}
    assert would["SCPO"].endswith("be refused here (see the note)")
    assert would["Plain"].endswith("start (first start)")
    assert "note: would be refused: 1.5B with trainer=verl needs about 44 GiB" in shown
    # The cost is the same on a machine that has the GPUs.
    assert "about 56 GPU-hours, of which 56 still to start" in shown


@pytest.mark.parametrize("model", ["[qwen2_5_1_5b]", "[qwen2_5_1_5b,qwen2_5_7b]"])
def test_sweep_and_dry_run_agree_that_verl_needs_a_gpu_next_to_prompting_rows(tmp_path, monkeypatch, capsys, model):
    """The dry run had "start" in all rows, and the sweep started runs that could only fail."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("sweeps.resources.installed_gpus", list)
    # A machine that has verl, data and models.
    monkeypatch.setattr(dispatch, "refuse_what_cannot_start", lambda _: None)
    monkeypatch.setattr(dispatch, "obstacles", lambda *_, **__: [])
    words = ["scale=paper", "trainer=verl_1gpu", f"model={model}", "env=[alfworld]", "seeds=[0]"]
    words += ["rows=[plain,scpo]", f"machine.runs_dir={tmp_path / 'runs'}"]
    matrix = expand("main_table", words)
    refusal = (
        "1.5B with method=scpo wants 1 GPU (trainer.verl.gpus x nodes), this machine shows none; here: "
        "trainer=verl_cpu (for tests); on a cluster: launcher=slurm_a800x4"
    )
    with pytest.raises(ConfigError) as refused:
        dispatch.dispatch(Console(file=io.StringIO()), matrix, ROOT / "train.py")
    assert str(refused.value) == refusal
    assert not (tmp_path / "runs").exists()

    request = read_request(["+experiment=main_table", *words, "dry_run=true"])
    dispatch.preview(Console(width=500), request, ROOT / "train.py")
    shown = capsys.readouterr().out
    assert f"note: would be refused on this machine: {refusal}\n" in shown
    rows = [line.strip() for line in shown.splitlines() if " NEW " in line]
    assert len(rows) == len(matrix.runs)
    assert all(row.endswith("be refused here (see the note)") for row in rows)


def test_finished_runs_of_verl_keep_no_prompting_run_from_a_machine_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("sweeps.resources.installed_gpus", list)
    words = ["scale=paper", "trainer=verl_1gpu", "method=scpo,plain", "seeds=[0]", f"machine.runs_dir={tmp_path}"]
    matrix = expand("one", words)
    checked = []
    monkeypatch.setattr(dispatch, "refuse_what_cannot_start", checked.extend)
    monkeypatch.setattr(dispatch, "_run_here", lambda *_: ({}, True))
    trained = next(config for config in matrix.runs.values() if config.method.kind == "trained")
    run_config.ensure(trained).update_status(state=State.DONE)
    dispatch.dispatch(Console(file=io.StringIO()), matrix, ROOT / "train.py")
    assert [config.method.kind for config in checked] == ["prompted"]


def test_a_dry_run_at_the_papers_scale_names_what_the_sweep_would_refuse(tmp_path, monkeypatch, capsys):
    """It named the doctor only; with a missing key it named nothing at any scale."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setattr("sweeps.start_checks.installed_version", lambda name: None if name == "verl" else "1")
    monkeypatch.setattr("sweeps.start_checks.importlib.util.find_spec", lambda name: None)
    words = ["scale=paper", "trainer=verl_1gpu", "model=[qwen2_5_1_5b]", "env=[alfworld]", "seeds=[0]"]
    words += ["rows=[gpt_4o,plain,scpo]", f"machine.runs_dir={tmp_path / 'runs'}"]
    dispatch.preview(Console(width=500), read_request(["+experiment=main_table", *words]), ROOT / "train.py")
    shown = capsys.readouterr().out
    noted = {line.removeprefix("note: would not start here: ") for line in shown.splitlines() if "not start" in line}
    matrix = expand("main_table", words)
    with pytest.raises(ConfigError) as refused:
        dispatch.dispatch(Console(file=io.StringIO()), matrix, ROOT / "train.py")
    no_key = "model GPT-4o: OPENAI_API_KEY is not set; fix: export OPENAI_API_KEY=<your key>"
    assert noted | {no_key} == set(str(refused.value).splitlines())
    assert "note: not set here: OPENAI_API_KEY; export OPENAI_API_KEY=<your key>" in shown
    assert any(": verl is not installed; fix: " in line for line in noted)


RECORDS = (
    "config.yaml", "identity.yaml", "status.json", "panels.json", "provenance.json", "metrics.jsonl", "timing.jsonl",
)  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("content", [None, "{"], ids=["lost", "cut"])
def test_status_dry_run_sweep_verify_and_table_agree_about_a_damaged_record(finished, monkeypatch, name, content):
    folder = RunFolder(Path("runs", list(finished.runs)[1]))
    path = folder.path / name
    path.unlink() if content is None else path.write_text(content)
    (row,) = statuses([folder], Observer(FakeSlurm()))
    assert row.state is State.DAMAGED
    assert dispatch._observed(folder, Observer(FakeSlurm())).state is State.DAMAGED
    shown = sweep_here(finished, monkeypatch)[1]
    assert "3 finished before, 1 DAMAGED" in shown
    assert any(name in problem for problem in verify.problems(folder))
    table = experiment_table(Path("runs"), "ablation_monotonicity")
    assert f"{folder.run_id} is DAMAGED\n" in table
    assert "1/2" in table


def test_records_of_another_run_are_found_everywhere(finished, monkeypatch):
    other, folder = (RunFolder(Path("runs", run)) for run in list(finished.runs)[:2])
    for name in ("metrics.jsonl", "timing.jsonl", "status.json"):
        shutil.copy(other.path / name, folder.path / name)
    before = folder.status.read_bytes()
    answer = (
        f"{folder.status} is of the run {other.run_id}: it was copied from there, or the folder was renamed. Restore "
        "this run's own status.json and the logs that belong to it; or move the run folder away to start the run again"
    )
    (row,) = statuses([folder], Observer(FakeSlurm()))
    assert (row.state, row.remark) == (State.DAMAGED, answer)
    assert dispatch._observed(folder, Observer(FakeSlurm())).state is State.DAMAGED
    assert f"DAMAGED {folder.run_id}: {answer}\n" in sweep_here(finished, monkeypatch)[1]
    assert verify.problems(folder) == [answer]
    assert f"left out: {folder.run_id}: {answer}\n" in experiment_table(Path("runs"), "ablation_monotonicity")
    with pytest.raises(RecordError, match="is of the run"):
        attempt.run(folder, fake_train.train)
    assert folder.status.read_bytes() == before
    monkeypatch.setattr(housekeeping, "Slurm", FakeSlurm)
    assert cli.main(["rm", "--finished", "--yes", folder.run_id]) == 0
    assert (folder.path.exists(), other.path.exists()) == (False, True)


def test_a_run_folder_may_be_copied_elsewhere_and_records_without_an_id_are_read(tmp_path):
    folder = fake.make_run(tmp_path / "runs")
    attempt.run(folder, fake_train.train)
    moved = RunFolder(shutil.copytree(folder.path, tmp_path / "elsewhere" / folder.run_id, symlinks=True))
    assert verify.problems(moved) == []
    for path in (moved.status, moved.provenance):
        record = read_json(path)
        assert record.pop("run") == folder.run_id
        write_json(path, record)
    assert verify.problems(moved) == []
    assert moved.read_status().run is None


def test_a_record_of_attempts_of_another_run_is_damage(tmp_path):
    one, other = (fake.make_run(tmp_path, f"seed={seed}") for seed in (0, 1))
    for folder in (one, other):
        attempt.run(folder, fake_train.train)
    shutil.copy(one.provenance, other.provenance)
    (problem,) = verify.problems(other)
    assert problem.startswith(f"{other.provenance} is of the run {one.run_id}: ")


def test_a_stopped_run_with_damaged_checkpoints_only_is_damaged_everywhere_and_not_started(tmp_path):
    folder = fake.make_run(tmp_path)
    attempt.run(folder, fake_train.train)
    folder.update_status(state=State.INTERRUPTED)
    for step in folder.complete_checkpoints():
        weights = folder.checkpoint(step) / "weights.bin"
        weights.write_bytes(b"weights")
        folder.mark_complete(step, {"weights.bin": file_sum(weights)}, {})
        weights.write_bytes(b"weight")
    newest = folder.complete_checkpoints()[-1]
    (row,) = statuses([folder], Observer(FakeSlurm()))
    assert row.state is State.DAMAGED
    assert f"and no other one is whole. Restore its files; or move {folder.checkpoints} " in row.remark
    assert f"begins anew from step 0, which loses {newest} steps" in row.remark
    assert row.remark in verify.problems(folder)
    seen = dispatch._observed(folder, Observer(FakeSlurm()))
    assert (seen.state, decide(seen, 3).action) == (State.DAMAGED, Action.LEAVE)
    assert verify.begins_anew(folder) is None
    shutil.rmtree(folder.checkpoints)
    assert verify.problems(folder) == []
    assert "has no checkpoint: a run that goes on begins anew from step 0" in verify.begins_anew(folder)
    assert dispatch._observed(folder, Observer(FakeSlurm())).state is State.INTERRUPTED


def test_a_stopped_run_whose_checkpoints_lost_their_markers_is_damaged_everywhere_and_not_started(tmp_path):
    folder = fake.make_run(tmp_path)
    attempt.run(folder, fake_train.train)
    folder.update_status(state=State.INTERRUPTED)
    steps = folder.complete_checkpoints()
    for step in steps:
        (folder.checkpoint(step) / "weights.bin").write_bytes(b"weights")
        (folder.checkpoint(step) / "COMPLETE").unlink()
    records = [path.read_bytes() for path in (folder.metrics, folder.code)]
    answer = str(folder.all_damaged(steps[-1], f"{folder.checkpoint(steps[-1])}/COMPLETE is lost"))
    assert attempt.run(folder, fake_train.train) == attempt.EXIT_FAILED
    status = folder.read_status()
    assert (status.state, status.step, status.reason) == (State.FAILED, 4, f"not resumed: RecordError: {answer}")
    assert [path.read_bytes() for path in (folder.metrics, folder.code)] == records
    assert all((folder.checkpoint(step) / "weights.bin").exists() for step in steps)
    (row,) = statuses([folder], Observer(FakeSlurm()))
    assert (row.state, row.remark) == (State.DAMAGED, answer)
    assert verify.problems(folder) == [answer]
    assert dispatch._observed(folder, Observer(FakeSlurm())).state is State.DAMAGED
    assert verify.begins_anew(folder) is None


def test_runs_that_slurm_does_not_take_are_told_with_the_states_of_status(submitted):
    matrix, slurm = submitted
    # Their jobs are gone without a word.
    slurm.queue.clear()
    slurm.job_limits = JobLimits(submitted=0)
    pool = cluster.Cluster(dispatch.launcher_of(matrix), Path("runs"), slurm, slurm, outside=lambda: False)
    runs = {name: (RunFolder(Path("runs") / name), config) for name, config in matrix.runs.items()}
    with pytest.raises(ConfigError, match=r"Not submitted: 4 runs \(4 LOST\)$"):
        pool.submit_all(runs, "table")
