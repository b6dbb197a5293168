"""SCPO's shaping of step returns: references, matchers, drivers, processing order. NumPy only."""

import importlib
import pkgutil

# Matchers in files of their own enter ``MATCHERS`` when they are imported. They are found by their
# file names. A line for each in a file that all runs use would change the recorded code of every
# run (scpo/records/code_files.py).
for _module in pkgutil.iter_modules(__path__):
    if _module.name.endswith("_match"):
        importlib.import_module(f"{__name__}.{_module.name}")
