"""Policies: what acts and learns. Each has the interface of ``scpo.policies.base``; trainers know no other."""
