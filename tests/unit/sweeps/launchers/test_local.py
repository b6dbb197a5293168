import io
import os
import signal
import time
from pathlib import Path

import pytest
from rich.console import Console

from scpo.errors import ConfigError
from scpo.records import JsonLines, State, run_config
from scpo.records.files import locked
from scpo.records.memory import usable_cores
from sweeps.launchers.base import follow
from sweeps.launchers.local import Pool
from sweeps.launchers.run_process import RunProcess
from sweeps.records.attempt import run as run_here
from sweeps.records.process import EXIT_DONE, EXIT_INTERRUPTED
from sweeps.resources import refused_runs, slots_for
from tests.faults import fake_train
from tests.support import fake_runs as fake


class Board:
    def __init__(self):
        self.seen = []

    def started(self, folder, config):
        self.seen.append(("started", folder.run_id))

    def progress(self, folder, step, success):
        self.seen.append(("progress", folder.run_id, step, success))

    def doing(self, folder, what):
        self.seen.append(("doing", folder.run_id, what))

    def stopping(self, runs, seconds):
        self.seen.append(("stopping", runs))

    def ended(self, folder, outcome):
        self.seen.append(("ended", folder.run_id, outcome.state))


def run(tmp_path, script, seeds=(0,), slots=1):
    made = [fake.make_run(tmp_path, f"seed={seed}") for seed in seeds]
    pool = Pool(script, [None] * slots, Board())
    _, completed = follow(pool, {folder.run_id: (folder, run_config.read_config(folder)) for folder in made}, "")
    return completed, pool, made


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


def slots(runs, *words):
    return slots_for([fake.compose_run(list(words))] * runs)


def test_without_gpus_slots_are_one_for_each_thread_count_of_cores_at_most_one_a_run(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cores = usable_cores()
    assert slots(1000) == [None] * cores
    assert slots(1) == [None]
    assert slots(5, f"machine.threads={cores + 1}") == [None]
    assert slots(5, "launcher.slots=3") == [None] * 3


def test_visible_gpus_are_handed_out(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5,GPU-7")
    assert slots(9) == ["2", "3", "5", "GPU-7"]
    assert slots(1) == ["2"]
    assert slots(9, "launcher.gpus_per_run=2") == ["2,3", "5,GPU-7"]
    assert slots(9, "launcher.gpus_per_run=3") == ["2,3,5"]
    assert slots(9, "launcher.gpus_per_run=4", "launcher.slots=2") == ["2,3,5,GPU-7"] * 2
    assert slots(9, "machine.device=cpu")[0] is None
    with pytest.raises(ConfigError, match=r"gpus_per_run=5: this machine shows 4 GPUs \(2, 3, 5, GPU-7\)"):
        slots(9, "launcher.gpus_per_run=5")


def test_a_run_gets_all_its_gpus_or_is_told_which_command_fits(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert slots(9, "scale=paper") == ["0,1,2,3"]
    assert slots(9, "scale=paper", "trainer=verl_1gpu") == ["0", "1", "2", "3"]
    assert slots(9, "scale=paper", "trainer.verl.gpus=2") == ["0,1", "2,3"]
    with pytest.raises(ConfigError, match=r"gpus_per_run=1, and a run with trainer\.verl\.gpus=4 needs 4"):
        slots(9, "scale=paper", "launcher.gpus_per_run=1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(
        ConfigError, match=r"wants 4 GPUs .*, this machine shows 2 GPUs \(0, 1\); here: trainer=verl_1gpu"
    ):
        slots(9, "scale=paper")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="this machine shows none; here: trainer=verl_cpu"):
        slots(1, "scale=paper")
    assert slots(1, "trainer=verl_cpu") == [None]


def test_rows_that_need_fewer_gpus_share_a_table_with_those_that_need_most(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    rows = [fake.compose_run(["scale=paper", *words]) for words in (["method=plain"], ["method=scpo"])]
    assert slots_for(rows) == ["0,1,2,3"]


@pytest.mark.parametrize("methods", [("plain", "scpo"), ("scpo", "plain"), ("plain", "react", "ppo", "scpo")])
def test_rows_of_verl_are_refused_without_a_gpu_next_to_prompting_rows_that_do_without(monkeypatch, methods):
    """The first of the runs that want most GPUs decided for all, and a prompting row came first."""
    monkeypatch.setattr("sweeps.resources.installed_gpus", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["scale=paper", "trainer=verl_1gpu"]
    configs = {name: fake.compose_run([*words, f"method={name}"]) for name in methods}
    trained = next(name for name in methods if name in ("ppo", "scpo"))
    with pytest.raises(ConfigError, match=f"^1.5B with method={trained} wants 1 GPU .*, this machine shows none"):
        slots_for(list(configs.values()))
    note, _ = notes(configs)
    assert note.startswith(f"note: would be refused on this machine: 1.5B with method={trained} wants 1 GPU")
    assert refused_runs(configs) == set(methods)

    prompted = [config for config in configs.values() if config.method.kind == "prompted"]
    assert set(slots_for(prompted)) == {None}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert slots_for(list(configs.values())) == ["0"]


def test_each_run_sees_the_gpus_of_its_slot(tmp_path):
    made = [fake.make_run(tmp_path / "runs", f"seed={seed}") for seed in (0, 1)]
    path = script(tmp_path, "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(0.3)")
    follow(Pool(path, ["4", "6"], Board()), {one.run_id: (one, run_config.read_config(one)) for one in made}, "")
    assert sorted(one.attempt_log(1).read_text() for one in made) == ["4\n", "6\n"]


def test_who_decides_later_what_to_run_starts_runs_as_slots_get_free(tmp_path):
    made = [fake.make_run(tmp_path, f"seed={seed}") for seed in range(3)]
    waiting, ended = list(made), {}
    with Pool(fake.FAULTS / "fake_train.py", [None, None], Board()) as pool:
        while len(ended) < 3:
            while pool.free and waiting:
                folder = waiting.pop()
                pool.start({folder.run_id: (folder, run_config.read_config(folder))})
            assert len(pool.outcomes) + 2 - pool.free + len(waiting) == 3
            ended |= pool.poll()
            time.sleep(0.02)
    assert {run_id: one.state for run_id, one in ended.items()} == {one.run_id: State.DONE for one in made}


def test_a_run_that_is_cancelled_while_it_waits_for_a_slot_is_not_started(tmp_path):
    folders = [fake.make_run(tmp_path / "runs", f"seed={seed}") for seed in (0, 1)]
    text = (
        "import sys\n"
        "from scpo.records import RunFolder\n"
        "from sweeps.records.cancellation import cancel\n"
        f"assert cancel(RunFolder({str(folders[1].path)!r}))\n"
        "RunFolder(sys.argv[1]).update_status(state='DONE', attempt=1)\n"
    )
    pool = Pool(script(tmp_path, text), [None], Board())
    outcomes, _ = follow(pool, {one.run_id: (one, run_config.read_config(one)) for one in folders}, "")
    assert (outcomes[folders[1].run_id].state, outcomes[folders[1].run_id].reason) == (State.CANCELLED, "cancelled")
    assert [event[1] for event in pool.board.seen if event[0] == "started"] == [folders[0].run_id]
    assert not folders[1].attempt(1).exists()


def test_lines_of_a_killed_attempt_are_no_progress_of_the_present_one(tmp_path):
    """A sweep showed "step 8 of 13; train success 0.32" of a run that had just begun anew."""
    text = (
        "import sys, time\n"
        "from scpo.records import JsonLines, RunFolder, State\n"
        "folder = RunFolder(sys.argv[1])\n"
        "time.sleep(0.3)\n"
        "folder.update_status(state=State.RUNNING, attempt=2, step=0)\n"
        "time.sleep(0.3)\n"
        "JsonLines(folder.metrics).replace(b'')\n"
        "JsonLines(folder.metrics).append({'step': 1, 'train/success_rate': 0.5})\n"
        "folder.update_status(step=1)\n"
        "time.sleep(0.3)\n"
    )
    folder = fake.make_run(tmp_path / "runs")
    folder.update_status(state=State.RUNNING, attempt=1, step=3)
    for step in range(4):
        JsonLines(folder.metrics).append({"step": step, "train/success_rate": 0.25})
    pool = Pool(script(tmp_path, text), [None], Board())
    follow(pool, {folder.run_id: (folder, run_config.read_config(folder))}, "")
    shown = {event for event in pool.board.seen if event[0] == "progress"}
    assert shown == {("progress", folder.run_id, 1, 0.5)}


def test_one_slot_runs_one_after_the_other_and_shows_each_end(tmp_path):
    completed, pool, (a, b) = run(tmp_path / "runs", fake.FAULTS / "fake_train.py", seeds=(0, 1))
    assert completed
    events = [event for event in pool.board.seen if event[0] in ("started", "ended")]
    assert events == [
        *(("started", a.run_id), ("ended", a.run_id, State.DONE)),
        *(("started", b.run_id), ("ended", b.run_id, State.DONE)),
    ]
    assert ("progress", b.run_id, 4, (4 / 7 + 1) / 100) in pool.board.seen


def test_a_process_that_dies_before_its_first_line_gives_its_last_words(tmp_path):
    path = script(tmp_path, "raise SystemExit('no module named games')")
    _, pool, (folder,) = run(tmp_path / "runs", path)
    outcome = pool.outcomes[folder.run_id]
    assert (outcome.state, outcome.reason) == (State.FAILED, "ended with exit status 1: no module named games")
    assert folder.read_status().reason == outcome.reason


def test_a_process_that_kills_itself_is_named_with_its_signal(tmp_path):
    path = script(tmp_path, "import os; os.kill(os.getpid(), 9)")
    _, pool, (folder,) = run(tmp_path / "runs", path)
    assert pool.outcomes[folder.run_id].reason == "killed by SIGKILL"


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("first", ["run", "sweep"])
def test_a_signal_to_all_processes_while_a_run_starts_is_not_its_failure(tmp_path, monkeypatch, first, number):
    """It was FAILED, "killed by SIGTERM", if the signal reached it before the sweep."""
    told = []
    monkeypatch.setattr("sweeps.notify.notify", told.append)
    text = (
        "import os, signal, subprocess\n"
        f"command = ['sh', '-c', '{'sleep 0.3; ' if first == 'run' else ''}kill -{number[3:]} {os.getpid()}']\n"
        "process = subprocess.Popen(command, start_new_session=True)\n"
        f"{'' if first == 'run' else 'process.wait()'}\n"
        f"signal.signal(signal.{number}, signal.SIG_DFL)\n"
        f"os.kill(os.getpid(), signal.{number})\n"
    )
    completed, pool, (folder,) = run(tmp_path / "runs", script(tmp_path, text), slots=1)
    outcome, status = pool.outcomes[folder.run_id], folder.read_status()
    assert not completed
    assert (outcome.state, outcome.reason) == (
        State.INTERRUPTED, "stopped while it was loading; the same command goes on",
    )  # fmt: skip
    assert (status.state, status.failures, told) == (State.INTERRUPTED, 0, [])


def test_a_run_that_another_process_has_is_left_to_it(tmp_path):
    folder = fake.make_run(tmp_path)
    with locked(folder.lock):
        _, pool, _ = run(tmp_path, fake.FAULTS / "fake_train.py")
    assert pool.outcomes[folder.run_id].state is State.RUNNING
    assert folder.new_attempt() == 1


def test_of_two_launchers_at_once_the_attempt_is_counted_once(tmp_path):
    folder = fake.make_run(tmp_path)
    config = run_config.read_config(folder)
    script = fake.FAULTS / "fake_train.py"
    both = [RunProcess.start(folder, config, script, {}) for _ in range(2)]
    for process in both:
        process.process.wait(timeout=fake.HANG_S)
    assert fake.starts(folder) == 1
    assert (folder.read_status().state, folder.read_status().attempt) == (State.DONE, 1)
    assert len(list(folder.path.glob("attempt_*"))) == 1


def test_an_attempt_that_another_process_began_and_left_is_not_counted_as_its_own(tmp_path):
    folder = fake.make_run(tmp_path)
    ours = RunProcess(folder, folder.new_attempt(), None)
    assert run_here(folder, lambda *_: os.kill(os.getpid(), signal.SIGINT)) == EXIT_INTERRUPTED
    assert folder.read_status().attempt == 1
    assert run_here(folder, fake_train.train, ours.attempt) == EXIT_DONE
    assert (folder.read_status().attempt, len(folder.read_attempts())) == (2, 2)
    assert ours.outcome(EXIT_DONE, interrupted=False).state is State.DONE
    assert folder.attempt_log(2).exists()


def test_threads_of_the_config_reach_the_process(tmp_path):
    path = script(tmp_path, "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'])")
    _, _, (folder,) = run(tmp_path / "runs", path)
    assert folder.attempt_log(1).read_text() == "1 1\n"


def test_the_pool_gives_the_signal_handlers_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    run(tmp_path / "runs", script(tmp_path, ""))
    assert signal.getsignal(signal.SIGTERM) is before


def notes(configs):
    """Lines that a dry run shows about these runs."""
    out = io.StringIO()
    Pool(Path("train.py"), [], Board()).preview(Console(file=out, width=2000), configs)
    return out.getvalue().splitlines()


def test_a_dry_run_names_runs_that_no_gpu_of_the_paper_holds(monkeypatch):
    """As on Slurm; a machine without GPUs names itself and the size of the GPUs that it assumes."""
    monkeypatch.setattr("sweeps.resources.installed_gpus", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["scale=paper", "method=scpo", "trainer=verl_1gpu"]
    configs = {name: fake.compose_run([*words, f"model={name}"]) for name in ("qwen2_5_1_5b", "qwen2_5_7b")}
    here, note, assumed = notes(configs)
    assert here.startswith("note: would be refused on this machine: 1.5B with method=scpo wants 1 GPU (")
    assert "this machine shows none; here: trainer=verl_cpu (for tests)" in here
    assert note.startswith("note: would be refused: 7B with trainer=verl needs about 139 GiB of each GPU in the update")
    assert "a GPU has 79" in note
    assert "More trainer.verl.gpus, among which weights, gradients and optimizer are divided" in note
    assert assumed.startswith("note: memory is checked for GPUs of 80 GB, because this machine shows none")
    elsewhere = assumed.rpartition(": ")[2].split()
    assert fake.compose_run(["scale=paper", *elsewhere]).launcher.gpu_gb == 24
    assert refused_runs(configs) == set(configs)


def test_a_dry_run_names_runs_of_one_process_that_are_too_large_for_a_small_card(monkeypatch):
    """The doctor and the run refused them; the dry run had no note."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("sweeps.resources.installed_gpus", lambda: [("Card", 23.99)])
    words = ["scale=paper", "method=scpo", "trainer=local", "env.games=generated"]
    configs = {name: fake.compose_run([*words, f"model={name}"]) for name in ("qwen2_5_0_5b", "qwen2_5_1_5b")}
    (note,) = notes(configs)
    assert note.startswith(
        "note: would be refused: 1.5B with trainer=local needs about 42 GiB of each GPU in the update"
    )
    assert "a GPU has 24. A smaller model, or trainer=verl over several GPUs" in note
    assert refused_runs(configs) == {"qwen2_5_1_5b"}

    on_cpu = {"cpu": fake.compose_run([*words, "machine.device=cpu"])}
    assert (notes(on_cpu), refused_runs(on_cpu)) == ([], set())
    monkeypatch.setattr("sweeps.resources.installed_gpus", list)
    assert (notes(configs), refused_runs(configs)) == ([], set())


def test_memory_of_a_gpu_of_unknown_size_is_not_checked_and_a_dry_run_names_it(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("sweeps.resources.installed_gpus", lambda: [("NVIDIA GB10", None)])
    words = ["scale=paper", "method=scpo", "trainer=verl_1gpu", "model=qwen2_5_7b"]
    configs = {"7b": fake.compose_run(words)}
    (note,) = notes(configs)
    assert note.startswith("note: memory is not checked for NVIDIA GB10, for which nvidia-smi gives no size")
    assert refused_runs(configs) == set()
    assert notes({"study": fake.compose_run(["method=scpo", "scale=study"])}) == []


def test_one_gpu_is_missed_unless_vllm_is_built_for_the_cpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match=r"wants 1 GPU .*, this machine shows none; here: trainer=verl_cpu"):
        slots(1, "scale=paper", "trainer=verl_1gpu")
    monkeypatch.setattr("sweeps.resources.is_vllm_for_cpu", lambda: True)
    assert slots(1, "trainer=verl_cpu", "trainer.verl.engine=vllm") == [None]
    with pytest.raises(ConfigError, match=r"wants 4 GPUs .*, this machine shows none"):
        slots(1, "scale=paper")
