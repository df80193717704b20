"""What the log-in answers to a program whose request is wrong (RFC 6749, 4.1.2.1 and 5.2; RFC 7591, 3.2.2)."""


class LoginRefusal(Exception):
    """A request of a program is refused. `error` is a code of OAuth, `description` tells its authors what is wrong."""

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        """`status` is the HTTP status of the response; the class describes `error` and `description`."""
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status

    @property
    def reason(self) -> str:
        """The error as the audit log has it."""
        return self.error.upper()


def invalid_grant(description: str) -> LoginRefusal:
    """Return the refusal of a code or a refresh token."""
    return LoginRefusal("invalid_grant", description)


def invalid_request(description: str) -> LoginRefusal:
    """Return the refusal of parameters."""
    return LoginRefusal("invalid_request", description)
