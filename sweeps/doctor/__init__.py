"""Pre-flight: what would go wrong, told before a job waits in a queue.

Each module holds checks of one kind: functions from a Subject (what is about to run) to Findings; ``report`` runs them.
"""
