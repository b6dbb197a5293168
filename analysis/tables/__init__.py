"""One module a table, each with `build(data) -> Table`; `python -m analysis figures` finds them."""
