"""PyPI verl as the trainer: Ray, FSDP2 and vLLM around the same rollout, credit and records as everywhere in scpo."""
