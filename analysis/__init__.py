"""From run records to tables and figures: collect, statistics, one module for each output."""

from importlib.util import find_spec

NEEDED = ("pandas", "pyarrow", "matplotlib", "seaborn", "sklearn", "scipy", "pylatexenc")

if missing := [name for name in NEEDED if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"tables and figures need {', '.join(missing)}: pip install 'scpo[analysis]'"
    )
