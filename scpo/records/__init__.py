"""Run records: what a run writes, reads and checks. The files are the truth; W&B is a copy."""

from scpo.records.logs import JsonLines
from scpo.records.run_folders import RunFolder
from scpo.records.status import State, Status, StopRequest

__all__ = ["JsonLines", "RunFolder", "State", "Status", "StopRequest"]
