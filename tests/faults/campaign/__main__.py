"""Random faults against a tiny real sweep, and a table of what became of them.

    python -m tests.faults.campaign --seed 1 --faults 150
    python -m tests.faults.campaign --seed 1 fresh --faults 150     half of them with a seed that nobody has seen
    python -m tests.faults.campaign --seed 1 --only 37              one fault again, with all that was said

Faults are kills, signals, truncations, flipped bits, zeroed and lost blocks, full disks, odd surroundings, swapped and
copied folders, wrong content under a right checksum, fork servers that stop. *Equal*: every number is what it was.
*Named*: what is not is left out of every number, and a message names run, file and what to do. *Lost* (finished or
recorded work is gone without a word), *silent* (another number), *traceback* and *hang* are defects.
"""

import argparse
import logging
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.faults.campaign import tiny_sweep
from tests.faults.campaign.commands import show
from tests.faults.campaign.faults import KINDS, OF_THE_SWEEP, Fault, make
from tests.faults.campaign.place import Place
from tests.faults.campaign.readers import Reading, Verdict, read
from tests.support.small_disks import NoMountsError

SKIPPED = "skipped"
BAD = (Verdict.LOST, Verdict.SILENT, Verdict.TRACEBACK, Verdict.HANG)
HUNG = "did not end"
HANG_S = 1800  # several times what the slowest fault takes on a loaded machine
COLUMNS = (*Verdict, SKIPPED)


class Result(NamedTuple):
    """One fault: its kind, what it came to, and the seconds that it took."""

    kind: str
    verdict: str
    seconds: float


def main() -> int:
    """Run the faults, print the table; 1 if there was a defect."""
    options = _options()
    seeds = [secrets.randbelow(10**6) if seed == "fresh" else seed for seed in options.seed]
    logging.disable(logging.WARNING)
    started = time.monotonic()
    top = Path(tempfile.mkdtemp(prefix="campaign-", dir=options.folder))
    try:
        kinds = _kinds(options.kinds)
        sweep, truth = _undisturbed(top) if kinds.keys() & OF_THE_SWEEP else (tiny_sweep.nothing(top), Reading())
        make(top, kinds)
        took = time.monotonic() - started
        print(f"seeds {', '.join(map(str, seeds))}; what is damaged took {took:.0f} s", flush=True)
        numbers = range(options.faults // len(seeds)) if options.only is None else [options.only]
        drawn = [(seed, number) for seed in seeds for number in numbers]
        end = started + 60 * options.minutes
        one = partial(_one, sweep, truth, kinds, end=end, verbose=options.only is not None)
        workers = ThreadPoolExecutor(options.workers)
        futures = [workers.submit(one, place) for place in drawn]
        results = [result for result in map(_result, drawn, futures) if result is not None]
    finally:
        shutil.rmtree(top, ignore_errors=True)
    _show(results, time.monotonic() - started)
    sys.stdout.flush()
    if any(result.verdict is Verdict.HANG for result in results):
        os._exit(1)  # Python would wait for the thread that hangs
    return int(any(result.verdict in BAD for result in results))


def _undisturbed(top: Path) -> tuple[tiny_sweep.TinySweep, Reading]:
    """The tiny sweep, and what is true of it."""
    sweep = tiny_sweep.make(top)
    truth = read(sweep.done)
    if problems := truth.problems + truth.verified + truth.tracebacks:
        raise SystemExit(f"the undisturbed sweep has problems: {problems}")
    return sweep, truth


def _result(drawn: tuple[int, int], future: "Future[Result | None]") -> Result | None:
    """What a fault came to; one that never ends is a defect, too."""
    try:
        return future.result(HANG_S)
    except TimeoutError:
        show(f"fault {drawn[1]} (--seed {drawn[0]} --only {drawn[1]}) did not end in {HANG_S} s")
        return Result(HUNG, Verdict.HANG, HANG_S)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.campaign", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--seed",
        nargs="+",
        default=["fresh"],
        type=lambda text: text if text == "fresh" else int(text),
        help="the same seed draws the same faults; fresh (the default): a new one",
    )
    parser.add_argument("--faults", type=int, default=150, help="how many (default: 150)")
    parser.add_argument("--kinds", nargs="+", metavar="TEXT", help="only kinds whose name contains one of these")
    parser.add_argument("--only", type=int, metavar="N", help="only fault N of them")
    parser.add_argument("--minutes", type=float, default=600, help="begin no fault after so many (default: 600)")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time (default: 2)")
    parser.add_argument("--folder", type=Path, help="where the sweep is made (default: the system's temporary folder)")
    return parser.parse_args()


def _kinds(texts: list[str] | None) -> dict[str, tuple[int, Fault]]:
    """The kinds of faults whose names contain one of the texts; without texts all."""
    chosen = {name: kind for name, kind in KINDS.items() if any(text in name for text in texts or [""])}
    if not chosen:
        raise SystemExit(f"--kinds {' '.join(texts or [])}: there are {', '.join(KINDS)}")
    return chosen


def _one(
    sweep: tiny_sweep.TinySweep,
    truth: Reading,
    kinds: Mapping[str, tuple[int, Fault]],
    drawn: tuple[int, int],
    *,
    end: float,
    verbose: bool,
) -> Result | None:
    """A fault by its seed and number; None: the time is over."""
    seed, number = drawn
    if time.monotonic() > end:
        return None
    chance = random.Random(f"{seed} {number}")
    kind = chance.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
    folder = sweep.top / f"fault-{seed}-{number}"
    folder.mkdir()
    began = time.monotonic()
    try:
        verdict, why = kinds[kind][1](Place(sweep, truth, folder, chance))
    except NoMountsError as error:
        verdict, why = SKIPPED, str(error)
    except Exception:  # noqa: BLE001 (a fault of the campaign itself is shown as one)
        verdict, why = Verdict.TRACEBACK, traceback.format_exc()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    if verdict in BAD or verbose:
        show(f"fault {number} (--seed {seed} --only {number}), {kind}: {verdict} ({seconds:.1f} s)", why, "")
    return Result(kind, verdict, seconds)


def _show(results: list[Result], seconds: float) -> None:
    width = max(map(len, KINDS))
    print(f"{'':{width}}  faults  {'  '.join(f'{name:>9}' for name in COLUMNS)}  s a fault")
    for kind in (*KINDS, HUNG, "all"):
        own = [result for result in results if kind in (result.kind, "all")]
        if not own:
            continue
        counts = Counter(result.verdict for result in own)
        columns = "  ".join(f"{counts[name]:9}" for name in COLUMNS)
        mean = sum(result.seconds for result in own) / len(own)
        print(f"{kind:{width}}  {len(own):6}  {columns}  {mean:9.1f}")
    print(f"{seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
