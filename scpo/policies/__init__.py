"""Policies: the models that act and learn, with the interface of ``scpo.policies.base``."""
