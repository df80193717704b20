"""Screens that use an entry of the catalog: the form for its arguments, and the call."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import quote

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Button, Footer, Static

from hubbub_client.data.records import CatalogEntry
from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_client.payload import as_object, as_objects
from hubbub_frontend.as_task import CallModes, call_modes
from hubbub_frontend.display import text
from hubbub_frontend.forms import Field, fields
from hubbub_tui.boards import called
from hubbub_tui.panes.calls import call_in_full, waits_for
from hubbub_tui.screens.form import Form, Incomplete
from hubbub_tui.widgets.header import Header
from hubbub_tui.widgets.part import Part, Scroll

LOOK_S = 0.2
# Expressions of a template that are one variable (RFC 6570, levels 1 and 2); other templates are typed as a whole uri.
VARIABLE = re.compile(r"\{([+#]?)(\w+)(\*?)\}")
VERBS = {"tool": "Call", "resource": "Read", "template": "Read", "prompt": "Get"}


def questions_of(entry: CatalogEntry) -> list[Field]:
    """Return the fields that are needed to use an entry."""
    match entry.kind:
        case "tool":
            return fields(as_object(entry.object).get("inputSchema"))
        case "prompt":
            return [_argument(each) for each in as_objects(as_object(entry.object).get("arguments"))]
        case "template":
            uri = str(entry.uri)
            names = [name for _, name, _ in VARIABLE.findall(uri)]
            if VARIABLE.sub("", uri).count("{"):
                return [Field(name="uri", title=uri, kind="string", required=True)]
            return [Field(name=name, title=name, kind="string", required=True) for name in dict.fromkeys(names)]
        case _:
            return []


def request_of(entry: CatalogEntry, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the MCP method and its params."""
    match entry.kind:
        case "tool":
            return "tools/call", {"name": entry.name, "arguments": given}
        case "prompt":
            return "prompts/get", {"name": entry.name, "arguments": given}
        case "template" if "uri" not in given or "{uri}" in str(entry.uri):

            def filled(match: re.Match[str]) -> str:
                return quote(str(given.get(match[2], "")), safe="/:?#[]@!$&'()*+,;=" if match[1] else "")

            return "resources/read", {"uri": VARIABLE.sub(filled, str(entry.uri))}
        case "template":
            return "resources/read", {"uri": given["uri"]}
        case _:
            return "resources/read", {"uri": entry.uri}


class InvokeScreen(Part, Screen[None]):
    """The form for a tool, a prompt or a template; to call it again, with the arguments from before."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "start", "Call", show=False, priority=True),
        Binding("ctrl+t", "start_task", "Call as a task", show=False, priority=True),
        Binding("escape", "leave", "Back", show=False),
    ]

    def __init__(self, entry: CatalogEntry, given: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._entry = entry
        self._given = given
        self._banner = Static(id="banner", markup=False)

    def compose(self) -> ComposeResult:
        entry, verb = self._entry, VERBS.get(self._entry.kind, "Call")
        yield Header()
        title = text.line(entry.title or entry.name)
        yield Static(f"{title} · {entry.kind} of {text.line(entry.server)}", id="headline", markup=False)
        yield self._banner
        with VerticalScroll(id="sheet", can_focus=False):
            yield Static(text.safe_text(entry.description or "", 4000), classes="message", markup=False)
            questions = questions_of(entry)
            if not questions:
                yield Static("It takes no arguments.", classes="note", markup=False)
            elif self._given is not None:
                yield Static("Filled in as it was called before.", classes="note", markup=False)
            yield Form(questions, self._given)
            if why := self._ways.reason:
                yield Static(why, classes="note", markup=False)
        with Horizontal(classes="buttons"):
            if self._ways.plain:
                yield Button(f"{verb} (ctrl+s)", id="start", variant="success", compact=True)
            if self._ways.task:
                alone = "default" if self._ways.plain else "success"
                yield Button("As a task (ctrl+t)", id="start_task", variant=alone, compact=True)
            yield Button("Back (esc)", id="leave", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        """Focus the first field."""
        self._tell("")
        # Without a field, the harmless button: who presses Enter twice must not call by it.
        if not self.query_one(Form).focus_first():
            self.query_one("#leave").focus()

    @on(Button.Pressed)
    async def _pressed(self, event: Button.Pressed) -> None:
        await self.run_action(event.button.id or "leave")

    def action_start(self) -> None:
        """Make the call; if there is only one way, in that way."""
        self._start(as_task=not self._ways.plain)

    def action_start_task(self) -> None:
        """Call the tool as a task."""
        if self._ways.task:
            self._start(as_task=True)
        elif self._ways.reason:
            self._tell(self._ways.reason)

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)

    @cached_property
    def _ways(self) -> CallModes:
        if self._entry.kind != "tool":
            return CallModes(task=False)
        row = self.hub_app.boards.servers.rows.get(self._entry.server)
        return call_modes(row.record if row else None, self._entry.object)

    def _start(self, *, as_task: bool) -> None:
        try:
            given = self.query_one(Form).values()
        except Incomplete:
            return
        # A second key must not call twice: what the first one asked for may be under way.
        if not any(each.node is self and each.is_running for each in self.workers):
            self.run_worker(self._call(given, as_task))

    async def _call(self, given: dict[str, Any], as_task: bool) -> None:
        method, params = request_of(self._entry, given)
        try:
            call = await self.hub_app.hub.start(self._entry.server, method, params, as_task=as_task)
        except InvalidArgument as error:
            self.query_one(Form).show_violations(error.violations or (("call", error.message),))
        except HubbubError as error:
            self._tell(error.message)
        else:
            self.hub_app.show_call(call.id)

    def _tell(self, words: str) -> None:
        self._banner.update(text.safe_text(words, 1000))
        self._banner.display = bool(words)
        self._banner.set_class(bool(words), "bad")


class CallScreen(Part, Screen[None]):
    """One call, live: its progress, its pending requests, its result."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer"),
        Binding("c", "again", "Call again"),
        Binding("x", "cancel", "Cancel"),
        Binding("escape", "leave", "Back"),
    ]

    def __init__(self, call_id: str) -> None:
        super().__init__()
        self._id = call_id
        self._seen: object = None
        self._headline = Static(id="headline", markup=False)
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield Header()
        yield self._headline
        with Scroll(id="sheet"):
            yield self._text
        yield Footer()

    def on_mount(self) -> None:
        """Start following the call."""
        self.set_interval(LOOK_S, self._look)
        self.query_one("#sheet").focus()

    def action_answer(self) -> None:
        """Open the pending request that the call waits for."""
        if row := self.hub_app.boards.calls.rows.get(self._id):
            self.hub_app.answer_for(row.record)

    def action_again(self) -> None:
        """Open the form of what was called, filled in as before."""
        self.hub_app.call_again(self._id)

    def action_cancel(self) -> None:
        """Cancel the call."""
        if row := self.hub_app.boards.calls.rows.get(self._id):
            self.hub_app.cancel_call(row.record, row.about)

    def action_leave(self) -> None:
        """Go back; the hub goes on with the call."""
        self.dismiss(None)

    def _look(self) -> None:
        boards = self.hub_app.boards
        row = boards.calls.rows.get(self._id)
        seen = (row, row and waits_for(row.record, boards))
        if seen != self._seen:
            self._seen = seen
            self.run_worker(self._show(), group="show", exclusive=True)

    async def _show(self) -> None:
        try:
            call, words = await call_in_full(self.hub_app.hub, self._id, self.hub_app.boards)
        except HubbubError as error:
            self._seen = None
            self._headline.update(text.line(error.message))
            return
        self._headline.update(f"{text.line(called(call))} on {text.line(call.server)}")
        self._text.update(words)


def _argument(spec: Mapping[str, Any]) -> Field:
    name = str(spec.get("name"))
    description = spec.get("description")
    return Field(
        name=name,
        title=str(spec.get("title") or name),
        kind="string",
        description=str(description) if description else None,
        required=spec.get("required") is True,
    )
