"""verl on machines without a GPU, for tests and for looking at it: a platform and a rollout engine of our own."""
