"""SCPO's shaping of step returns: references, matchers, drivers, processing order. NumPy only."""

import importlib
import pkgutil

# Matchers in files of their own enter ``MATCHERS`` when they are imported. They are found by their
# file names, because a line for each, in a file that all runs use, would make every finished run
# one of other code (scpo/records/provenance.py).
for _module in pkgutil.iter_modules(__path__):
    if _module.name.endswith("_match"):
        importlib.import_module(f"{__name__}.{_module.name}")
