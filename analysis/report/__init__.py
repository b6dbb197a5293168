"""The report page: runs, learning curves, tables, figures and the credit inspector."""
