"""Hooks that add SCPO to an unmodified verl-agent at commit 796ed31, the paper's framework.

The fork has verl's import name and so needs a virtual environment of its own, with scpo on
PYTHONPATH; see docs/verl.md.
"""
