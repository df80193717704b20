"""The keyring of this person's system, where secrets are kept that would otherwise stand in a file."""

from importlib import import_module
from typing import Any, Final

SERVICE: Final = "hubbub"
"""What the hub's secrets belong to, in the keyring."""

MAX_PER_NAME: Final = 100
"""The most secrets of one name; a further one replaces the first."""


class NoKeyring(Exception):
    """There is no keyring that can be used; the message says why, and what to do."""


class Keyring:
    """The keyring of this system, by the package `keyring`, whose module is `library`."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def store_secret(self, name: str, secret: str) -> str:
        """Store a secret, read it back, and return the reference to it for the configuration file. Raises NoKeyring.

        Another secret of that name stays, since another file may refer to it: this one then gets a number.
        """
        try:
            names = (name, *(f"{name}-{number}" for number in range(2, MAX_PER_NAME + 1)))
            free_names = (each for each in names if self._library.get_password(SERVICE, each) in (None, secret))
            free_name = next(free_names, name)
            self._library.set_password(SERVICE, free_name, secret)
            stored = self._library.get_password(SERVICE, free_name)
        except Exception as exc:  # noqa: BLE001 - each system's keyring fails in its own way, some of them too talkative
            raise NoKeyring(f"the keyring does not take it: {type(exc).__name__}") from None
        if stored != secret:
            raise NoKeyring("the keyring has taken it, and does not give it back")
        return f"${{keyring:{SERVICE}/{free_name}}}"


def open_system_keyring() -> Keyring:
    """Return the keyring of this system. Raises NoKeyring."""
    try:
        library: Any = import_module("keyring")
    except ImportError:
        raise NoKeyring("the package keyring is not there: install Hubbub again, with all that it needs") from None
    try:
        backend: Any = library.get_keyring()
        usable = backend.priority > 0
    except Exception as exc:  # noqa: BLE001 - as above
        raise NoKeyring(f"this system's cannot be used: {type(exc).__name__}") from None
    if not usable:
        raise NoKeyring("this system has none that is unlocked with your session")
    return Keyring(library)
