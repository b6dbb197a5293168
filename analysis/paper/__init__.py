"""Published numbers and claims of the paper, and verdicts on the claims from runs."""
