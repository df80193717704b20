"""What a bridge tells its host and the hub, with and without a hub."""

import json
from pathlib import Path
from typing import Any

import pytest

from hubbub_bridge.conversation import MAX_REQUESTS, Conversation
from hubbub_bridge.options import BridgeOptions
from hubbub_bridge.response_cache import ResponseCache
from hubbub_client.transport.discovery import HubLocation

LONGEST = 1000
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
ABOUT: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "h", "version": "2"},
}
TOOLS = {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}
STATELESS = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


def request(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def response(id_: Any, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


class Sides:
    """A conversation with what either side has received."""

    def __init__(self, directory: Path) -> None:
        self.host: list[Any] = []
        self.hub: list[Any] = []
        self.again: list[Any] = []
        self.waits = 0
        self.talk = Conversation(
            lambda raw: self.host.append(json.loads(raw)), ResponseCache(directory, "way"), "0.1.0", self._wait
        )

    def _wait(self) -> None:
        self.waits += 1

    def says(self, *messages: Any) -> None:
        """The host says these."""
        for message in messages:
            self.talk.handle_host_message(json.dumps(message).encode())

    def connect(self) -> None:
        self.talk.on_connected(self._send, LONGEST)

    def _send(self, raw: bytes, again: bool) -> None:
        self.hub.append(json.loads(raw))
        if again:
            self.again.append(self.hub[-1]["id"])

    def lose(self, reached: int = 1000) -> None:
        """The hub is gone, after it may have taken so many messages."""
        self.talk.on_disconnected(reached)

    def answers(self, *messages: Any, draining: bool = False) -> None:
        """The hub says these."""
        for message in messages:
            self.talk.handle_hub_message(json.dumps(message).encode(), draining=draining)

    def told(self) -> list[Any]:
        """What the host received since the last time."""
        said, self.host[:] = list(self.host), []
        return said

    def heard(self) -> list[Any]:
        """What the hub received since the last time."""
        said, self.hub[:] = list(self.hub), []
        return said


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


def shaken(sides: Sides) -> Sides:
    """A host that has had its handshake with a hub."""
    sides.connect()
    sides.says(request(0, "initialize", **HELLO))
    sides.answers(response(0, **ABOUT))
    sides.says(note("notifications/initialized"))
    sides.told()
    sides.heard()
    return sides


def test_with_a_hub_messages_pass_unchanged_in_both_directions(sides: Sides) -> None:
    shaken(sides)
    asked = request("x", "tools/call", name="a", arguments={"f": 1.0})
    progress = note("notifications/progress", progressToken=1, progress=1)
    done = response("x", content=[], extra={"big": 2**70})
    sides.says(asked)
    sides.answers(progress, done)
    assert sides.heard() == [asked]
    assert sides.told() == [progress, done]


def test_the_handshake_is_answered_at_once_by_what_the_hub_said_last(tmp_path: Path) -> None:
    shaken(Sides(tmp_path))
    later = Sides(tmp_path)
    later.says(request(7, "initialize", **HELLO))
    assert later.told() == [response(7, **ABOUT)]
    assert later.waits == 0


def test_another_revision_is_not_answered_by_what_was_said_in_this_one(tmp_path: Path) -> None:
    shaken(Sides(tmp_path))
    later = Sides(tmp_path)
    later.says(request(7, "initialize", **{**HELLO, "protocolVersion": "2025-11-25"}))
    assert later.told() == []


def test_a_handshake_that_was_answered_without_the_hub_is_repeated_to_it_silently(tmp_path: Path) -> None:
    shaken(Sides(tmp_path))
    later = Sides(tmp_path)
    hello, ready = request(7, "initialize", **HELLO), note("notifications/initialized")
    later.says(hello, ready)
    later.told()
    later.connect()
    assert later.heard() == [hello, ready]
    newer = {**ABOUT, "instructions": "new"}
    later.answers(response(7, **newer))
    assert later.told() == []
    third = Sides(tmp_path)
    third.says(request(1, "initialize", **HELLO))
    assert third.told() == [response(1, **newer)]


@pytest.mark.parametrize(("wanted", "given"), [("2025-03-26", "2025-03-26"), ("2099-01-01", "2025-11-25")])
def test_a_host_that_starts_before_the_first_hub_gets_a_handshake_that_is_likely(
    sides: Sides, wanted: str, given: str
) -> None:
    sides.says(request(1, "initialize", **{**HELLO, "protocolVersion": wanted}))
    assert (sides.told(), sides.waits) == ([], 1)
    sides.talk.answer_from_cache()
    (said,) = sides.told()
    assert (said["result"]["protocolVersion"], said["result"]["serverInfo"]["name"]) == (given, "hubbub")
    assert said["result"]["capabilities"]["tools"] == {"listChanged": True}
    sides.connect()
    sides.answers(response(1, **ABOUT))
    assert sides.told() == []


def test_so_does_one_of_a_revision_without_a_handshake(sides: Sides) -> None:
    sides.says(request(1, "server/discover", **STATELESS))
    sides.talk.answer_from_cache()
    (said,) = sides.told()
    assert "2026-07-28" in said["result"]["supportedVersions"]
    assert said["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["version"] == "0.1.0"


def test_without_a_hub_the_tools_are_those_it_listed_last_and_the_host_is_told_when_it_is_back(tmp_path: Path) -> None:
    first = shaken(Sides(tmp_path))
    first.says(request(1, "tools/list"))
    first.answers(response(1, **TOOLS))
    later = Sides(tmp_path)
    later.says(request(1, "initialize", **HELLO), request(2, "tools/list"))
    later.told()
    later.talk.answer_from_cache()
    assert later.told() == [response(2, **TOOLS)]
    later.connect()
    assert [message["method"] for message in later.told()] == ["notifications/tools/list_changed"]
    assert [message["method"] for message in later.heard()] == ["initialize"]


def test_nothing_is_made_up_for_a_list_of_tools_that_nobody_knows(sides: Sides) -> None:
    sides.says(request(2, "tools/list"))
    sides.talk.answer_from_cache()
    assert sides.told() == []
    sides.connect()
    assert [message["id"] for message in sides.heard()] == [2]


def test_a_list_is_waited_for_while_there_is_a_hub_however_slow(tmp_path: Path) -> None:
    first = shaken(Sides(tmp_path))
    first.says(request(1, "tools/list"))
    first.answers(response(1, **TOOLS))
    first.told()
    first.says(request(2, "tools/list"))
    first.talk.answer_from_cache()
    assert first.told() == []


def test_a_request_without_a_response_is_sent_again_to_the_next_hub(sides: Sides) -> None:
    shaken(sides)
    call = request(5, "tools/call", name="a")
    sides.says(call)
    sides.heard()
    sides.lose()
    sides.connect()
    assert [message.get("id") for message in sides.heard()] == [0, None, 5]  # after the handshake
    sides.answers(response(0, **ABOUT), response(5, content=[]))
    assert sides.told() == [response(5, content=[])]
    sides.lose()
    sides.connect()
    assert [message.get("id") for message in sides.heard()] == [0, None]  # it has its response


def test_a_request_that_a_hub_refuses_while_it_shuts_down_goes_to_the_next_one_and_no_further(sides: Sides) -> None:
    shaken(sides)
    sides.says(request(5, "tools/call", name="a"))
    refused = {
        "jsonrpc": "2.0",
        "id": 5,
        "error": {"code": -32000, "message": "m", "data": {"reason": "SHUTTING_DOWN"}},
    }
    sides.answers(refused, draining=True)
    assert sides.told() == []
    sides.lose()
    sides.connect()
    assert sides.heard()[-1]["id"] == 5
    sides.answers(refused, draining=True)
    assert sides.told() == [refused]


def test_a_hub_behind_the_hub_that_shuts_down_is_an_error_of_the_request(sides: Sides) -> None:
    shaken(sides)
    sides.says(request(5, "tools/call", name="a"))
    data = {"reason": "SHUTTING_DOWN"}
    refused = {"jsonrpc": "2.0", "id": 5, "error": {"code": -32000, "message": "m", "data": data}}
    sides.answers(refused)
    assert sides.told() == [refused]
    sides.lose()
    sides.connect()
    assert [message.get("id") for message in sides.heard()].count(5) == 1


def test_only_what_the_lost_hub_may_have_taken_is_sent_as_sent_before(sides: Sides) -> None:
    shaken(sides)  # two messages
    sides.says(*(request(n, "tools/call", name="a") for n in (1, 2, 3)))
    sides.lose(reached=4)
    sides.says(request(4, "tools/call", name="a"))
    sides.connect()
    assert sides.again == [1, 2]
    sides.lose(reached=0)  # which changes nothing about the hub before
    sides.connect()
    assert sides.again == [1, 2, 1, 2]


def test_what_a_hub_refused_while_it_shut_down_is_not_sent_as_sent_before(sides: Sides) -> None:
    shaken(sides)
    sides.says(request(1, "tools/call", name="a"))
    sides.answers(
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "", "data": {"reason": "SHUTTING_DOWN"}}},
        draining=True,
    )
    sides.lose()
    sides.connect()
    assert (sides.again, sides.heard()[-1]["id"]) == ([], 1)


def test_what_the_host_has_cancelled_is_not_sent_again_and_a_late_response_goes_nowhere(sides: Sides) -> None:
    shaken(sides)
    cancelled = note("notifications/cancelled", requestId=5)
    sides.says(request(5, "tools/call", name="a"), cancelled)
    assert sides.heard()[-1] == cancelled
    sides.answers(response(5, content=[]))
    sides.lose()
    sides.connect()
    assert sides.told() == []
    assert 5 not in [message.get("id") for message in sides.heard()]


def test_a_cancel_of_a_request_that_has_its_response_goes_nowhere(sides: Sides) -> None:
    shaken(sides)
    sides.says(request(5, "tools/call", name="a"))
    sides.answers(response(5, content=[]))
    sides.says(note("notifications/cancelled", requestId=5))
    assert "notifications/cancelled" not in [message.get("method") for message in sides.heard()]


def test_open_questions_are_withdrawn_at_the_host_when_the_hub_is_lost(sides: Sides) -> None:
    shaken(sides)
    sides.answers(request("q1", "elicitation/create", message="?"), request("q2", "roots/list"))
    sides.says(response("q2", roots=[]))
    assert [message["id"] for message in sides.heard()] == ["q2"]
    sides.told()
    sides.lose()
    (withdrawn,) = sides.told()
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", "q1")
    sides.connect()
    sides.heard()
    sides.says(response("q1", action="accept"))  # a host may have sent it already
    assert sides.heard() == []


def test_the_state_of_a_session_is_made_again_at_the_next_hub(sides: Sides) -> None:
    shaken(sides)
    level = request(1, "logging/setLevel", level="debug")
    kept, left, refused = (request(n, "resources/subscribe", uri=f"x:{n}") for n in (2, 3, 4))
    sides.says(level, kept, left, refused, request(5, "resources/unsubscribe", uri="x:3"))
    sides.answers(*(response(n) for n in (1, 2, 3, 5)))
    sides.answers({"jsonrpc": "2.0", "id": 4, "error": {"code": 1, "message": "no"}})
    sides.told()
    sides.heard()
    sides.lose()
    sides.connect()
    assert sides.heard()[2:] == [level, kept]
    sides.answers(response(1), response(2))
    assert sides.told() == []  # no list was shown, so none has changed


def test_each_list_that_the_host_has_may_have_changed_with_the_hub(sides: Sides) -> None:
    shaken(sides)
    sides.says(request(1, "tools/list"), request(2, "prompts/list"), request(3, "skills/list"))
    sides.answers(response(1, **TOOLS), response(2, prompts=[]), response(3, skills=[]))
    sides.told()
    sides.lose()
    sides.connect()
    names = ("prompts", "resources", "tools")
    assert [message["method"] for message in sides.told()] == [f"notifications/{name}/list_changed" for name in names]


def test_a_host_without_a_handshake_is_told_on_its_own_subscription(sides: Sides) -> None:
    sides.connect()
    listen = request("sub", "subscriptions/listen", notifications={"toolsListChanged": True}, **STATELESS)
    sides.says(listen, request(1, "tools/list", **STATELESS), request(2, "prompts/list", **STATELESS))
    sides.answers(response(1, **TOOLS), response(2, prompts=[]))
    sides.told()
    sides.heard()
    sides.lose()
    sides.talk.fail_requests("away")
    sides.connect()
    assert sides.heard() == [listen]
    (changed,) = sides.told()
    assert changed["method"] == "notifications/tools/list_changed"
    assert changed["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}


def test_when_the_hub_stays_away_each_request_fails_with_what_to_do(sides: Sides) -> None:
    sides.says(request(1, "initialize", **HELLO), request(2, "tools/call", name="a"), request("3", "tools/list"))
    sides.talk.fail_requests("start it")
    wrong = [(message["id"], message["error"]["code"], message["error"]["message"]) for message in sides.told()]
    assert wrong == [(2, -32000, "start it"), ("3", -32000, "start it")]


def test_a_host_that_pings_is_answered_with_a_hub_or_without(sides: Sides) -> None:
    sides.says(request(1, "ping"))
    assert sides.told() == [response(1)]


def test_the_ids_1_and_text_1_are_two(sides: Sides) -> None:
    shaken(sides)
    sides.says(request(1, "tools/list"), request("1", "tools/list"))
    sides.answers(response("1", **TOOLS), response(1, **TOOLS))
    assert [message["id"] for message in sides.told()] == ["1", 1]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        *((b"{", -32700), (b"\xff", -32700), (b"[" * 100_000, -32700), (b"[]", -32600), (b"7", -32600)),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"), -32700),
        *(
            (b'{"jsonrpc":"2.0","id":' + id_ + b',"method":"ping"}', -32600)
            for id_ in (b"true", b"null", b"[1]", b"{}", b"1e999", b'"' + b"x" * 257 + b'"', b"1" * 257)
        ),
    ],
)
def test_what_is_no_message_is_answered_by_the_bridge(sides: Sides, line: bytes, code: int) -> None:
    shaken(sides)
    sides.talk.handle_host_message(line)
    (said,) = sides.told()
    assert (said["id"], said["error"]["code"]) == (None, code)
    assert sides.heard() == []


def test_the_host_hears_of_a_message_that_the_hub_could_not_read(sides: Sides) -> None:
    shaken(sides)
    unread = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "nested too deeply"}}
    sides.answers(unread)
    assert sides.told() == [unread]


def test_a_message_that_the_hub_would_not_read_is_refused_before_it_is_sent(sides: Sides) -> None:
    shaken(sides)
    sides.answers(request("q", "elicitation/create", message="?"))
    sides.told()
    long = "x" * LONGEST
    sides.says(request(1, "tools/call", name=long), note("notifications/x", text=long), response("q", content=long))
    (said,) = sides.told()
    assert (said["id"], said["error"]["code"]) == (1, -32600)
    (instead,) = sides.heard()
    assert (instead["id"], instead["error"]["code"]) == ("q", -32600)


def test_a_request_with_the_id_of_another_is_refused(sides: Sides) -> None:
    sides.says(request(1, "tools/list"), request(1, "prompts/list"))
    (said,) = sides.told()
    assert (said["id"], said["error"]["code"]) == (1, -32600)


def test_requests_that_wait_are_bounded(sides: Sides) -> None:
    sides.says(*(request(n, "tools/call") for n in range(MAX_REQUESTS + 1)))
    (said,) = sides.told()
    assert (said["id"], said["error"]["code"]) == (MAX_REQUESTS, -32000)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"initialize 2025-06-18": 7}'])
def test_a_damaged_memory_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    shaken(Sides(tmp_path))
    (file,) = (tmp_path / "mcp").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(content)
    later = Sides(tmp_path)
    later.says(request(7, "initialize", **HELLO))
    assert later.told() == []


def test_a_directory_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    (tmp_path / "mcp").write_text("in the way")
    shaken(Sides(tmp_path))
    shaken(Sides(tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()


def test_what_the_hub_gave_last_is_kept_in_the_data_directory_that_hubs_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HUBBUB_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative" / "hubbub").mkdir(parents=True)
    for given, base, kept in (
        (None, "", ".local/share/hubbub"),
        (None, str(tmp_path / "share"), "share/hubbub"),
        (None, "relative", ".local/share/hubbub"),
        (str(tmp_path / "own"), str(tmp_path / "share"), "own"),
    ):
        monkeypatch.setenv("XDG_DATA_HOME", base)
        (tmp_path / kept).mkdir(parents=True, exist_ok=True)
        BridgeOptions(where=HubLocation(data_dir=given), version="1").open_cache().store("tools/list", "", TOOLS)
        (file,) = (tmp_path / kept / "mcp").iterdir()
        file.unlink()
