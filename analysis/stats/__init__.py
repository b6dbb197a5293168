"""Statistics of runs over seeds: what a run is judged by, paired differences, comparisons and their corrections."""
