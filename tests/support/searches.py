"""Searches on a fake objective, in this process and without any training."""

from scpo.records import JsonLines, State
from sweeps.launchers.run_process import Outcome
from sweeps.search.driver import Driver
from sweeps.search.plan import make_plan
from sweeps.search.study import Study
from tests.faults.fake_objective import OBJECTIVE, success
from tests.support.fake_runs import QUICK


def plan_in(runs_dir, *words, name="scpo_theta_lambda"):
    """A search whose runs lie under ``runs_dir``."""
    return make_plan(name, [*QUICK, f"machine.runs_dir={runs_dir}", *words])


class InstantLauncher:
    """Ends every run in the call that starts it; ``fate`` may say how: (run id, attempt) -> State."""

    poll_s = 0.0

    def __init__(self, free=4, fate=lambda run_id, attempt: State.DONE, steps=None):
        self.free, self.fate, self.steps = free, fate, steps
        self.signals = 0
        self.started = []
        self._ended = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start(self, runs, _title):
        for folder, config in runs.values():
            self._run(folder, config)
        return []

    def _run(self, folder, config):
        attempt = folder.new_attempt()
        self.started.append(folder.run_id)
        state = self.fate(folder.run_id, attempt)
        if state is State.DONE:
            metrics = JsonLines(folder.metrics)
            for step in self.steps or range(config.trainer.steps + 1):
                metrics.append({"step": step, OBJECTIVE: success(config, step)})
            metrics.close()
        folder.update_status(state=state, attempt=attempt, reason="on purpose" if state is State.FAILED else None)
        self._ended[folder.run_id] = Outcome(state, "on purpose" if state is State.FAILED else None)

    def poll(self):
        ended, self._ended = self._ended, {}
        return ended

    def stop(self):
        pass


def drive(plan, launcher=None):
    """Run a search to its end; returns its trials and what was said."""
    said = []
    study = Study(plan)
    try:
        Driver(plan, study, launcher or InstantLauncher(), said.append).run()
        return study.trials(), said
    finally:
        study.close()
