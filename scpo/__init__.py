"""Semantic consistency policy optimization: reward shaping for group-based RL of LLM agents."""

__version__ = "0.1.0"
