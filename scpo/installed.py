"""Which packages are installed."""

from importlib import metadata


def installed_version(package: str) -> str | None:
    """The version of a package, without importing it; None: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
