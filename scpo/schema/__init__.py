"""The whole configuration as pydantic models, extra keys forbidden; imports nothing heavy."""
