"""Advantage estimators, a file each: arrays in, arrays out. NumPy only; ``registry.py`` lists them."""
