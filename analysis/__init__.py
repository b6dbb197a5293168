"""Tables, figures and pages from run records: sources, statistics, one module per output."""

import sys
from importlib.util import find_spec

from scpo.installed import install_command
from scpo.start import explain_wrong_start

NEEDED = ("pandas", "pyarrow", "matplotlib", "seaborn", "sklearn", "scipy", "pylatexenc")

if missing := [name for name in NEEDED if find_spec(name) is None]:
    wrong = (
        explain_wrong_start()
        or f"tables and figures need {', '.join(missing)}: {install_command('analysis')}"
    )
    # `python -m analysis` imports this file first, with "-m" in place of the command's path.
    if sys.argv[0] == "-m":
        sys.exit(f"error: {wrong}")
    raise ModuleNotFoundError(wrong)
if sys.argv[0] == "-m" and (wrong := explain_wrong_start()):
    sys.exit(f"error: {wrong}")
