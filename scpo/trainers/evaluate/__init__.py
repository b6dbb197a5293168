"""Evaluation without training, for methods that prompt."""
