"""Tables, figures and pages from run records: sources, statistics, one module per output."""

from importlib.util import find_spec

from scpo.installed import explain_wrong_python, install_command

NEEDED = ("pandas", "pyarrow", "matplotlib", "seaborn", "sklearn", "scipy", "pylatexenc")

if missing := [name for name in NEEDED if find_spec(name) is None]:
    raise ModuleNotFoundError(
        explain_wrong_python()
        or f"tables and figures need {', '.join(missing)}: {install_command('analysis')}"
    )
