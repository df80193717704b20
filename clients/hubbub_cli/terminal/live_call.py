"""A call that somebody waits for at the terminal: its progress on stderr, and its questions."""

import contextlib
import sys
from typing import Any, Unpack

import anyio

from hubbub_cli.output.printer import note
from hubbub_cli.output.progress_line import ProgressLine
from hubbub_cli.run.session import Settings
from hubbub_cli.terminal.answer import ask
from hubbub_cli.terminal.wait import settled
from hubbub_client.data.records import PendingRequest, Progress
from hubbub_client.data.watch_events import Upsert
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.options import CallCallbacks, CallOptions
from hubbub_frontend import samples
from hubbub_frontend.display.records import (
    describe_disconnection,
    describe_fault,
    describe_progress,
    outcome,
    question_text,
)

# Show progress only of calls that take longer than this, seconds.
SHOWN_AFTER_S = 0.5
# Longest that a result waits for the end of the questions before it, which comes on another stream; seconds.
LAST_NEWS_S = 5.0


class LiveCall:
    """Shows one call to the person who waits for it."""

    def __init__(self, hub: Hub, settings: Settings) -> None:
        self._hub = hub
        self._settings = settings
        self._meter = ProgressLine(moving=not settings.json)
        self._server = ""
        self._now: tuple[str, float | None, float | None] = ("", None, None)
        self._waiting: dict[str, str] = {}
        self._over: dict[str, anyio.Event] = {}
        self._asking = anyio.Lock()
        self._group = anyio.create_task_group()

    async def run(
        self,
        server: str,
        method: str,
        params: dict[str, Any] | None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Return the MCP result. Raises HubbubError."""
        failure: HubbubError | None = None
        result: Any = None
        self._server = server
        self._now = (f"{server}: {(params or {}).get('name') or method}", None, None)
        async with self._group as group:
            group.start_soon(self._appear)
            try:
                told: CallCallbacks = {
                    "on_progress": self._progress,
                    "on_pending": self._pending,
                    "on_perhaps_pending": self._perhaps,
                }
                result = await self._hub.call(server, method, params, **{**options, **told})
            except HubbubError as error:
                failure = error
            finally:
                self._meter.hide()
            with anyio.move_on_after(LAST_NEWS_S):
                for over in list(self._over.values()):
                    await over.wait()
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return result

    async def _appear(self) -> None:
        await anyio.sleep(SHOWN_AFTER_S)
        self._draw()
        with contextlib.suppress(HubbubError):  # a caller may call servers that it may not watch
            await self._watch_server()

    async def _watch_server(self) -> None:
        """Say that the server is not connected and why, as often as that changes: until then its calls wait."""
        said = ""
        async with contextlib.aclosing(self._hub.servers.watch([self._server])) as events:
            async for event in events:
                match event:
                    case Upsert(record=server) if server.error and server.state != "connected":
                        if said != (said := describe_fault(server.error)):
                            self._meter.hide()
                            note(describe_disconnection(server))
                            self._draw()
                    case Upsert(record=server) if server.state == "connecting" and not said:
                        said = server.state
                        self._meter.hide()
                        note(f"{server.name} is connecting; the call waits for it")
                        self._draw()
                    case _:
                        pass

    def _draw(self) -> None:
        """Draw the progress line, unless the person is typing."""
        if self._asking.locked():
            self._meter.hide()
        elif self._waiting:
            self._meter.show(f"waiting for a person: {'; '.join(self._waiting.values())}")
        else:
            self._meter.show(*self._now)

    async def _progress(self, progress: Progress) -> None:
        self._now = (describe_progress(progress), progress.progress, progress.total)
        if self._settings.json or not sys.stderr.isatty():
            note(f"progress {describe_progress(progress)}")
        else:
            self._draw()

    async def _perhaps(self, id_: str) -> None:
        await self._pending(id_, ", perhaps for this call")

    async def _pending(self, id_: str, doubt: str = "") -> None:
        if id_ in self._waiting:
            return
        try:
            request = await self._hub.inbox.get(id_)
        except HubbubError as error:
            note(f"the call asks {id_}, which cannot be read: {error.message}")
            return
        if request.state != "open":
            return
        command = self._settings.command("inbox", "answer", id_)
        self._meter.hide()
        asks = f"{request.server} asks{doubt} ({request.kind}, {id_})"
        if self._settings.interactive:
            note(f"{asks}; answer elsewhere with: {command}")
        else:
            said = " ".join(question_text(request).split())  # else a server could write lines that look like ours
            note(f"waiting for a person: {asks}: {said}\n  answer with: {command} {samples.answer_options(request)}")
        self._waiting[id_] = asks
        if not doubt:  # else the question may be another call's, and stay open
            self._over[id_] = anyio.Event()
        self._group.start_soon(self._attend, id_, request)

    async def _attend(self, id_: str, request: PendingRequest) -> None:
        """Ask the person here, until there is an answer from anywhere."""
        async with anyio.create_task_group() as group:
            if self._settings.interactive:
                group.start_soon(self._ask, request)
            with contextlib.suppress(HubbubError):
                over = await settled(self._hub, request)
                self._waiting.pop(id_, None)
                if self._asking.locked():
                    note("")
                by = f" by {over.answered_by}" if over and over.answered_by else ""
                note(f"{id_} is {outcome(over) if over else 'gone'}{by}")
            if id_ in self._over:
                self._over[id_].set()
            group.cancel_scope.cancel()
        self._draw()

    async def _ask(self, request: PendingRequest) -> None:
        async with self._asking:
            self._draw()
            try:
                await ask(self._hub, request, {})
            except HubbubError as error:
                note(f"error: {error.message} ({error.reason})")
        self._draw()
