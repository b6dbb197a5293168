"""Faults at random against a tiny real sweep: what every reader and a second start then make of it."""
