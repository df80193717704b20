"""Words of a command that are JSON or addresses only nearly, and a `client.json` that is none."""

import asyncio
import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from hubbub_cli.output.printer import print_json
from hubbub_cli.run import exit_status
from hubbub_client import hub
from hubbub_client.errors import HubbubError, InvalidArgument, Unavailable
from hubbub_client.transport import discovery
from hubbub_client.transport.discovery import HubLocation

from .test_at_a_terminal import COMMANDS, ROOT, Nobody


def ran(*words: str) -> tuple[int, Any]:
    """The status with which a command ends, and the error that it tells, if any."""
    said = StringIO()
    with (
        patch.object(sys, "stdin", Nobody()),
        patch.object(sys, "stdout", StringIO()),
        patch.object(sys, "stderr", said),
    ):
        try:
            ROOT.main(args=["--json", *words], standalone_mode=False, prog_name="hubbub")
            status = 0
        except BaseException as error:
            status = exit_status.report_error(error, as_json=True)
    return status, json.loads(said.getvalue().splitlines()[-1]) if said.getvalue() else None


NUMBERS = ('{"a": NaN}', '{"a": [Infinity]}', '{"a": -Infinity}', '{"a": 1e999}', "NaN")
DEEP = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize("text", [*NUMBERS, DEEP, '{"a": "\udcff"}'], ids=lambda text: ascii(text)[:20])
@pytest.mark.parametrize(
    "words",
    [("call", "demo", "t"), ("send", "demo", "tools/list"), ("inbox", "answer", "r", "--accept")],
    ids=lambda words: words[0],
)
async def test_what_json_cannot_say_is_wrong_usage_and_never_sent(hub: Any, words: tuple[str, ...], text: str) -> None:
    with anyio.fail_after(60):
        status, error = await anyio.to_thread.run_sync(lambda: ran("--data-dir", str(hub.data_dir), *words, text))
    assert (status, error["reason"]) == (2, "USAGE")
    assert hub.seen == []


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:" + "9" * 5000, "\udcff:7"])
def test_an_address_that_none_can_be_is_refused_by_name(address: str, tmp_path: Path) -> None:
    status, error = ran("--data-dir", str(tmp_path), "--address", address, "status")
    assert (status, error["reason"]) == (1, "ADDRESS_INVALID")


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"address":' * 50_000, b'{"address": ["127.0.0.1:1"]}', b"\xff"])
def test_a_client_file_that_cannot_be_read_names_no_hub(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "client.json").write_bytes(content)
    with pytest.raises(Unavailable, match=r"client\.json"):
        discovery.discover(HubLocation(data_dir=tmp_path))


@pytest.mark.parametrize(
    "content",
    [b'{"address": "\\ud800:1"}', b'{"address": "127.0.0.1:1", "token": "\\ud800"}', b'{"address": "x:99999"}'],
)
def test_a_client_file_with_what_cannot_be_sent_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "client.json").write_bytes(content)
    with pytest.raises(InvalidArgument) as refused:
        discovery.discover(HubLocation(data_dir=tmp_path))
    assert refused.value.reason in ("ADDRESS_INVALID", "TOKEN_INVALID")
    refused.value.message.encode()


def test_numbers_that_json_does_not_have_are_printed_as_null(capsys: pytest.CaptureFixture[str]) -> None:
    inf = float("inf")
    print_json({"a": inf, "b": [-inf, {"c": float("nan")}], "d": (inf, 1.5), "e": 10**400})

    def no_number(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    printed = json.loads(capsys.readouterr().out, parse_constant=no_number)
    assert printed == {"a": None, "b": [None, {"c": None}], "d": [None, 1.5], "e": 10**400}


WATCHES = {"calls", "catalog", "events", "inbox", "servers", "tasks"}


def test_a_command_that_ends_by_itself_does_not_wait_for_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patience: dict[str, list[bool]] = {}
    current = ""

    def connect(*_: Any, patient: bool, **__: Any) -> Any:
        patience.setdefault(current, []).append(patient)
        raise HubbubError("no hub", reason="HUB_UNREACHABLE")

    async def no_process(*_: Any, **__: Any) -> Any:
        raise OSError("no process is started here")

    monkeypatch.setattr(hub, "connect", connect)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)  # `doctor` would have the configuration checked
    # Without it, they say at once that no hub has run here.
    (tmp_path / "client.json").write_text('{"address": "127.0.0.1:1", "token": "x"}')
    for words in COMMANDS:
        current = " ".join(words)
        ran("--data-dir", str(tmp_path), *words)
    assert {words for words, said in patience.items() if said != [False]} == {
        "subscribe x x",
        *(f"{noun} watch" for noun in WATCHES),
    }
    assert len(patience) > 40
