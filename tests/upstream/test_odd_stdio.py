"""What servers write to stdout otherwise than JSON-RPC says: it costs no call and no connection."""

import json
import sys
from itertools import count
from typing import Any

import anyio
import pytest

from hubbubd.errors import PeerError, UpstreamError
from hubbubd.upstream.messages import dispatcher

from ..raising import raising
from .conftest import Connect, Recorder, open_once

pytestmark = pytest.mark.usefixtures("processes")

SERVER = """
import json, sys
def send(text): print(text, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    if message["method"] == "initialize":
        info = {"name": "odd", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/call":
        for each in json.loads(sys.argv[1]):
            send(each.replace("ID", str(message["id"])))
        continue
    else:
        result = {}
    send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
"""
CALL = ("tools/call", {"name": "any"})
DONE = '{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}'


def writing(*lines: str) -> dict[str, Any]:
    """A server that writes these lines when a tool is called; ID in them is the call's."""
    return {"command": sys.executable, "args": ("-c", SERVER, json.dumps(lines)), "protocol": "2025-11-25"}


@pytest.mark.parametrize(
    "line",
    [
        '{"level":30,"time":1764355200000,"msg":"request","path":"/x"}',
        '{"level":30,"method":"GET","id":"ID","msg":"request"}',
        '{"level":"error","error":"connection refused","msg":"request"}',
        '{"level":"error","error":{"code":5,"message":"no"},"result":[]}',
        "null",
        '"Listening"',
        "Loading weights: 10 %",
    ],
)
async def test_a_log_on_stdout_costs_nothing_and_is_shown(line: str, connect: Connect, recorder: Recorder) -> None:
    async with connect(**writing(*[line] * 1500, DONE)) as link:
        assert await link.request(*CALL) == {"content": []}
        await recorder.until(lambda: len(recorder.stderr) > 100)
        assert recorder.stderr[0].startswith("stdout: ")
        assert await link.request("ping", None) == {}


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the table is locked"}}',
        '{"jsonrpc":"2.0","error":{"code":-32603,"message":"the table is locked"}}',
        '{"jsonrpc":"2.0","id":ID,"error":"the table is locked"}',
        '{"jsonrpc":"2.0","id":ID,"error":{"code":"E7","message":"the table is locked"}}',
        '{"jsonrpc":"2.0","id":ID.0,"error":{"code":-32603,"message":"the table is locked"}}',
    ],
)
async def test_the_error_of_a_server_reaches_the_caller_in_its_own_words(line: str, connect: Connect) -> None:
    async with connect(**writing(line)) as link:
        with pytest.raises(PeerError) as caught:
            await link.request(*CALL)
    assert caught.value.message == "the table is locked"


async def test_an_id_may_have_a_fraction_of_nothing(connect: Connect) -> None:
    async with connect(**writing('{"jsonrpc":"2.0","id":ID.0,"result":{"content":[]}}')) as link:
        assert await link.request(*CALL) == {"content": []}


@pytest.mark.parametrize("id_", ["0", '"x"', "4711"])
async def test_an_answer_that_nobody_asked_for_is_named(id_: str, connect: Connect, recorder: Recorder) -> None:
    odd = writing(f'{{"jsonrpc":"2.0","id":{id_},"result":{{"content":[]}}}}')
    async with connect(**odd) as link, anyio.create_task_group() as tasks:
        tasks.start_soon(link.request, *CALL)
        await recorder.until(lambda: recorder.notes)
        name = id_.strip('"')
        assert link.missing_response_hint() == f"it answered id {name}, which nobody asked"
        tasks.cancel_scope.cancel()


async def test_an_answer_whose_id_is_a_text_costs_the_same_after_many_requests(
    connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Were the ids before looked through, this would not end.
    monkeypatch.setattr(dispatcher, "count", lambda first: count(10**12 + first))
    async with connect(**writing('{"jsonrpc":"2.0","id":"x","result":{}}', DONE)) as link:
        assert await link.request(*CALL) == {"content": []}
    assert recorder.notes


async def test_a_server_that_prints_before_it_speaks_is_quoted_when_its_time_is_over(connect: Connect) -> None:
    script = "import time; print('Usage: server --port PORT', flush=True); time.sleep(60)"
    with raising(UpstreamError, "CONNECTION_TIMEOUT", match="Usage: server --port PORT"):
        await open_once(connect(command=sys.executable, args=("-c", script), connect_timeout_s=2))


@pytest.mark.parametrize(("level", "shown"), [("warn", "warning"), ("FATAL", "critical"), (30, "info"), ("x", "info")])
async def test_a_log_message_is_shown_under_the_nearest_level(
    level: Any, shown: str, connect: Connect, recorder: Recorder
) -> None:
    told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "message": "low on disk"}}
    async with connect(**writing(json.dumps(told), DONE)) as link:
        await link.request(*CALL)
        await recorder.until(lambda: recorder.notifications)
    (_, params, _) = recorder.notifications[0]
    assert (params["level"], params["data"]) == (shown, "low on disk")
