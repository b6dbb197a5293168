"""PyPI verl as the trainer: Ray, FSDP2 and vLLM with scpo's own rollout, credit and records."""
