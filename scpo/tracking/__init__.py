"""Run records: the run folder, its logs and status, and the W&B mirror. The files are the truth; W&B is a copy."""

from scpo.tracking.folder import RunFolder
from scpo.tracking.jsonlines import JsonLines
from scpo.tracking.records import Status, StopRequest
from scpo.tracking.states import State
from scpo.tracking.tracker import Tracker

__all__ = ["JsonLines", "RunFolder", "State", "Status", "StopRequest", "Tracker"]
