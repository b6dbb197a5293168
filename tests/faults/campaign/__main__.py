"""Random faults against a tiny real sweep, and a table of what became of them.

    python -m tests.faults.campaign --seed 1 --faults 150
    python -m tests.faults.campaign --seed 1 fresh --faults 150     half of them with a seed that nobody has seen
    python -m tests.faults.campaign --seed 1 --only 37              one fault again, with all that was said

Faults are kills, signals, truncations, flipped bits, zeroed and lost blocks, full disks, odd surroundings. *Equal*:
every number is what it was. *Named*: what is not is left out of every number, and a message names run, file and what to
do. *Lost* (finished or recorded work is gone without a word), *silent* (another number) and *traceback* are defects.
"""

import argparse
import logging
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.faults.campaign import tiny_sweep
from tests.faults.campaign.faults import KINDS, Place
from tests.faults.campaign.readers import Reading, Verdict, read
from tests.support.small_disks import NoMountsError

SKIPPED = "skipped"
BAD = (Verdict.LOST, Verdict.SILENT, Verdict.TRACEBACK)
COLUMNS = (*Verdict, SKIPPED)


def main() -> int:
    """Run the faults, print the table; 1 if there was a defect."""
    options = _options()
    seeds = [secrets.randbelow(10**6) if seed == "fresh" else seed for seed in options.seed]
    logging.disable(logging.WARNING)
    started = time.monotonic()
    top = Path(tempfile.mkdtemp(prefix="campaign-", dir=options.folder))
    try:
        sweep = tiny_sweep.make(top)
        truth = read(sweep.done)
        if truth.problems or truth.verified or truth.tracebacks:
            raise SystemExit(
                f"the undisturbed sweep has problems: {truth.problems + truth.verified + truth.tracebacks}"
            )
        took = time.monotonic() - started
        print(f"seeds {', '.join(map(str, seeds))}; the undisturbed sweep took {took:.0f} s", flush=True)
        numbers = range(options.faults // len(seeds)) if options.only is None else [options.only]
        drawn = [(seed, number) for seed in seeds for number in numbers]
        end = started + 60 * options.minutes
        one = partial(_one, sweep, truth, end=end, verbose=options.only is not None)
        with ThreadPoolExecutor(options.workers) as workers:
            results = [result for result in workers.map(one, drawn) if result is not None]
    finally:
        shutil.rmtree(top, ignore_errors=True)
    _show(results, time.monotonic() - started)
    return int(any(verdict in BAD for _, verdict in results))


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
    parser.add_argument("--only", type=int, metavar="N", help="only fault N of them")
    parser.add_argument("--minutes", type=float, default=600, help="begin no fault after so many (default: 600)")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time (default: 2)")
    parser.add_argument("--folder", type=Path, help="where the sweep is made (default: the system's temporary folder)")
    return parser.parse_args()


def _one(
    sweep: tiny_sweep.TinySweep, truth: Reading, drawn: tuple[int, int], *, end: float, verbose: bool
) -> tuple[str, str] | None:
    """A fault by its seed and number: its kind and what it came to; None: the time is over."""
    seed, number = drawn
    if time.monotonic() > end:
        return None
    chance = random.Random(f"{seed} {number}")
    kind = chance.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    folder = sweep.top / f"fault-{seed}-{number}"
    folder.mkdir()
    try:
        verdict, why = KINDS[kind][1](Place(sweep, truth, folder, chance))
    except NoMountsError as error:
        verdict, why = SKIPPED, str(error)
    except Exception:  # noqa: BLE001 (a fault of the campaign itself is shown as one)
        verdict, why = Verdict.TRACEBACK, traceback.format_exc()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if verdict in BAD or verbose:
        print(f"fault {number} (--seed {seed} --only {number}), {kind}: {verdict}\n{why}\n", flush=True)
    return kind, verdict


def _show(results: list[tuple[str, str]], seconds: float) -> None:
    counts = Counter(results)
    width = max(map(len, KINDS))
    print(f"{'':{width}}  faults  {'  '.join(f'{name:>9}' for name in COLUMNS)}")
    for kind in (*KINDS, "all"):
        row = [sum(n for (of, is_), n in counts.items() if is_ == name and kind in (of, "all")) for name in COLUMNS]
        print(f"{kind:{width}}  {sum(row):6}  {'  '.join(f'{one:9}' for one in row)}")
    print(f"{seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
