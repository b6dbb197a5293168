"""Settings that all tests share."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch loads: spinning threads fight over a busy machine

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: a core each, for what a test starts too
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

# A busy machine is no failure, and a commit's tests do the same thing twice.
settings.register_profile("scpo", deadline=None, derandomize=True)
settings.load_profile("scpo")
