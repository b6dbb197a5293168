"""Slurm launcher: submit the missing runs and exit, or submit single runs for a search."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from rich.console import Console
from rich.table import Table

from scpo.errors import ConfigError, RecordError
from scpo.progress import counted
from scpo.records import RunFolder, State
from scpo.records.provenance import key_variables
from scpo.schema.run import RunConfig, SlurmLauncher
from scpo.stop_signals import CountsSignals
from sweeps.launchers.run_process import Outcome
from sweeps.launchers.slurm.cluster_settings import (
    IN_THE_SHELL,
    MORE_MEMORY,
    Site,
    read_site,
)
from sweeps.launchers.slurm.job_limits import JobLimits
from sweeps.launchers.slurm.node_probe import ask_node
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.reachable import (
    Probe,
    check_on_node,
    check_reachable,
    is_outside,
    missing_models,
    needs_of_jobs,
)
from sweeps.launchers.slurm.refusal import RefusedError
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.launchers.slurm.snapshot import freeze, locate
from sweeps.launchers.slurm.submission import (
    Array,
    Request,
    Sbatch,
    Submission,
    arrays_of,
    by_request,
    call_sbatch,
    folder_of_submissions,
    limit_notes,
    new_folder,
    probed_partitions,
    sbatch_text,
    submit,
)
from sweeps.resources import idle_gpus
from sweeps.terminal import say, wide


def make_launcher(configs: Sequence[RunConfig], _train_script: Path, console: Console) -> "Cluster":
    """See :func:`sweeps.launchers.base.open_launcher`."""
    first = configs[0]
    assert isinstance(first.launcher, SlurmLauncher)  # noqa: S101 (for mypy: named by the registry)
    return Cluster(
        first.launcher, Path(first.machine.runs_dir), Slurm(), call_sbatch, console=console
    )


@dataclass
class Cluster(CountsSignals):
    """Submits runs as jobs, which outlive this process.

    A search uses it like ``sweeps.launchers.local.Pool``: as a context manager with
    ``launcher.parallelism`` slots. ``stop`` does not cancel jobs.
    """

    detached: ClassVar[bool] = True

    launcher: SlurmLauncher
    runs_dir: Path
    scheduler: Slurm
    sbatch: Sbatch
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    sleep: Callable[[float], None] = time.sleep
    # Each poll calls squeue once, which a busy cluster answers slowly.
    poll_s: float = 20.0
    console: Console = field(default_factory=Console)
    probe: Probe = ask_node
    outside: Callable[[], bool] = is_outside
    _running: dict[str, RunFolder] = field(default_factory=dict)
    # Partitions of which a node was probed, and notes that were printed: a search submits many
    # times, but each of them is needed once.
    _probed: set[str | None] = field(default_factory=set)
    _noted: set[str] = field(default_factory=set)

    @property
    def site(self) -> Site:
        """The cluster's own settings."""
        return read_site(self.launcher.site)

    def submit_all(self, runs: Mapping[str, tuple[RunFolder, RunConfig]], title: str) -> list[str]:
        """Submit the runs as arrays of jobs with equal requests; returns the ids of the jobs.

        Raises:
            ConfigError: A node cannot read or write the files of its jobs; nothing was submitted.
            RefusedError: The scheduler rejected an array, or the account may have no more jobs. The
                message counts the runs that were submitted before.
        """
        configs = {run_id: config for run_id, (_, config) in runs.items()}
        limits = self._limits()
        arrays = self._arrays(configs, limits)
        check_reachable(self.runs_dir)
        # Jobs may start days later, when the working tree has changed.
        secret_names = frozenset(key_variables(configs.values()))
        snapshot = freeze(self.runs_dir, secret_names)
        # Counted before the probe, whose own job would count for a while.
        allowed = self._further_jobs(limits)
        self._check_nodes([array.request for array in arrays], snapshot)

        # Job ids of the submitted runs, one for each.
        ids: list[str] = []
        try:
            for array in arrays:
                # Runs beyond the account's limit stay PENDING; the next call submits them.
                fitting = array.run_ids
                if allowed is not None:
                    fitting = fitting[: allowed - len(ids)]
                if fitting:
                    folders = [runs[run_id][0] for run_id in fitting]
                    folder = new_folder(self.runs_dir, title)
                    submission = self._submission(folder, folders, array, snapshot)
                    ids += submit(replace(submission, secret_names=secret_names), self.sbatch)
                if len(fitting) < len(array.run_ids):
                    raise RefusedError(
                        f"the account may have {limits.submitted} jobs queued and running (Slurm's "
                        "MaxSubmitJobs), and has them all; give the same command again when some "
                        "have ended"
                    )
        except RefusedError as error:
            text = f"{error}. {self._not_submitted(runs, len(ids))}"
            if ids:
                text += f"; submitted before that: {counted(len(ids), 'run')}"
            raise RefusedError(text) from None
        return ids

    def _not_submitted(
        self, runs: Mapping[str, tuple[RunFolder, RunConfig]], submitted: int
    ) -> str:
        """Number of the runs without a new job, with the states that ``status`` shows."""
        observer = Observer(self.scheduler, self.sleep)
        states: Counter[State] = Counter()
        for folder, _ in runs.values():
            # Damaged records are reported elsewhere.
            with contextlib.suppress(RecordError):
                states[observer.observe(folder).state] += 1
        # The submitted runs are QUEUED now; runs in these states have no job.
        shown = [f"{states[state]} {state}" for state in sorted(states) if state.startable]
        text = f"Not submitted: {counted(len(runs) - submitted, 'run')}"
        return f"{text} ({', '.join(shown)})" if shown else text

    def _check_nodes(self, requests: Sequence[Request], snapshot: Path) -> None:
        """Probe a node of each partition that this launcher has not probed yet."""
        wait_s = self.launcher.probe_s
        if not wait_s or {request.partition for request in requests} <= self._probed:
            return
        if not self.outside():
            return
        needs = needs_of_jobs(self.runs_dir, snapshot)
        for partition in probed_partitions(requests, self.site):
            if partition.name not in self._probed:
                say(self.console, f"asking a node of {partition}, for at most {wait_s} s ...")
                say(self.console, check_on_node(partition, needs, wait_s, self.probe))
                self._probed.add(partition.name)

    def _limits(self) -> JobLimits:
        site = self.site
        return self.scheduler.limits(site.account, site.qos)

    def _arrays(self, configs: Mapping[str, RunConfig], limits: JobLimits) -> list[Array]:
        """Arrays of runs with equal requests, within the limits of cluster and launcher."""
        requests = by_request(configs, self.launcher, self.site)
        self._note_problems(configs, requests)
        return arrays_of(requests, self.launcher.parallelism, limits)

    def _note_problems(
        self, configs: Mapping[str, RunConfig], requests: Mapping[Request, Sequence[str]]
    ) -> None:
        """Print notes on time limits, GPUs, memory, secrets and models, each once."""
        site = self.site
        longest = site.max_time_h
        asked = self.launcher.time_h
        if asked is not None and asked > longest:
            self._note(
                f"launcher.time_h={asked:g} is cut to {longest:g} h, max_time_h of "
                f"{self.launcher.site}: a run that needs longer is requeued from its checkpoint"
            )
        for note in limit_notes(requests, configs, self.launcher, site):
            self._note(note)
        for note in idle_gpus(configs.values()):
            self._note(note)
        most_gb = max((request.resources.memory_gb for request in requests), default=0)
        if shortage := site.memory_shortage(most_gb):
            self._note(f"{self.launcher.site}: {shortage}; {MORE_MEMORY}")
        if secrets := site.secrets_in_clear(key_variables(configs.values())):
            self._note(f"{self.launcher.site}: {secrets}; {IN_THE_SHELL}")
        for missing in missing_models(configs.values()):
            self._note(missing)

    def _note(self, text: str) -> None:
        """Print a note, unless it was printed before."""
        if text not in self._noted:
            self._noted.add(text)
            say(self.console, f"note: {text}")

    def _further_jobs(self, limits: JobLimits) -> int | None:
        """Number of further jobs that the account may have; None: no limit."""
        if limits.submitted is None:
            return None
        # Jobs of other projects count against the same limit.
        return max(0, limits.submitted - len(self.scheduler.jobs() or {}))

    def planned(self, configs: Mapping[str, RunConfig]) -> Iterator[Submission]:
        """The submissions that these runs would make. Writes nothing, not even their folders.

        Raises:
            ConfigError: sbatch would misread the path of the folder.
        """
        place = folder_of_submissions(self.runs_dir) / "to-be-made"
        snapshot = locate(self.runs_dir)
        for array in self._arrays(configs, self._limits()):
            folders = [RunFolder(self.runs_dir / run_id) for run_id in array.run_ids]
            yield self._submission(place, folders, array, snapshot)

    def _submission(
        self, folder: Path, runs: Sequence[RunFolder], array: Array, snapshot: Path
    ) -> Submission:
        return Submission(
            folder=folder,
            runs=tuple(runs),
            request=array.request,
            launcher=self.launcher,
            site=self.site,
            snapshot=snapshot,
            running=array.running,
        )

    @property
    def free(self) -> int:
        """Number of further single runs that may be submitted now."""
        return self.launcher.parallelism - len(self._running)

    def check(self, configs: Sequence[RunConfig]) -> int:
        """Number of jobs that may run at a time; ConfigError if a run fits no job."""
        numbered = {str(number): config for number, config in enumerate(configs)}
        by_request(numbered, self.launcher, self.site)
        return self.launcher.parallelism

    def preview(self, console: Console, configs: Mapping[str, RunConfig]) -> None:
        """Show the arrays of jobs and the sbatch script of the first one.

        Raises:
            ConfigError: A submission would be refused. If its arrays are too many for
                ``launcher.parallelism``, they are shown first.
        """
        refused = None
        try:
            submissions = list(self.planned(configs))
        except ConfigError as error:
            refused = error
            # As many jobs at a time as there are runs suffice for any number of arrays. The copy
            # shares ``_noted``, so that no note is printed twice.
            enough = self.launcher.model_copy(update={"parallelism": len(configs)})
            submissions = list(replace(self, launcher=enough).planned(configs))
        show_submissions(console, submissions, key_variables(configs.values()))
        if refused is not None:
            raise refused

    def start(self, runs: Mapping[str, tuple[RunFolder, RunConfig]], title: str) -> list[str]:
        """Submit these runs; returns the ids of their jobs."""
        ids = self.submit_all(runs, title)
        self._running |= {run_id: folder for run_id, (folder, _) in runs.items()}
        return ids

    def poll(self) -> dict[str, Outcome]:
        """Query the states of the started runs; returns those that ended since the last call."""
        observer = Observer(self.scheduler, self.sleep)
        ended = {}
        for run_id, folder in list(self._running.items()):
            state = observer.observe(folder).state
            if not state.live:
                del self._running[run_id]
                status = folder.read_status()
                # LOST: the job ended without recording how.
                end = State.FAILED if state is State.LOST else state
                ended[run_id] = Outcome(end, status.reason, folder.attempt_log(status.attempt))
        self.outcomes |= ended
        return ended

    def stop(self) -> None:
        """Do nothing: the jobs continue without this process."""


def show_submissions(
    console: Console, submissions: Sequence[Submission], secret_names: Collection[str] = ()
) -> None:
    """Show a table of the job arrays and the sbatch script of the first one, without secrets.

    ``secret_names``: variables that are secret although their names do not show it.
    """
    if not submissions:
        return
    columns = ("jobs", "at a time", "nodes", "GPUs", "CPUs", "memory", "limit", "partition", "runs")
    table = Table(
        *columns, title="arrays of jobs, each of which asks for", title_justify="left", box=None
    )
    for submission in submissions:
        table.add_row(*_row(submission))
    console.print()
    wide(console).print(table)
    others = "; the other arrays differ in what the table shows" if len(submissions) > 1 else ""
    first = submissions[0]
    jobs = f"{counted(len(first.runs), 'job')} of at most {first.request.limit_h} h"
    say(console, f"\n{jobs}; sbatch would read{others}:")
    say(console, sbatch_text(replace(first, site=first.site.redacted(secret_names))))


def _row(submission: Submission) -> list[str]:
    request = submission.request
    needed = request.resources
    others = len(submission.runs) - 1
    more = f" and {others} more" if others else ""
    return [
        str(len(submission.runs)),
        str(submission.running),
        str(needed.nodes),
        str(needed.gpus),
        str(needed.cpus),
        _memory(submission),
        f"{request.limit_h} h",
        request.partition or "(default)",
        f"{submission.runs[0].run_id}{more}",
    ]


def _memory(submission: Submission) -> str:
    flag = submission.site.memory_flag(submission.request.resources.memory_gb)
    if flag is None:
        return "(default)"
    # Slurm's own meaning of --mem=0.
    if flag == "0":
        return "whole node"
    # 65536M is 64 GB.
    return f"{int(flag[:-1]) / 1024:g} GB"
