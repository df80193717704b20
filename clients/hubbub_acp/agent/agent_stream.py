"""The messages of an agent, as a transport of the ACP SDK: whole, well-formed, bounded, and updates in order.

Updates do not go through the SDK, which makes a task of each: they are applied here, as they come, so that each is
before the response that follows it, and a hundred thousand of them take no memory.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import orjson

from hubbub_acp.agent.agent_process import AgentProcess
from hubbub_acp.log import log
from hubbub_acp.plain_text import make_line
from hubbub_acp.values import as_object, read_members
from hubbub_local.stdio import BEGINNING_BYTES, LineTooLong, PipeLineWriter, read_lines

LINE_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of a message of the agent."""

YIELD_MESSAGES: Final = 32
"""After so many messages, `receive` lets other tasks run."""

MAX_REQUESTS: Final = 200
"""The most requests of the agent at one time; a further one is not read until one is answered."""

WITHDRAWN: Final = "hubbub/withdrawn"
"""A param that each request gets here: a future, which is done once the agent has taken the request back."""

LOGGED_STRAYS: Final = 5
"""The most lines that are no messages to be logged; further ones are only counted."""

PARSE_ERROR, INTERNAL_ERROR = -32700, -32603

_HALF_CHARACTERS: Final = re.compile(r"[\ud800-\udfff]")


class AgentStream:
    """A transport: `receive` returns the agent's messages, `send` writes messages to it. `on_update` gets its updates.

    `on_loss` is called when a request, or a line too long to tell what it is, could not be read. Its argument says
    whether it was a request, which has been refused then.
    """

    def __init__(
        self,
        process: AgentProcess,
        on_update: Callable[[str, Mapping[str, Any]], None],
        on_loss: Callable[[bool], None],
    ) -> None:
        """Start the task that writes queued messages to the process; `receive` reads from it."""
        self._on_update = on_update
        self._on_loss = on_loss
        self._lines = read_lines(process.stdout, LINE_BYTES)
        self._writer = PipeLineWriter(process.stdin, self._note_broken_pipe)
        self._writing = asyncio.create_task(self._writer.run())
        self._open_requests = 0
        self._withdrawals: dict[str | int, asyncio.Future[None]] = {}
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self.is_open = True
        self.stray_count = 0
        self.first_stray = ""
        self._lines_read = 0

    async def receive(self) -> dict[str, Any] | None:
        """Return the next request, with WITHDRAWN among its params, or the next response; None at the end.

        Session updates and withdrawals of requests that come before that are handled here.
        """
        async for line in self._lines:
            self._lines_read += 1
            if self._lines_read % YIELD_MESSAGES == 0:
                await asyncio.sleep(0)  # lets other tasks run
            message = None if isinstance(line, LineTooLong) else _parse_message(line)
            if message is None:
                if (failure := await self._handle_unreadable_line(line)) is not None:
                    return failure
            elif message.get("method") == "session/update" and "id" not in message:
                self._pass_update(message.get("params"))
            elif "method" in message and "id" not in message:
                if message["method"] == "$/cancel_request":
                    self._withdraw_request(as_object(message.get("params")).get("requestId"))
            elif "method" in message:
                await self._acquire_request_slot()
                withdrawn = self._withdrawals[message["id"]] = asyncio.get_running_loop().create_future()
                return {**message, "params": {**as_object(message.get("params")), WITHDRAWN: withdrawn}}
            else:
                return message
        self.is_open = False
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Queue a message, and wait while the agent has too much to read. A response releases the slot of its request.

        If the agent reads no more, a response is dropped, and for anything else ConnectionError is raised.
        """
        is_response = "method" not in message
        if is_response:
            self._release_request_slot()
            self._withdrawals.pop(message["id"], None)
        if not self.is_open:
            if is_response:
                return  # the agent does not wait for it any more
            raise ConnectionError("the agent reads no more")
        self._writer.queue_line(orjson.dumps(message))
        await self._writer.wait_for_capacity()

    async def close(self) -> None:
        """Stop writing and reading."""
        self.is_open = False
        self._writing.cancel()
        await asyncio.wait({self._writing})

    def _note_broken_pipe(self) -> None:
        """Note that the agent reads no more."""
        self.is_open = False

    async def _handle_unreadable_line(self, line: bytes | LineTooLong) -> dict[str, Any] | None:
        """Count a line that cannot be read. Refuse a request; return an error in place of a response, else None.

        `on_loss` is called for a request, and for a line that is too long and no response.
        """
        is_long = isinstance(line, LineTooLong)
        beginning = line.beginning if isinstance(line, LineTooLong) else line[:BEGINNING_BYTES]
        reason = f"it has more than {LINE_BYTES} bytes" if is_long else "it cannot be read as JSON"
        self._note_stray(f"a line of more than {LINE_BYTES} bytes" if is_long else beginning)
        members = read_members(beginning)
        is_request = "id" in members and "method" in members
        if is_request:
            error = {"code": PARSE_ERROR, "message": f"the client passed this request over: {reason}"}
            self._writer.queue_line(orjson.dumps({"jsonrpc": "2.0", "id": members["id"], "error": error}))
            await self._writer.wait_for_capacity()
        elif isinstance(members.get("id"), int):  # a response: the ids of this program's requests are integers
            error = {"code": INTERNAL_ERROR, "message": f"its response was passed over: {reason}", "data": None}
            return {"id": members["id"], "error": error}
        if is_long or is_request:
            self._on_loss(is_request)
        return None

    def _pass_update(self, raw_params: object) -> None:
        """Pass a session update on to `on_update`; count one without a session or an update as a stray line."""
        params = as_object(raw_params)
        session_id, update = params.get("sessionId"), params.get("update")
        if isinstance(session_id, str) and isinstance(update, dict):
            self._on_update(session_id, cast("dict[str, Any]", update))
        else:
            self._note_stray("a session/update without a session or an update")

    def _withdraw_request(self, request_id: object) -> None:
        """Tell the handler of a request, by its future, that the agent has withdrawn the request."""
        withdrawn = self._withdrawals.get(request_id) if isinstance(request_id, str | int) else None
        if withdrawn is not None and not withdrawn.done():
            withdrawn.set_result(None)

    def _note_stray(self, stray: bytes | str) -> None:
        """Count a line that is no message of ACP; log the first LOGGED_STRAYS of them."""
        self.stray_count += 1
        text = make_line(stray if isinstance(stray, str) else stray.decode(errors="replace"), 300)
        self.first_stray = self.first_stray or text
        if self.stray_count <= LOGGED_STRAYS:
            log(f"hubbub acp: the agent wrote what is no message of ACP: {text}")

    async def _acquire_request_slot(self) -> None:
        """Wait until less than MAX_REQUESTS requests of the agent are open, and count one more."""
        await self._has_capacity.wait()
        self._open_requests += 1
        if self._open_requests >= MAX_REQUESTS:
            self._has_capacity.clear()

    def _release_request_slot(self) -> None:
        """Count an open request of the agent as answered, so that a waiting one can be read."""
        self._open_requests -= 1
        self._has_capacity.set()


def _parse_message(line: bytes) -> dict[str, Any] | None:
    """Return a JSON-RPC message in the form that the SDK relies on; None for anything else."""
    try:
        message: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        message = _parse_leniently(line)
    if not isinstance(message, dict):
        return None
    found = cast("dict[str, Any]", message)
    if "method" in found:
        is_id_valid = "id" not in found or isinstance(found["id"], str | int)
        return found if is_id_valid and isinstance(found["method"], str) else None
    if type(found.get("id")) is not int:  # for isinstance, true and false would be integers
        return None
    if "result" in found:
        return found
    error = cast("dict[str, Any]", found["error"]) if isinstance(found.get("error"), dict) else {}
    code, text = error.get("code"), error.get("message")
    return {
        "id": found["id"],
        "error": {
            "code": code if isinstance(code, int) else -32603,
            "message": text if isinstance(text, str) else "the agent gave no reason",
            "data": error.get("data"),
        },
    }


def _parse_leniently(line: bytes) -> Any:
    """Return the value of a line of JSON with U+FFFD for each half character; None for what is no JSON.

    JavaScript writes half characters (lone surrogates) where it cuts a text, and orjson refuses them.
    """
    try:
        text = json.dumps(json.loads(line.decode(errors="replace")), ensure_ascii=False)
        return orjson.loads(_HALF_CHARACTERS.sub("\ufffd", text))
    except (ValueError, RecursionError):
        return None
