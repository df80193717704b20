"""The terminal UI: seven panes over one hub, kept live by watches."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import anyio
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.query import NoMatches
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import Footer, TabbedContent, TabPane

from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_frontend.display.records import outcome
from hubbub_frontend.display.text import line
from hubbub_tui.boards import MAX_ROWS, Boards
from hubbub_tui.output_filter import CleanOutput
from hubbub_tui.panes.agents import AgentsScreen
from hubbub_tui.panes.calls import CallsPane
from hubbub_tui.panes.catalog import CatalogPane
from hubbub_tui.panes.events import EventsPane
from hubbub_tui.panes.hosts import HostsPane
from hubbub_tui.panes.inbox import InboxPane
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.panes.servers import ServersPane
from hubbub_tui.panes.tasks import TasksPane
from hubbub_tui.screens.answer import AnswerScreen
from hubbub_tui.screens.approval import ApprovalScreen
from hubbub_tui.screens.dialogs import Confirm, Help
from hubbub_tui.screens.invocation import CallScreen, InvokeScreen, build_request, input_fields
from hubbub_tui.screens.remembered import RememberedScreen
from hubbub_tui.screens.repeated_call import NotRepeatable, find_repeated_call
from hubbub_tui.widgets.header import Header
from hubbub_tui.widgets.outcome import Outcome
from hubbub_tui.widgets.part import Application

PANES: tuple[tuple[str, type[ListPane] | type[CatalogPane]], ...] = (
    ("inbox", InboxPane),
    ("servers", ServersPane),
    ("calls", CallsPane),
    ("tasks", TasksPane),
    ("catalog", CatalogPane),
    ("events", EventsPane),
    ("hosts", HostsPane),
)
LIGHT, DARK = "textual-light", "textual-dark"
# Longest wait for the hub at the end, seconds.
RELEASE_S = 2.0
TICK_S = 0.3


class HubbubApp(App[None]):
    """The application. `who` is the name that claims and answers are made under."""

    TITLE = "Hubbub"
    CSS_PATH = "tui.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-broad")]  # noqa: RUF012 - no class variable there either
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"pane('{name}')", name.title(), show=False)
            for number, (name, _) in enumerate(PANES, 1)
        ),
        Binding("8", "agents", "Agents", show=False),
        Binding("question_mark", "help", "Keys", key_display="?"),
        Binding("t", "light_or_dark", "Light/Dark", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, hub: Hub, who: str | None = None, max_rows: int = MAX_ROWS) -> None:
        super().__init__()
        self.hub = hub
        self.who = who
        self.boards = Boards(hub, max_rows)
        self._output_filter = CleanOutput()
        self._follows_sessions = False
        # By the id of a claim: claims that the hub has not answered, and the pending requests of claims to release.
        self._claiming: dict[str, asyncio.Future[PendingRequest]] = {}
        self._to_release: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        """Yield the header, a tab for each pane, the outcome of the last answer, and the keys."""
        yield Header()
        with TabbedContent(initial="inbox", id="panes"):
            for number, (name, pane) in enumerate(PANES, 1):
                with TabPane(f"{number} {name.title()}", id=name):
                    yield pane()
        yield Outcome()
        yield Footer()

    def on_mount(self) -> None:
        """Start the watches of the hub, and go to the inbox."""
        for watch in self.boards.watches():
            self.run_worker(watch(), group="watches")
        self.set_interval(TICK_S, self._update_tabs)
        self.action_pane("inbox")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the commands of the palette: those of Textual, and those of this application."""
        yield from super().get_system_commands(screen)  # pyright: ignore[reportUnknownMemberType] - as typed there
        for name, _ in PANES:
            yield SystemCommand(f"Go to {name}", f"Shows the {name} pane", lambda name=name: self.action_pane(name))
        yield SystemCommand("Go to agents", "Shows the sessions of coding agents", self.action_agents)
        yield SystemCommand("Remembered approvals", "Shows and revokes them", self.show_remembered)
        yield SystemCommand("Light or dark", "Changes the colours", self.action_light_or_dark)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters that each line passes on its way to the terminal, whichever widget it is from."""
        return (*super().get_line_filters(), self._output_filter)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a message in a corner for a while: one line at most, as plain text."""
        super().notify(line(message), title=line(title), severity=severity, timeout=timeout, markup=markup)

    def action_pane(self, name: str) -> None:
        """Go to a pane by its name, from the main screen or the screen of agents; from other screens do nothing."""
        if isinstance(self.screen, AgentsScreen):
            self.pop_screen()
        if len(self.screen_stack) > 1:
            return
        panes = self.query_one("#panes", TabbedContent)
        if panes.active != name:
            self.query_one(Outcome).hide()
        panes.active = name
        pane = self._find_pane(name)
        if isinstance(pane, ListPane):
            pane.refresh_rows(at_once=True)  # the rows must be there for the next key, not only from the next tick on
        pane.focus_list()

    def action_agents(self) -> None:
        """Show the sessions of coding agents, over the main screen only: do nothing while another screen is open."""
        if len(self.screen_stack) == 1:
            self.push_screen(AgentsScreen())

    def follow_sessions(self) -> None:
        """Begin to follow the sessions of coding agents, unless that has begun already."""
        if not self._follows_sessions:
            self._follows_sessions = True
            self.run_worker(self.boards.follow_sessions(), group="watches")

    def action_help(self) -> None:
        """Show which keys there are."""
        self.push_screen(Help())

    def action_light_or_dark(self) -> None:
        """Change from dark to light colours, or back."""
        self.theme = DARK if self.theme == LIGHT else LIGHT

    @property
    def fault(self) -> Exception | None:
        """Return the exception that ended the application, if one did."""
        return self._exception

    def show_row(self, name: str, key: str) -> None:
        """Go to a pane, and put the cursor on the row with this key, or notify that there is no such row."""
        self.action_pane(name)
        pane = self._find_pane(name)
        if isinstance(pane, ListPane) and not pane.select(key):
            self.notify(f"{line(key)} is not among the {name} that are kept here", markup=False)

    def show_outcome(self, request: PendingRequest) -> None:
        """Show an answer that was accepted, and what the call that asked returns."""
        self.screen_stack[0].query_one(Outcome).show_answer(request)

    def open_request(self, id_: str) -> None:
        """Open a pending request to answer it. If the request is not open any more, only notify of what came of it."""

        async def fetch_and_open() -> None:
            """Read the request, and open the screen of its kind; notify of an error, or of how it ended."""
            try:
                request = await self.hub.inbox.get(id_)
            except HubbubError as error:
                self.show_error(error)
                return
            if request.state == "open":
                self.push_screen((ApprovalScreen if request.kind == "approval" else AnswerScreen)(request))
            else:
                self.notify(f"it is {outcome(request)}", markup=False)

        self.run_worker(fetch_and_open(), group="open", exclusive=True)

    def open_request_of(self, call: Call) -> None:
        """Open the pending request that a call waits for, or else the first request that the call may have caused."""
        self.open_first_open(call.pending_ids or self.boards.candidate_requests(call))

    def open_first_open(self, ids: Collection[str]) -> None:
        """Open the first of these pending requests that is open; if none is, only notify of that."""
        for id_ in ids:
            request = self.boards.request(id_)
            # Of a hidden row only the key is known here; `open_request` reads the record.
            if (request is not None and request.state == "open") or id_ in self.boards.open.hidden:
                self.open_request(id_)
                return
        self.notify("it asks nothing now")

    def show_remembered(self) -> None:
        """Show the approvals that are remembered, to revoke them."""
        self.push_screen(RememberedScreen())

    def show_call(self, id_: str) -> None:
        """Open the screen of a call."""
        self.push_screen(CallScreen(id_))

    def open_repeated_call(self, id_: str) -> None:
        """Open the form that makes a call again, filled in with what it was sent with."""

        async def find_and_open() -> None:
            """Open the form, or notify of why the call cannot be made again."""
            try:
                self.push_screen(InvokeScreen(*await find_repeated_call(self.hub, id_)))
            except NotRepeatable as reason:
                self.notify(str(reason), markup=False)
            except HubbubError as error:
                self.show_error(error)

        self.run_worker(find_and_open(), group="open", exclusive=True)

    def invoke(self, entry: CatalogEntry) -> None:
        """Use an entry of the catalog: call a tool by a form, read or get another entry, by a form if it has arguments.

        A tool without arguments has a form, too: enter pressed twice must not call it.
        """
        if entry.kind == "tool" or input_fields(entry):
            self.push_screen(InvokeScreen(entry))
            return

        async def start_call() -> None:
            """Make the call, and show its screen or the error."""
            try:
                call = await self.hub.start(entry.server, *build_request(entry, {}))
            except HubbubError as error:
                self.show_error(error)
            else:
                self.show_call(call.id)

        self.run_worker(start_call(), group="open", exclusive=True)

    def cancel_call(self, call: Call, about: str) -> None:
        """Cancel a call after confirmation; abort a call that its server has already. `about` names the call."""
        if call.ended:
            self.notify("this call has ended")
            return
        abort = call.state == "in_progress"
        question = f"{'Abort' if abort else 'Cancel'} {about} on {line(call.server)}?"
        self.confirm(question, lambda: self.hub.calls.cancel(call.id, abort=abort), "cancelled")

    def clear_queue(self, server: str) -> None:
        """Cancel all queued calls of a server after confirmation."""
        question = f"Cancel all calls that wait in the queue of {line(server)}?"
        self.confirm(question, lambda: self.hub.calls.clear_queue(server), "the queue is cleared")

    def confirm(self, question: str, action: Callable[[], Awaitable[object]], done: str) -> None:
        """Ask a question; after yes, run an action in the background, and notify of `done` or of the error."""

        def start_if_confirmed(confirmed: bool | None) -> None:
            """Start the action after yes; None: the person left."""
            if confirmed:
                self.start_action(action(), done)

        self.push_screen(Confirm(question), start_if_confirmed)

    def start_action(self, action: Awaitable[object], done: str) -> None:
        """Run an action in the background, and notify of `done` or of the error. `done` is empty for an action that
        reports its end itself.
        """

        async def run_and_notify() -> None:
            """Wait for the action, and show how it ended."""
            try:
                await action
            except HubbubError as error:
                self.show_error(error)
            else:
                if done:
                    self.notify(done, markup=False)

        self.run_worker(run_and_notify(), group="do")

    def show_error(self, error: HubbubError) -> None:
        """Show what the hub refused."""
        self.notify(line(f"{error.message} ({error.reason})"), severity="error", markup=False)

    async def claim(self, id_: str, claim_id: str, ttl_s: float, *, take_over: bool) -> None:
        """Claim a pending request for `ttl_s` seconds, or renew its claim. Raises HubbubError.

        If the person leaves the screen meanwhile, the RPC goes on: else the hub could make the claim after `release`.
        """
        claiming = asyncio.ensure_future(self.hub.inbox.claim(id_, ttl_s, claim_id=claim_id, take_over=take_over))
        self._claiming[claim_id] = claiming
        claiming.add_done_callback(partial(self._end_claiming, claim_id))
        await asyncio.shield(claiming)

    def _end_claiming(self, claim_id: str, claiming: asyncio.Future[PendingRequest]) -> None:
        """Forget a requested claim once the hub has answered."""
        if self._claiming.get(claim_id) is claiming:
            del self._claiming[claim_id]
        if not claiming.cancelled():
            claiming.exception()  # read even if nobody waits any more: else asyncio would report a refusal as lost

    def release(self, id_: str, claim_id: str) -> None:
        """Release a claim in the background, also one that the hub has not confirmed yet.

        While the application ends, `run` releases it.
        """
        self._to_release[claim_id] = id_
        if self.is_running:
            self.run_worker(self.release_claims(), group="release")

    async def release_claims(self) -> None:
        """Release all claims that `release` was called for. If the hub does not answer, they lapse by themselves."""
        for claim_id, id_ in [*self._to_release.items()]:
            with anyio.move_on_after(RELEASE_S), suppress(HubbubError):
                if (claiming := self._claiming.get(claim_id)) is not None:
                    await asyncio.wait([claiming])
                await self.hub.inbox.release(id_, claim_id)
            self._to_release.pop(claim_id, None)

    def _find_pane(self, name: str) -> ListPane | CatalogPane:
        """Return the pane with this name."""
        return self.query_one(f"#{name}", TabPane).query_one(dict(PANES)[name])

    def _update_tabs(self) -> None:
        """Show in the tabs how many requests are open, and how many calls and tasks have not ended."""
        if len(self.screen_stack) > 1:
            return
        going_calls = sum(not row.record.ended for row in self.boards.calls.rows.values())
        going_tasks = sum(row.record.status in ("working", "input_required") for row in self.boards.tasks.rows.values())
        counts = {"inbox": self.boards.open.total, "tasks": going_tasks, "calls": going_calls}
        for number, (name, _) in enumerate(PANES, 1):
            count = f" ({counts[name]})" if counts.get(name) else ""
            label = f"{number} {name.title()}{count}"
            # There are no tabs before the screen is composed, and while it is removed.
            with suppress(NoMatches):
                tab = self.query_one("#panes", TabbedContent).get_tab(name)
                if tab.label.plain != label:
                    tab.label = Content(label)


# Parts see the application as an `Application`; the type checker compares the two here.
_type_check: type[Application] = HubbubApp


async def run(hub: Hub, who: str | None) -> None:
    """Run the terminal UI until the person leaves it. Raises the exception that ended it otherwise."""
    app = HubbubApp(hub, who)
    try:
        with mute_native_stderr():
            await app.run_async()
    finally:
        await app.release_claims()
    if app.fault is not None:
        raise app.fault


@contextmanager
def mute_native_stderr() -> Generator[None]:
    """Keep log lines of native libraries off the terminal: they write to descriptor 2, while the screen is drawn on a
    copy."""
    original_stderr, terminal_fd = sys.__stderr__, os.dup(2)
    devnull_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull_fd, 2)
    with os.fdopen(terminal_fd, "w") as screen:
        sys.__stderr__ = screen  # pyright: ignore[reportAttributeAccessIssue] - where Textual draws
        try:
            yield
        finally:
            screen.flush()
            sys.__stderr__ = original_stderr  # pyright: ignore[reportAttributeAccessIssue] - as it was
            os.dup2(terminal_fd, 2)
            os.close(devnull_fd)
