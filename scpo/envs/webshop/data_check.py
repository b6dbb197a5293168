"""Checks of WebShop's data on this machine, before a run is started."""

from collections.abc import Callable, Iterator
from pathlib import Path

from scpo.envs.webshop.catalogue.catalogue import FULL, HUMAN, SMALL
from scpo.envs.webshop.catalogue.official_files import survey
from scpo.envs.webshop.environment import WebshopEnvironment
from scpo.envs.webshop.panels import overlap
from scpo.errors import ScpoError
from scpo.findings import Finding, error, ok, warning
from scpo.schema.env import WebshopConfig

OVERLAP = "train/test overlap"
HOLD_OUT = "env.order=fixed has a hold-out; report the share with the results"


def check_data(config: WebshopConfig, folder: str | None) -> Iterator[Finding]:
    """Check that the catalogue and the goals exist.

    Args:
        config: The environment's configuration.
        folder: Folder of the official files (``WEBSHOP_DATA``); None if it is not set.
    """
    # Not an error, because parity with verl-agent needs this order.
    if config.order == "verl_agent":
        text = (
            "env.order=verl_agent holds no goals out: every worker shuffles all of them; "
            "--deep counts those shared"
        )
        yield warning(OVERLAP, text, HOLD_OUT)
    if config.catalogue == "generated":
        yield ok(
            "catalogue",
            f"generated, {config.generated.products} products; --deep hashes the panels",
        )
        return

    fix = "python -m scpo.envs.webshop shows where to get them; then WEBSHOP_DATA=<folder>"
    # As the loader does, the 1,000 products are preferred where both releases are there.
    releases = [names for names in (SMALL, FULL) if folder and _filled(Path(folder), names)]
    if not releases:
        missing = f"{folder} lacks {' and '.join(SMALL)}" if folder else "WEBSHOP_DATA is not set"
        yield error("catalogue", f"official catalogue: {missing}", fix)
    elif config.goals == "human" and not (Path(folder or "") / HUMAN).is_file():
        yield error("catalogue", f"env.goals=human: {folder} lacks {HUMAN}", fix)
    else:
        yield ok("catalogue", f"{folder}: {' and '.join(releases[0])}; --deep checks their hashes")


def check_loaded(
    config: WebshopConfig, folder: str | None, load: Callable[[], WebshopEnvironment]
) -> Iterator[Finding]:
    """Check the official files' SHA-256, and the overlap of test and training goals.

    Args:
        config: The environment's configuration.
        folder: Folder of the official files; None if it is not set.
        load: Opens the environment, whose panels are compared.
    """
    if config.catalogue == "official" and folder is not None:
        for file, state in survey(Path(folder)):
            if state in ("ok", "there"):
                checksum = "the official checksum" if state == "ok" else "no checksum is known"
                yield ok(f"file {file.name}", checksum)
            # Missing files are left to `check_data`: a folder needs only one of the two releases.
            elif state != "missing":
                yield error(
                    f"file {file.name}", state, "download it again: python -m scpo.envs.webshop"
                )
    try:
        shared = overlap(load().panels)
    except (ScpoError, OSError, ValueError) as failure:
        yield error(
            OVERLAP, f"{type(failure).__name__}: {failure}", "see the check of the catalogue"
        )
        return

    text = (
        f"{shared.goals:.1%} of the test goals and {shared.products:.1%} of their products are "
        "trained on"
    )
    yield warning(OVERLAP, text, HOLD_OUT) if shared.goals > 0 else ok(OVERLAP, text)


def _filled(folder: Path, names: tuple[str, ...]) -> bool:
    """Return True if all files are there and none is empty."""
    return all((folder / name).is_file() and (folder / name).stat().st_size > 0 for name in names)
