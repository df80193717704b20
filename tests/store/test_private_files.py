"""The check of who may read what the hub keeps."""

from pathlib import Path

import pytest

from hubbubd.config import HubSettings, LoadedSettings
from hubbubd.runtime.diagnostics import checks


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory as a hub leaves it."""
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    for name in ("client.json", "tokens.json"):
        (made / name).touch(mode=0o600)
    return made


async def secrets(data_dir: Path) -> list[checks.Finding]:
    """What the check says of the files with secrets."""
    found = await checks.check_before_start(LoadedSettings(hub=HubSettings(data_dir=data_dir)), {})
    return [each for each in found if each.about == "secrets"]


async def test_files_that_only_their_owner_may_use_are_no_finding(data_dir: Path) -> None:
    assert await secrets(data_dir) == []


@pytest.mark.parametrize("open_to", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
@pytest.mark.parametrize("name", ["", "client.json", "tokens.json"])
async def test_a_file_that_is_open_to_the_group_or_to_others_in_any_way_is_named(
    data_dir: Path, name: str, open_to: int
) -> None:
    path = data_dir / name
    path.chmod(path.stat().st_mode | open_to)
    (found,) = await secrets(data_dir)
    assert found.severity is checks.Severity.WARN
    assert found.advice == f"chmod go= {path}"
