"""One module a figure, each with `build(data) -> Figure`; `python -m analysis figures` finds them."""
