"""One self-contained HTML page: runs, learning curves, tables, figures, and the credit inspector."""
