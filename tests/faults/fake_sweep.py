"""sweep.py with the fake trainer."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import sweep

if __name__ == "__main__":
    sweep.TRAIN_SCRIPT = Path(__file__).with_name("fake_train.py")
    sweep.show_table = lambda *_: None  # the table is the analysis' to test
    sys.exit(sweep.main(sys.argv[1:]))
