"""sweep.py with the fake trainer."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import sweep
from sweeps.launchers import forked

if __name__ == "__main__":
    sweep.TRAIN_SCRIPT = Path(__file__).with_name("fake_train.py")
    sweep.show_table = lambda *_: None  # the table is the analysis' to test
    if "FAKE_FORKING_S" in os.environ:  # how long a fork server may take to answer
        forked.FORKING_S = float(os.environ["FAKE_FORKING_S"])
    sys.exit(sweep.main(sys.argv[1:]))
