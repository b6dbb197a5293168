"""State identities: rules for which steps of a group share a state. NumPy only."""
