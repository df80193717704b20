"""The keyring of this person's system, where secrets are kept that would otherwise stand in a file."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

SERVICE: Final = "hubbub"
"""What the hub's secrets belong to, in the keyring."""


class NoKeyring(Exception):
    """There is no keyring that can be used; the message says why, and what to do."""


class Keyring(Protocol):
    """Keeps secrets by name."""

    def keep(self, name: str, secret: str) -> str:
        """Keep a secret, and return the reference to it for the configuration file. Raises NoKeyring."""
        ...

    def get(self, reference: str) -> str | None:
        """Return what a reference stands for; None if it is none of this keyring, or there is nothing."""
        ...


def system_keyring() -> Keyring:
    """Return the keyring of this system. Raises NoKeyring."""
    try:
        library: Any = import_module("keyring")
    except ImportError:
        raise NoKeyring("it needs a package: pip install 'hubbub[keyring]'") from None
    try:
        backend: Any = library.get_keyring()
        usable = backend.priority > 0
    except Exception as exc:  # noqa: BLE001 - each system's keyring fails in its own way, some of them too talkative
        raise NoKeyring(f"this system's cannot be used: {type(exc).__name__}") from None
    if not usable:
        raise NoKeyring("this system has none that is unlocked with your session")
    return _System(library)


def references(spec: Mapping[str, Any]) -> bool:
    """Return whether a spec refers to the keyring."""
    return "${keyring:" in repr(spec)


class _System:
    def __init__(self, library: Any) -> None:
        self._library = library

    def keep(self, name: str, secret: str) -> str:
        try:
            self._library.set_password(SERVICE, name, secret)
            kept = self._library.get_password(SERVICE, name)
        except Exception as exc:  # noqa: BLE001 - as above
            raise NoKeyring(f"the keyring does not take it: {type(exc).__name__}") from None
        if kept != secret:
            raise NoKeyring("the keyring has taken it, and does not give it back")
        return f"${{keyring:{SERVICE}/{name}}}"

    def get(self, reference: str) -> str | None:
        head = f"${{keyring:{SERVICE}/"
        if not reference.startswith(head) or not reference.endswith("}"):
            return None
        try:
            found: object = self._library.get_password(SERVICE, reference[len(head) : -1])
        except Exception:  # noqa: BLE001 - as above
            return None
        return found if isinstance(found, str) else None
