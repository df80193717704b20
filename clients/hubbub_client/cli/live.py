"""A call that is waited for: its progress on stderr, and the questions that it puts to a person."""

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import anyio

from hubbub_client.cli.output import console, note
from hubbub_client.cli.session import Settings
from hubbub_client.cli.terminal import ask
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.records import Call, PendingRequest, Progress
from hubbub_client.wording import describe, question

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

# How each kind is answered on the command line.
ANSWERS = {
    "elicitation_form": "--accept '{...}' (or --accept, --decline, --cancel)",
    "elicitation_url": "--accept (or --decline, --cancel)",
    "sampling": "--text '...' (or --result '{...}', --error '...')",
    "roots": "--result '{\"roots\": [...]}'",
}


class LiveCall:
    """One call, told to the person who waits for it."""

    def __init__(self, hub: Hub, settings: Settings) -> None:
        self._hub = hub
        self._settings = settings
        self._bar: Bar | None = None
        self._asking = anyio.Lock()
        self._group = anyio.create_task_group()

    async def run(
        self,
        server: str,
        method: str,
        params: dict[str, Any] | None,
        timeout_s: float | None,
        call_id: str | None,
        *,
        as_task: bool = False,
    ) -> Call:
        """The completed call. Raises HubbubError."""
        outcome: Call | HubbubError | None = None
        async with self._group as group:
            try:
                outcome = await self._hub.calls.call(
                    server,
                    method,
                    params,
                    timeout_s=timeout_s,
                    call_id=call_id,
                    as_task=as_task,
                    on_progress=self._progress,
                    on_pending=self._pending,
                )
            except HubbubError as error:
                outcome = error
            finally:
                self._hide()
            group.cancel_scope.cancel()
        if isinstance(outcome, Call):
            return outcome
        raise outcome or AssertionError("the group ends with an outcome or raises")

    async def _progress(self, progress: Progress) -> None:
        if self._settings.json or not sys.stderr.isatty():
            note(f"progress {describe(progress)}")
        elif not self._asking.locked():
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            columns = (BarColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Bar(*columns, console=console(stderr=True), transient=True)
            self._bar.add_task("")
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=progress.progress, total=progress.total, description=describe(progress))

    def _hide(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    async def _pending(self, id_: str) -> None:
        try:
            request = await self._hub.inbox.get(id_)
        except HubbubError as error:
            note(f"the call asks {id_}, which cannot be read: {error.message}")
            return
        if request.state != "open":
            return
        command = self._settings.command("inbox", "answer", id_)
        self._hide()
        asks = f"{request.server} asks ({request.kind}, {id_})"
        if self._settings.interactive:
            note(f"{asks}; elsewhere it is answered with: {command}")
            self._group.start_soon(self._ask, request)
        else:
            note(f"{asks}: {question(request)}\n  answer it with: {command} {ANSWERS.get(request.kind, '')}")

    async def _ask(self, request: PendingRequest) -> None:
        async with self._asking:
            with contextlib.suppress(EOFError):
                try:
                    await ask(request)
                except HubbubError as error:
                    note(f"error: {error.message} ({error.reason})")
