"""Pages of the laptop study, written from archives of runs."""
