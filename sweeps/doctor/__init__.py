"""Pre-flight checks that find problems before a job waits in a queue.

Each module holds checks of one kind: functions from a Subject (the configurations about to run) to
Findings. ``examination`` runs them.
"""
