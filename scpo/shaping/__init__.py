"""SCPO's shaping of step returns: references, matchers, drivers, processing order. NumPy only."""
