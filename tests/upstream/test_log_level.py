"""The level of log messages on the wire: with each request of 2026-07-28, and with none before it."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .conftest import Connect, Scripted
from .test_era import modern


async def test_the_level_of_log_messages_goes_with_each_request_that_names_none(
    scripted: Scripted, connect: Connect
) -> None:
    key = "io.modelcontextprotocol/logLevel"
    levels: list[object] = []

    async def note(request: Request) -> Response:
        message = await request.json()
        levels.append(message["params"]["_meta"].get(key))
        return JSONResponse(
            {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "resultType": "complete"}}
        )

    modern(scripted)
    scripted.replaced["tools/call"] = note
    async with connect(url=scripted.url) as link:
        await link.request("tools/call", {"name": "any"})
        link.log_level = "notice"
        await link.request("tools/call", {"name": "any"})
        await link.request("tools/call", {"name": "any", "_meta": {key: "debug"}})
    assert levels == [None, "notice", "debug"]


async def test_a_server_with_a_handshake_is_sent_no_level_with_a_request(scripted: Scripted, connect: Connect) -> None:
    seen: list[object] = []

    async def note(request: Request) -> Response:
        message = await request.json()
        seen.append(message["params"])
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

    scripted.replaced["tools/call"] = note
    async with connect(url=scripted.url, protocol="2025-11-25") as link:
        meta = {"io.modelcontextprotocol/logLevel": "debug", "own": 1}
        await link.request("tools/call", {"name": "any", "_meta": meta})
    assert seen == [{"name": "any", "_meta": {"own": 1}}]
