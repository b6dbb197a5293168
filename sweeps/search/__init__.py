"""Hyper-parameter search with Optuna over the same run specs and records as any sweep.

``space``: parameters; ``plan``: one search at one scale, and its next trial; ``study``:
the trials; ``driver``: runs of the trials; ``search_folder`` and ``plots``: results.
"""
