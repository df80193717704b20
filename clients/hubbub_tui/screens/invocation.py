"""Screens that use an entry of the catalog: the form for its arguments, and the call."""

import re
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import quote

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Button, Footer, Static

from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_client.payload import as_object
from hubbub_frontend.as_task import CallModes, call_modes
from hubbub_frontend.display import text
from hubbub_frontend.display.records import short_call_title
from hubbub_frontend.forms import Field, fields, prompt_fields
from hubbub_tui.panes.calls import fetch_call_text, waiting_version
from hubbub_tui.screens.form import Form, Incomplete
from hubbub_tui.widgets.header import Header
from hubbub_tui.widgets.part import Part, Scroll

TICK_S = 0.2
# Expressions of a template that are one variable (RFC 6570, levels 1 and 2); other templates are typed as a whole uri.
VARIABLE = re.compile(r"\{([+#]?)(\w+)(\*?)\}")
VERBS = {"tool": "Call", "resource": "Read", "template": "Read", "prompt": "Get", "skill": "Read"}


def input_fields(entry: CatalogEntry) -> list[Field]:
    """Return the fields of the form to use an entry; none for an entry without arguments.

    A template has a field for each variable, or one for the whole URI if it has expressions that are no variables.
    """
    match entry.kind:
        case "tool":
            return fields(as_object(entry.object).get("inputSchema"))
        case "prompt":
            return prompt_fields(as_object(entry.object))
        case "template":
            uri = str(entry.uri)
            names = [name for _, name, _ in VARIABLE.findall(uri)]
            if "{" in VARIABLE.sub("", uri):  # the template has expressions that are no variables
                return [Field(name="uri", title=uri, kind="string", required=True)]
            return [Field(name=name, title=name, kind="string", required=True) for name in dict.fromkeys(names)]
        case _:
            return []


def build_request(entry: CatalogEntry, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the MCP method and the params that use an entry with these values."""
    match entry.kind:
        case "tool":
            return "tools/call", {"name": entry.name, "arguments": values}
        case "prompt":
            return "prompts/get", {"name": entry.name, "arguments": values}
        # A value `uri` is the whole URI, unless the template has a variable of this name.
        case "template" if "uri" not in values or "{uri}" in str(entry.uri):

            def expand(match: re.Match[str]) -> str:
                """Return the value of a variable, escaped for its place in the URI."""
                reserved = "/:?#[]@!$&'()*+,;=" if match[1] else ""  # RFC 6570: with + and #, these stay as they are
                return quote(str(values.get(match[2], "")), safe=reserved)

            return "resources/read", {"uri": VARIABLE.sub(expand, str(entry.uri))}
        case "template":
            return "resources/read", {"uri": values["uri"]}
        case _:
            return "resources/read", {"uri": entry.uri}


class InvokeScreen(Part, Screen[None]):
    """The form for a tool, a prompt or a template; to call it again, with the arguments from before."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "start", "Call", show=False, priority=True),
        Binding("ctrl+t", "start_task", "Call as a task", show=False, priority=True),
        Binding("escape", "dismiss", "Back", show=False),
    ]

    def __init__(self, entry: CatalogEntry, arguments: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._entry = entry
        self._arguments = arguments
        self._banner = Static(id="banner", markup=False)

    def compose(self) -> ComposeResult:
        entry, modes = self._entry, self._modes
        yield Header()
        title = text.line(entry.title or entry.name)
        yield Static(f"{title} · {entry.kind} of {text.line(entry.server)}", id="headline", markup=False)
        yield self._banner
        with VerticalScroll(id="sheet", can_focus=False):
            yield Static(text.safe_text(entry.description or "", 4000), classes="message", markup=False)
            form = input_fields(entry)
            if not form:
                yield Static("It takes no arguments.", classes="note", markup=False)
            elif self._arguments is not None:
                yield Static("Filled in as it was called before.", classes="note", markup=False)
            yield Form(form, self._arguments)
            if modes.reason:
                yield Static(modes.reason, classes="note", markup=False)
        with Horizontal(classes="buttons"):
            if modes.plain:
                verb = VERBS.get(entry.kind, "Call")
                yield Button(f"{verb} (ctrl+s)", id="start", variant="success", compact=True)
            if modes.task:
                variant = "default" if modes.plain else "success"
                yield Button("As a task (ctrl+t)", id="start_task", variant=variant, compact=True)
            yield Button("Back (esc)", id="dismiss", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        """Focus the first field, or the button that goes back."""
        self._show_banner("")
        # Without a field, the button that goes back has the focus: Enter pressed twice must not make a call.
        if not any(form.focus_first() for form in self.query(Form)):
            self.query("#dismiss").focus()

    @on(Button.Pressed)
    async def _run_pressed(self, event: Button.Pressed) -> None:
        """Run the action of a button, by the button's id."""
        await self.run_action(event.button.id or "dismiss")

    def action_start(self) -> None:
        """Make the call plainly, or as a task if the server takes it only as a task."""
        self._start(as_task=not self._modes.plain)

    def action_start_task(self) -> None:
        """Make the call as a task, or show why that is impossible."""
        if self._modes.task:
            self._start(as_task=True)
        elif self._modes.reason:
            self._show_banner(self._modes.reason)

    @cached_property
    def _modes(self) -> CallModes:
        """Return how the entry can be called (plainly, as a task), as far as its server's declarations are known."""
        if self._entry.kind != "tool":
            return CallModes(task=False)
        row = self.hub_app.boards.servers.rows.get(self._entry.server)
        return call_modes(row.record if row else None, self._entry.object)

    def _start(self, *, as_task: bool) -> None:
        """Make the call with the values of the form, if they are complete and no call is being made."""
        try:
            values = self.query_one(Form).values()
        except Incomplete:
            return
        # A key pressed again must not make a second call while the first is being made.
        if not any(worker.node is self and worker.is_running for worker in self.workers):
            self.run_worker(self._make_call(values, as_task=as_task))

    async def _make_call(self, values: dict[str, Any], *, as_task: bool) -> None:
        """Make the call and show it, or show why it cannot be made."""
        method, params = build_request(self._entry, values)
        try:
            call = await self.hub_app.hub.start(self._entry.server, method, params, as_task=as_task)
        except InvalidArgument as error:
            self.query_one(Form).show_violations(error.violations or (("call", error.message),))
        except HubbubError as error:
            self._show_banner(error.message)
        else:
            self.hub_app.show_call(call.id)

    def _show_banner(self, message: str) -> None:
        """Show a problem above the form; an empty text hides the banner."""
        self._banner.update(text.safe_text(message, 1000))
        self._banner.display = bool(message)
        self._banner.set_class(bool(message), "bad")


class CallScreen(Part, Screen[None]):
    """One call, live: its progress, its pending requests, its result."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer"),
        Binding("c", "again", "Call again"),
        Binding("x", "cancel", "Cancel"),
        Binding("escape", "dismiss", "Back"),
    ]

    def __init__(self, call_id: str) -> None:
        super().__init__()
        self._id = call_id
        self._drawn_version: object = None
        self._headline = Static(id="headline", markup=False)
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield Header()
        yield self._headline
        with Scroll(id="sheet"):
            yield self._text
        yield Footer()

    def on_mount(self) -> None:
        """Show the call, and look for changes every TICK_S seconds."""
        self.set_interval(TICK_S, self._refresh)
        self.query("#sheet").focus()

    def action_answer(self) -> None:
        """Open the pending request that the call waits for."""
        if row := self.hub_app.boards.calls.rows.get(self._id):
            self.hub_app.open_request_of(row.record)

    def action_again(self) -> None:
        """Open the form that makes the call again."""
        self.hub_app.open_repeated_call(self._id)

    def action_cancel(self) -> None:
        """Cancel the call, after a question."""
        if row := self.hub_app.boards.calls.rows.get(self._id):
            self.hub_app.cancel_call(row.record, row.about)

    def _refresh(self) -> None:
        """Show the call again if it has changed."""
        boards = self.hub_app.boards
        row = boards.calls.rows.get(self._id)
        version = (row, row and waiting_version(row.record, boards))
        if version != self._drawn_version:
            self._drawn_version = version
            self.run_worker(self._fetch_and_show(), group="show", exclusive=True)

    async def _fetch_and_show(self) -> None:
        """Fetch the call and show it, or why it cannot be read."""
        try:
            call, detail = await fetch_call_text(self.hub_app.hub, self._id, self.hub_app.boards)
        except HubbubError as error:
            self._drawn_version = None  # so that the next refresh tries again
            self._headline.update(text.line(error.message))
            return
        self._headline.update(f"{text.line(short_call_title(call))} on {text.line(call.server)}")
        self._text.update(detail)
