"""What a caller has called of a server before the call that waits for approval."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from hubbub_client.payload import as_object
from hubbub_frontend.display.approvals import render_rows
from hubbub_frontend.display.argument_rows import argument_rows
from hubbub_frontend.display.call_details import fetch_earlier_calls
from hubbub_frontend.display.records import describe_call, relative_time
from hubbub_frontend.display.text import DetailText, line
from hubbub_tui.screens.question import describe_return
from hubbub_tui.widgets.part import Part, Scroll


class EarlierCalls(Part, ModalScreen[None]):
    """The latest calls of one caller, newest first, with arguments and results."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f7", "dismiss", "Back")]

    def __init__(self, caller: str, server: str, ids: Sequence[str]) -> None:
        super().__init__()
        self._heading = f"What {caller} called of {server} before, the latest first"
        self._ids = ids
        self._text = Static("Loading …", markup=False)

    def compose(self) -> ComposeResult:
        with Scroll(classes="dialog help"):
            yield Static(self._heading, classes="title", markup=False)
            yield self._text
            yield Static("escape goes back", classes="note", markup=False)

    def on_mount(self) -> None:
        """Fetch the calls in the background."""
        self.run_worker(self._load())

    async def _load(self) -> None:
        """Fetch and show the calls, with their arguments and results."""
        page = DetailText()
        calls = await fetch_earlier_calls(self.hub_app.hub, self._ids)
        for call in calls:
            page.heading(line(f"{describe_call(call)}, {relative_time(call.created_at)}"))
            render_rows(page, argument_rows(as_object(as_object(call.params).get("arguments")), {}))
            if call.ended:
                page.paragraph(describe_return(call), "dim")
        if len(calls) < len(self._ids):
            page.paragraph(f"{len(self._ids) - len(calls)} are not kept any more, or not for you to see", "dim")
        self._text.update(page.text)
