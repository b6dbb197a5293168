"""sweep.py with the fake objective as its trainer."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import sweep
from sweeps.search import driver, search_folder

if __name__ == "__main__":
    sweep.TRAIN_SCRIPT = Path(__file__).with_name("fake_objective.py")
    driver.LEAST_POLL_S = 0.05
    search_folder.write_plots = lambda *_: []  # seconds of imports and forests that no fault is about
    sys.exit(sweep.main(sys.argv[1:]))
