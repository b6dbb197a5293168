"""Numbers and claims of the paper, and the verdict of runs on them."""
