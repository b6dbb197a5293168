"""Hyper-parameter search with Optuna over the same run specs and records as any sweep.

space (what may vary), plan (one search at one scale), proposals (the next trial), study (the trials' records), driver
(runs and trials), search_folder and plots (what came out).
"""
