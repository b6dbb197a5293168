"""Checks of runs on GPUs: memory, hours, driver, flash-attn, cores, Ray, sockets, noun rule.

A check yields nothing if it does not concern these runs or this machine.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scpo.findings import Finding, error, ok, warning
from scpo.installed import installed_version
from scpo.memory import FULL_SHARE, gpu_table, needed_gib, remedy, shortage
from scpo.progress import counted
from scpo.records.memory import driver_version, installed_gpus, smallest_gib, usable_cores
from scpo.schema.env import WebshopConfig
from scpo.schema.model import HuggingFaceModel
from scpo.schema.run import LocalLauncher, RunConfig, SlurmLauncher
from scpo.schema.trainer import VerlTrainer
from scpo.verl_config import cores_needed, temp_root
from sweeps.doctor.subject import Subject
from sweeps.estimates import LEGEND, Basis, Duration, duration
from sweeps.resources import resources, trains_in_verl, unchecked_gpus, verl_trainer

# Release of torch -> major version of CUDA in its default build on PyPI, which its version does not
# show: 2.10 requires the packages nvidia-*-cu12, 2.11 those of CUDA 13.
CUDA_OF_TORCH: dict[tuple[int, ...], str] = {
    (2, 9): "12",
    (2, 10): "12",
    (2, 11): "13",
    (2, 12): "13",
    (2, 13): "13",
}

# Oldest driver release for each major version of CUDA, from NVIDIA's release notes.
DRIVER_OF_CUDA = {
    "12": 525,
    "13": 580,
}

# Sockets that verl creates, and their folder, which verl does not let users change.
SOCKETS = "rl-colocate-zmq-*.sock"
VERL_SOCKETS = Path("/tmp")  # noqa: S108 (verl's own choice: vllm_rollout.py)

# spaCy's model that finds the nouns for WebShop's reward.
NOUN_MODEL = "en_core_web_sm"


def check_gpu_memory(subject: Subject) -> Iterator[Finding]:
    """Estimate the memory that each kind of run needs on its fullest GPU.

    Kinds of run that fit share one finding, which lists the memory of the largest in parts.
    """
    local = isinstance(subject.first.launcher, LocalLauncher)
    if local and (unknown := unchecked_gpus(subject.configs)):
        yield warning(
            "gpu memory",
            f"nvidia-smi gives no size for {' and '.join(unknown)}: what runs need is not checked",
            "check that runs fit: launcher=slurm_a800x4 launcher.gpu_gb=<its size> dry_run=true",
        )
    gib = _gpu_gib(subject)
    if gib is None:
        return
    # Needed GiB and finding of each kind of run that fits.
    fitting: list[tuple[float, Finding]] = []
    for config in subject.configs:
        if not isinstance(config.model, HuggingFaceModel) or not _on_gpus(config):
            continue
        parts = gpu_table(config, gib)
        check = f"gpu memory {config.method.name} {config.model.name} {config.env.benchmark}"
        if not parts:
            yield warning(check, "unknown size", "check that it fits")
            continue
        part_texts = [f"{part.name} {part.update_gib:.1f}/{part.rollout_gib:.1f}" for part in parts]
        listed = ", ".join(part_texts)
        needed = needed_gib(parts)
        text = f"about {needed:.0f} of {gib:.0f} GiB (update/rollout: {listed}; estimates)"
        missing = shortage(config, gib)
        if missing:
            # ``text`` has the numbers already.
            yield error(check, text, missing.remedy)
        elif needed > FULL_SHARE * gib:
            fix = remedy(config, parts, FULL_SHARE * gib)
            yield warning(check, f"{text}: over {FULL_SHARE:.0%} of it", fix)
        else:
            fitting.append((needed, ok(check, text)))
    if fitting:
        yield _all_that_fit(fitting)


def _all_that_fit(fitting: list[tuple[float, Finding]]) -> Finding:
    """One finding for all kinds of run that fit.

    ``fitting``: needed GiB and finding of each kind.
    """
    most, largest = max(fitting, key=lambda kind: kind[0])
    if len(fitting) == 1:
        return largest
    least = min(needed for needed, _ in fitting)
    name = largest.check.removeprefix("gpu memory ")
    kinds = f"{len(fitting)} kinds of run, {least:.0f} to {most:.0f} GiB"
    return ok("gpu memory", f"{kinds}; largest: {name}, {largest.text}")


def check_attention(subject: Subject) -> Iterator[Finding]:
    """Report whether verl's update uses flash-attn, from the first run that updates with verl."""
    for config in subject.configs:
        trainer = config.trainer
        if isinstance(trainer, VerlTrainer) and trainer.name == "verl" and _on_gpus(config):
            yield _attention_of(trainer)
            return


def _attention_of(trainer: VerlTrainer) -> Finding:
    """Report whether flash-attn is installed and used by this trainer."""
    installed = installed_version("flash-attn")
    wanted = trainer.verl.attention
    if installed is None and wanted == "flash":
        fix = "docker/install.sh (docs/verl.md), or trainer.verl.attention=sdpa"
        return error("flash-attn", "trainer.verl.attention=flash, and it is not installed", fix)
    without = "goes without: torch's attention, fused kernels, micro-batches of at most 8 rows"
    if installed is None:
        return ok("flash-attn", f"not installed here: a run {without}")
    if wanted == "sdpa":
        return ok("flash-attn", without)
    return ok("flash-attn", installed)


def check_driver(subject: Subject) -> Iterator[Finding]:
    """Check that the driver is new enough for the CUDA that torch was built for."""
    driver = driver_version()
    torch = installed_version("torch")
    if driver is None or torch is None or not any(map(_on_gpus, subject.configs)):
        return
    # "2.13.0+cu130" is release 2.13, built for CUDA 13. Builds of PyPI have no suffix.
    release = tuple(int(part) for part in torch.split("+")[0].split(".")[:2])
    build = torch.partition("+cu")[2]
    cuda = build[:2] if build else CUDA_OF_TORCH.get(release)
    oldest = DRIVER_OF_CUDA.get(cuda or "")
    # For other versions of CUDA, the oldest driver is not known here.
    if oldest is None or int(driver.split(".")[0]) >= oldest:
        yield ok("driver", f"{driver}, torch {torch}")
        return
    text = f"{driver}; torch {torch} is built for CUDA {cuda}, which needs {oldest}"
    library = forward_compatibility()
    if library is not None:
        text += (
            f"; {library} may stand in for it (CUDA's forward compatibility, data-centre GPUs only)"
        )
        yield warning(
            "driver", text, "python -c 'import torch; torch.zeros(1).cuda()' shows whether it does"
        )
    else:
        fix = (
            f"a driver of {oldest} or newer, CUDA's package cuda-compat-{cuda}-0 on "
            "LD_LIBRARY_PATH, or torch built for an older CUDA (pytorch.org, --index-url)"
        )
        yield error("driver", text, fix)


def forward_compatibility() -> Path | None:
    """Path of a libcuda on LD_LIBRARY_PATH that lets an older driver run a newer CUDA, or None."""
    for name in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        library = Path(name) / "libcuda.so.1"
        if "compat" in Path(name).parts and library.exists():
            return library
    return None


def check_ray_cores(subject: Subject) -> Iterator[Finding]:
    """Check the number of cores for the first run that trains with verl on GPUs.

    With too few, Ray cannot place verl's processes, and verl would wait forever. On Slurm, the
    number is what the job asks for.
    """
    for config in subject.configs:
        trainer = verl_trainer(config)
        if trainer is None or not _on_gpus(config):
            continue
        needed = cores_needed(trainer)
        if isinstance(config.launcher, LocalLauncher):
            cores = usable_cores()
            fix = "a machine with more"
            if trainer.verl.gpus > 1:
                fix += ", or trainer=verl_1gpu"
        else:
            cores = resources(config).cpus
            fix = f"launcher.cpus={needed}"
        if cores < needed:
            text = f"{cores}; verl on {trainer.verl.gpus} GPUs needs {needed}"
            yield error("cores for Ray", text, fix)
        else:
            yield ok("cores for Ray", f"{cores} of at least {needed}")
        return


def check_sockets(subject: Subject) -> Iterator[Finding]:
    """Report sockets of other verl runs on this node, and whether verl can create its own.

    verl creates them in /tmp and ignores TMPDIR. The sockets of our runs have unique names; verl
    runs of other programs may share names.
    """
    if not _in_verl_here(subject):
        return
    found = sorted(path.name for path in VERL_SOCKETS.glob(SOCKETS))
    if found:
        text = (
            f"{len(found)} in {VERL_SOCKETS}, for example {found[0]}: another verl run is under "
            "way, or has left them"
        )
        yield warning("sockets", text, "nothing if you know that run: our runs use unique names")
    else:
        yield ok("sockets", "no other verl run on this node")
    if not os.access(VERL_SOCKETS, os.W_OK):
        yield error(
            "sockets",
            f"{VERL_SOCKETS}, where verl creates sockets, cannot be written",
            "a writable /tmp",
        )


def check_ray(subject: Subject) -> Iterator[Finding]:
    """Report a Ray cluster that runs may join, and the folder for the temporary files of runs.

    The folder replaces a TMPDIR whose path is too long for the name of a socket.
    """
    if not _in_verl_here(subject):
        return
    address = os.environ.get("RAY_ADDRESS")

    # Where Ray itself looks: RAY_TMPDIR comes before TMPDIR.
    ray_root = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    record = Path(ray_root) / "ray" / "ray_current_cluster"
    if address:
        fix = "unset RAY_ADDRESS, if the run is not meant to join that cluster"
        yield warning(
            "ray", f"RAY_ADDRESS={address}: runs join that Ray, with its cores and GPUs", fix
        )
    elif record.is_file():
        yield ok(
            "ray", f"a Ray is recorded in {record}; runs on one node start their own all the same"
        )
    else:
        yield ok("ray", "none is recorded on this node")
    root = temp_root()
    if str(root) != tempfile.gettempdir():
        length = len(os.fsencode(tempfile.gettempdir()))
        yield ok(
            "temporary folder",
            f"TMPDIR has {length} characters, too many for sockets: runs use {root}",
        )
    if not os.access(root, os.W_OK):
        yield error(
            "temporary folder",
            f"{root} cannot be written",
            "export TMPDIR=<a short folder of yours>",
        )


def check_hours(subject: Subject) -> Iterator[Finding]:
    """Report the hours of runs on GPUs, as in the dry run and in docs/verl.md.

    One finding for each number of GPUs and each basis of the hours (see ``Duration``).
    """
    # (GPUs, basis) -> duration and name of each kind of run.
    kinds: dict[tuple[int, Basis], list[tuple[Duration, str]]] = {}
    for config in subject.configs:
        known = duration(config)
        if known is not None and _on_gpus(config):
            name = f"{config.method.name} {config.model.name} {config.env.benchmark}"
            key = (resources(config).all_gpus, known.basis)
            kinds.setdefault(key, []).append((known, name))
    for (gpus, basis), members in kinds.items():
        members.sort(key=lambda member: member[0].hours)
        shortest, name = members[0]
        longest, _ = members[-1]
        per_run = f"h a run on {counted(gpus, 'GPU')} ({LEGEND[basis]})"
        if len(members) == 1:
            yield ok(f"hours {name}", f"{shortest} {per_run}")
        else:
            yield ok("hours", f"{len(members)} kinds of run, {shortest} to {longest} {per_run}")


def check_noun_rule(subject: Subject) -> Iterator[Finding]:
    """Check that spaCy's model is installed, which finds the nouns for WebShop's reward.

    Without it, a word counts as a noun unless it is on a stop list, and rewards differ.
    """
    for config in subject.configs:
        if not isinstance(config.env, WebshopConfig) or config.env.nouns != "spacy":
            continue
        if installed_version("spacy") and installed_version(NOUN_MODEL.replace("_", "-")):
            yield ok("webshop nouns", f"spaCy's {NOUN_MODEL}")
            return
        text = (
            f"env.nouns=spacy, and spaCy's {NOUN_MODEL} is not installed: a stop list would give "
            "the rewards, and those of purchases in another category may differ from the original's"
        )
        fix = (
            f"pip install spacy && python -m spacy download {NOUN_MODEL}, or env.nouns=stop_list "
            "on purpose"
        )
        # Only rewards at paper scale are compared with the paper's, which used spaCy.
        level = error if config.scale == "paper" else warning
        yield level("webshop nouns", text, fix)
        return


def _in_verl_here(subject: Subject) -> bool:
    """True if a run trains with verl on this machine."""
    local = isinstance(subject.first.launcher, LocalLauncher)
    return local and any(map(trains_in_verl, subject.configs))


def _gpu_gib(subject: Subject) -> float | None:
    """Memory in GiB of a GPU that the runs get; None if unknown."""
    launcher = subject.first.launcher
    if isinstance(launcher, SlurmLauncher):
        return launcher.gpu_gb
    # If this machine has several kinds of GPU, the run must fit onto the smallest.
    return smallest_gib(installed_gpus())


def _on_gpus(config: RunConfig) -> bool:
    """True if the run asks for a GPU."""
    return resources(config).gpus > 0
