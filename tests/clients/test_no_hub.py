"""Where there is no hub, and where what is to be sent to one cannot be sent."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub_client.errors import HubbubError, InvalidArgument, Unavailable
from hubbub_client.transport import connection, discovery
from hubbub_client.transport.discovery import HubLocation


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
async def test_who_is_not_patient_looks_for_a_hub_once(
    address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[HubLocation] = []
    monkeypatch.delenv("HUBBUB_ADDRESS", raising=False)
    monkeypatch.setattr(
        connection, "discover_all", lambda where: (looks.append(where), discovery.discover_all(where))[1]
    )
    with anyio.fail_after(60), pytest.raises(Unavailable, match="hub"):
        async with hubbub_client.connect(address, data_dir=tmp_path, connect_timeout_s=600, patient=False):
            pass
    assert len(looks) <= 2  # and once more for the words of the error


async def test_metadata_that_grpc_refuses_is_an_error_and_never_waited_for(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hubbub_client.connect(data_dir=hub.data_dir) as client:
        monkeypatch.setattr(connection.trace_context, "metadata", lambda: [("traceparent", "a\nb")])
        with anyio.fail_after(60), pytest.raises(HubbubError):
            await client.admin.status()


@pytest.mark.parametrize("token", ["x\n", " x\r\n"])
def test_the_line_end_of_a_token_is_not_of_it(token: str, tmp_path: Path) -> None:
    assert discovery.discover(HubLocation("127.0.0.1:1", token, tmp_path)).token == "x"


@pytest.mark.parametrize("token", ["a\nb", "é", "\udcff", "a\x00"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_repeated(token: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as refused:
        discovery.discover(HubLocation("127.0.0.1:1", token, tmp_path))
    assert refused.value.reason == "TOKEN_INVALID"
    assert token not in refused.value.message
