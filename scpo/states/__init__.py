"""State identities: which steps of a group start from the same state. NumPy only; see ``registry.py``."""
