"""Errors with their reason, as tests expect them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from hubbubd.errors import HubError

E = TypeVar("E", bound=HubError)


@contextmanager
def raising(kind: type[E], reason: str, *, match: str | None = None) -> Generator[pytest.ExceptionInfo[E]]:
    """Passes if what is inside raises this kind of error for this reason."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert caught.value.reason == reason
