"""What the tests of settings share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hubbubd.config import HubSettings, load_settings


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., HubSettings]:
    """Loads a file with this text, and an environment."""

    def loaded(text: str = "", ending: str = "toml", **environ: str) -> HubSettings:
        path = tmp_path / f"hub.{ending}"
        path.write_text(text)
        return load_settings(["--config", str(path)], environ).hub

    return loaded
