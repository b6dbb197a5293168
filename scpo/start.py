"""Checks of every command before it imports its packages."""

from scpo.installed import explain_wrong_python


def explain_wrong_start() -> str:
    """Message if Python lacks the core packages or one has a wrong estimator; empty without.

    Call this before any installed package is imported: a traceback would hide the message.
    """
    wrong = explain_wrong_python()
    if wrong:
        return wrong
    # Only now: they need the core packages.
    from scpo.errors import ConfigError

    try:
        # The imports load what the entry points of installed packages name.
        import scpo.schema.method
        import scpo.schema.parts  # noqa: F401
    except ConfigError as error:
        return str(error)
    return ""
