"""Hosts at the endpoints of a hub in virtual time, with scripted servers."""

from ..runtime.conftest import anyio_backend, watching, world

__all__ = ["anyio_backend", "watching", "world"]
