"""Hyper-parameter search with Optuna, with the same configurations and records as any sweep.

``space``: parameters; ``plan``: one search at one scale, and its next trial; ``storage`` and
``study``: the trials; ``driver``: runs of the trials; ``search_folder`` and ``plots``: results.
"""
