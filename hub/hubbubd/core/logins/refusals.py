"""What the log-in answers to a program whose request is wrong (RFC 6749, 4.1.2.1 and 5.2; RFC 7591, 3.2.2)."""


class LoginRefusal(Exception):
    """A request of a program is refused. `error` is a code of OAuth, `why` says what to do, to those who wrote it."""

    def __init__(self, error: str, why: str, *, status: int = 400) -> None:
        """`status` is the HTTP status of the response; for the others see the class."""
        super().__init__(why)
        self.error = error
        self.why = why
        self.status = status

    @property
    def reason(self) -> str:
        """The error as the audit log has it."""
        return self.error.upper()


def invalid_grant(why: str) -> LoginRefusal:
    """Return the refusal of a code or a refresh token."""
    return LoginRefusal("invalid_grant", why)


def invalid_request(why: str) -> LoginRefusal:
    """Return the refusal of parameters."""
    return LoginRefusal("invalid_request", why)
