"""Statistics over seeds: measures of a run, paired differences, named comparisons."""
