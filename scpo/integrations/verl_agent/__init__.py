"""verl-agent at commit 796ed31, the stack of the paper, unchanged: SCPO is hooked into its process from outside.

The fork has verl's import name and so a virtual environment of its own, with scpo on PYTHONPATH; see docs/verl.md.
"""
