"""The hub is found by argument, by environment, or by the file it leaves behind."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hubbub_cli.run.session import DEFAULT_CONNECT_TIMEOUT_S, Settings
from hubbub_client import hub
from hubbub_client.errors import Unavailable
from hubbub_client.transport.discovery import HubLocation, default_data_dir, discover, mcp_url


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUBBUB_ADDRESS", "HUBBUB_TOKEN", "HUBBUB_DATA_DIR", "HUBBUB_CA", "HUBBUB_CERT", "HUBBUB_KEY"):
        monkeypatch.delenv(name, raising=False)


def _client_file(folder: Path, address: str = "127.0.0.1:7", token: str = "filed") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "client.json").write_text(json.dumps({"address": address, "token": token}))
    return folder


def _found(
    address: str | None = None, token: str | None = None, data_dir: Path | None = None
) -> tuple[str, str | None]:
    endpoint = discover(HubLocation(address, token, data_dir))
    return endpoint.address, endpoint.token


def test_an_argument_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _client_file(tmp_path)
    assert _found(data_dir=tmp_path) == ("127.0.0.1:7", "filed")
    monkeypatch.setenv("HUBBUB_ADDRESS", "127.0.0.1:8")
    monkeypatch.setenv("HUBBUB_TOKEN", "set")
    assert _found(data_dir=tmp_path) == ("127.0.0.1:8", "set")
    assert _found("127.0.0.1:9", "given", tmp_path) == ("127.0.0.1:9", "given")


def test_the_data_directory_comes_from_the_environment_or_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _client_file(tmp_path / "share" / "hubbub", token="home")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert _found() == ("127.0.0.1:7", "home")
    monkeypatch.setenv("XDG_DATA_HOME", "share")
    assert default_data_dir() == Path.home() / ".local/share/hubbub"
    monkeypatch.setenv("HUBBUB_DATA_DIR", str(_client_file(tmp_path / "own", token="own")))
    assert _found() == ("127.0.0.1:7", "own")


def test_the_token_in_the_file_is_shown_to_no_other_hub(tmp_path: Path) -> None:
    _client_file(tmp_path)
    assert _found("127.0.0.1:7", data_dir=tmp_path) == ("127.0.0.1:7", "filed")
    assert _found("elsewhere:7", data_dir=tmp_path) == ("elsewhere:7", None)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token": "x"}', '{"address": 1}'])
def test_a_useless_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "client.json").write_text(content)
    with pytest.raises(Unavailable, match=r"client\.json") as refused:
        discover(HubLocation(data_dir=tmp_path))
    assert refused.value.reason == "HUB_UNREACHABLE"


OPTIONS: dict[str, Any] = {
    name: f"the-{name}" for name in ("address", "token", "data_dir", "ca", "cert", "key", "name")
}


def test_a_command_that_is_told_to_people_reaches_the_same_hub_as_the_same_name_without_the_token() -> None:
    told = Settings(**OPTIONS, json=False, connect_timeout_s=None).command("inbox", "answer", "r 1")
    where = "--address the-address --data-dir the-data_dir --ca the-ca --cert the-cert --key the-key --as the-name"
    assert told == f"hubbub {where} inbox answer 'r 1'"


@pytest.mark.parametrize(("given", "patient", "waits"), [(None, True, True), (None, False, False), (3.0, False, True)])
def test_a_command_waits_for_a_hub_if_it_is_endless_or_told_how_long(
    given: float | None, patient: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: dict[str, Any] = {}
    monkeypatch.setattr(hub, "connect", lambda *_, **options: connected.update(options))
    Settings(**OPTIONS, json=False, connect_timeout_s=given).connect(patient=patient)
    assert (connected["patient"], connected["connect_timeout_s"]) == (waits, given or DEFAULT_CONNECT_TIMEOUT_S)


def test_the_file_of_another_user_is_refused_unless_it_is_the_superuser_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _client_file(tmp_path)
    owner = (tmp_path / "client.json").stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner)
    assert _found(data_dir=tmp_path) == ("127.0.0.1:7", "filed")
    uid = {"owner": 4242}
    stat = Path.stat

    def of_another(path: Path, **options: Any) -> Any:
        found = stat(path, **options)
        return os.stat_result((*found[:4], uid["owner"], *found[5:])) if path.name == "client.json" else found

    monkeypatch.setattr(Path, "stat", of_another)
    for look in (lambda: discover(HubLocation(data_dir=tmp_path)), lambda: mcp_url(HubLocation(data_dir=tmp_path))):
        with pytest.raises(Unavailable, match=r"belongs to another user \(uid 4242\)"):
            look()
    assert _found("127.0.0.1:9", "given", tmp_path) == ("127.0.0.1:9", "given")
    uid["owner"] = 0
    assert _found(data_dir=tmp_path) == ("127.0.0.1:7", "filed")
