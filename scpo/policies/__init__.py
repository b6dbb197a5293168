"""Policies: the models that act and learn, behind the interface of ``scpo.policies.base``."""
