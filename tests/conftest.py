"""What every test shares."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Plain asyncio; it also keeps the anyio plugin from running each test on every backend."""
    return "asyncio"
