"""Advantage estimators, one file each: NumPy arrays in, arrays out; see ``registry.py``."""
