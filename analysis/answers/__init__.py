"""The study's page: what was asked of the runs, answered by their numbers whichever way they fall."""
