"""What a builder says when there is nothing to build from."""

from scpo.errors import ScpoError


class MissingRunsError(ScpoError, LookupError):
    """No finished run has what an output needs; ``command`` makes the runs."""

    def __init__(self, needed: str, command: str) -> None:
        super().__init__(f"no {needed}. Make them with:\n{command}")
        self.needed = needed
        self.command = command
