"""Figures: one module each, with ``build(data)``; ``python -m analysis figures`` finds them."""
