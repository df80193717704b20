"""A call that somebody waits for at the terminal: its progress on stderr, and its questions."""

import contextlib
import sys
from typing import Any, Unpack

import anyio

from hubbub_cli.output.printer import note
from hubbub_cli.output.progress_line import ProgressLine
from hubbub_cli.run.session import Settings
from hubbub_cli.terminal.answer import ask_for_answer
from hubbub_cli.terminal.wait import wait_until_closed
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
    question_line,
)

# Show progress only of calls that take longer than this, seconds.
SHOW_AFTER_S = 0.5
# Longest that a result waits for the end of the questions before it, which comes on another stream; seconds.
LAST_QUESTIONS_LIMIT_S = 5.0


class LiveCall:
    """Shows one call to the person who waits for it."""

    def __init__(self, hub: Hub, settings: Settings) -> None:
        self._hub = hub
        self._settings = settings
        self._progress_line = ProgressLine(moving=not settings.json)
        self._server = ""
        # The last progress: its text, how much is done, and how much there is; None if that is not known.
        self._last_progress: tuple[str, float | None, float | None] = ("", None, None)
        # By the id of a pending request: what is shown of it while it is open, and the end of those that are certainly
        # this call's.
        self._open_questions: dict[str, str] = {}
        self._question_ends: dict[str, anyio.Event] = {}
        self._prompt_lock = anyio.Lock()  # held while the person is asked
        self._group = anyio.create_task_group()

    async def run(
        self,
        server: str,
        method: str,
        params: dict[str, Any] | None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Send the call, report on it until it ends, and return the MCP result. Raises HubbubError.

        Meanwhile a person at the terminal is asked what the call asks. The result waits until these questions have
        ended, LAST_QUESTIONS_LIMIT_S at most.
        """
        failure: HubbubError | None = None  # raised below: the task group would wrap it in an exception group
        result: Any = None
        self._server = server
        self._last_progress = (f"{server}: {(params or {}).get('name') or method}", None, None)
        async with self._group as group:
            group.start_soon(self._report_when_slow)
            try:
                callbacks: CallCallbacks = {
                    "on_progress": self._on_progress,
                    "on_pending": self._on_pending,
                    "on_perhaps_pending": self._on_candidate,
                }
                result = await self._hub.call(server, method, params, **{**options, **callbacks})
            except HubbubError as error:
                failure = error
            finally:
                self._progress_line.hide()
            with anyio.move_on_after(LAST_QUESTIONS_LIMIT_S):
                for question_end in list(self._question_ends.values()):
                    await question_end.wait()
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return result

    async def _report_when_slow(self) -> None:
        """Once the call has taken SHOW_AFTER_S, draw the progress line, and report when its server is not connected."""
        await anyio.sleep(SHOW_AFTER_S)
        self._draw()
        with contextlib.suppress(HubbubError):  # a caller may call servers that it may not watch
            await self._watch_server()

    async def _watch_server(self) -> None:
        """Print that the server is connecting or not connected, and why, again when the reason changes.

        The call waits for the connection, so a person should know.
        """
        last_problem = ""
        async with contextlib.aclosing(self._hub.servers.watch([self._server])) as events:
            async for event in events:
                match event:
                    case Upsert(record=server) if server.error and server.state != "connected":
                        if last_problem != (last_problem := describe_fault(server.error)):
                            self._progress_line.hide()
                            note(describe_disconnection(server))
                            self._draw()
                    case Upsert(record=server) if server.state == "connecting" and not last_problem:
                        last_problem = server.state
                        self._progress_line.hide()
                        note(f"{server.name} is connecting; the call waits for it")
                        self._draw()
                    case _:
                        pass

    def _draw(self) -> None:
        """Draw the progress line, or whom the call waits for; hide the line while the person is typing."""
        if self._prompt_lock.locked():
            self._progress_line.hide()
        elif self._open_questions:
            self._progress_line.show(f"waiting for a person: {'; '.join(self._open_questions.values())}")
        else:
            self._progress_line.show(*self._last_progress)

    async def _on_progress(self, progress: Progress) -> None:
        """Show progress of the call: in the moving line, or as a line of its own with --json or without a terminal."""
        self._last_progress = (describe_progress(progress), progress.progress, progress.total)
        if self._settings.json or not sys.stderr.isatty():
            note(f"progress {describe_progress(progress)}")
        else:
            self._draw()

    async def _on_candidate(self, id_: str) -> None:
        """Report a pending request that may be caused by this call or by another one."""
        await self._on_pending(id_, ", perhaps for this call")

    async def _on_pending(self, id_: str, doubt: str = "") -> None:
        """Print that the call asks a person, and start to ask the one here, if there is one.

        `doubt` says in words that another call may ask; empty if this one does.
        """
        if id_ in self._open_questions:
            return
        try:
            request = await self._hub.inbox.get(id_)
        except HubbubError as error:
            note(f"the call asks {id_}, which cannot be read: {error.message}")
            return
        if request.state != "open":
            return
        command = self._settings.command("inbox", "answer", id_)
        self._progress_line.hide()
        description = f"{request.server} asks{doubt} ({request.kind}, {id_})"
        if self._settings.interactive:
            note(f"{description}; answer elsewhere with: {command}")
        else:
            # In one line, else a server could write lines that look like ours.
            one_line = question_line(request)
            note(f"waiting for a person: {description}: {one_line}")
            note(f"  answer with: {command} {samples.answer_options(request)}")
        self._open_questions[id_] = description
        if not doubt:  # else the question may be another call's, and stay open
            self._question_ends[id_] = anyio.Event()
        self._group.start_soon(self._follow_question, id_, request)

    async def _follow_question(self, id_: str, request: PendingRequest) -> None:
        """Ask the person here, if there is one, until somebody has closed the request; then print what became of it."""
        async with anyio.create_task_group() as group:
            if self._settings.interactive:
                group.start_soon(self._ask_person, request)
            with contextlib.suppress(HubbubError):
                closed_request = await wait_until_closed(self._hub, request)
                self._open_questions.pop(id_, None)
                if self._prompt_lock.locked():
                    note("")  # else the next line stands behind the prompt
                state = "gone" if closed_request is None else outcome(closed_request)
                by = f" by {closed_request.answered_by}" if closed_request and closed_request.answered_by else ""
                note(f"{id_} is {state}{by}")
            if id_ in self._question_ends:
                self._question_ends[id_].set()
            group.cancel_scope.cancel()
        self._draw()

    async def _ask_person(self, request: PendingRequest) -> None:
        """Ask the person at the terminal, one question at a time; an error of their answer is printed."""
        async with self._prompt_lock:
            self._draw()
            try:
                await ask_for_answer(self._hub, request, {})
            except HubbubError as error:
                note(f"error: {error.message} ({error.reason})")
        self._draw()
