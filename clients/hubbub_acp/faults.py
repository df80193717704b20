"""What can go wrong between a caller and an agent: a code for programs, and a message that says what to do."""

from typing import Any


class AgentFault(Exception):
    """A call that cannot be done, or a turn that failed; `details` goes with the code to the caller."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.details = details

    @property
    def message(self) -> str:
        """What happened, and what to do."""
        return str(self)
