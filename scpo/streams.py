"""Random streams: what a generator seeded by (run seed, training step, purpose) is for, so that no two share draws."""

ROLLOUT, SHUFFLE, TASKS, PROBE, AGAIN, CRITIC, PRECISION = range(7)
"""AGAIN: later sampling rounds."""
