"""Shell scripts that stand in for commands."""


def fake_python(path, text):
    """A script at this path, executable; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
