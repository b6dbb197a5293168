"""verl without a GPU, for tests and demonstrations: a CPU platform and a rollout engine."""
