"""The approvals that are remembered: what may be called without asking, until when; and an end to each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from hubbub_client.errors import HubbubError
from hubbub_frontend.display.approvals import describe_remembered
from hubbub_frontend.display.text import line
from hubbub_tui.screens.dialogs import Confirm, Options
from hubbub_tui.widgets.part import Part

if TYPE_CHECKING:
    from hubbub_client.services.approvals import RememberedApproval

MAX_ROWS = 200


class RememberedScreen(Part, ModalScreen[None]):
    """A list of remembered approvals, newest first; `x` revokes the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x,enter", "revoke", "Revoke"),
        Binding("escape,q,r", "dismiss", "Back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._approvals: Sequence[RememberedApproval] = ()
        self._list = Options(markup=False, compact=True)
        self._note = Static("Loading …", classes="note", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Approvals that are remembered", classes="title", markup=False)
            yield self._list
            yield self._note

    def on_mount(self) -> None:
        """Fetch the approvals in the background."""
        self._list.focus()
        self._start_fetch()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Revoke the approval that is chosen with enter."""
        event.stop()
        self.action_revoke()

    def action_revoke(self) -> None:
        """Revoke the approval under the cursor, after a question."""
        index = self._list.highlighted
        if index is None or index >= len(self._approvals):
            return
        approval = self._approvals[index]

        async def revoke_and_reload() -> None:
            """Revoke the approval, or show the hub's error; then read the list again."""
            try:
                await self.hub_app.hub.approvals.revoke(approval.id)
            except HubbubError as error:
                self.hub_app.show_error(error)
            self._start_fetch()

        def revoke_if_confirmed(confirmed: bool | None) -> None:
            """Revoke the approval after yes; None: the person left."""
            if confirmed:
                self.run_worker(revoke_and_reload(), group="revoke")

        question = f"Forget this approval? The next such call is asked about again.\n\n{describe_remembered(approval)}"
        self.hub_app.push_screen(Confirm(question), revoke_if_confirmed)

    def _start_fetch(self) -> None:
        """Fetch the remembered approvals in the background, and show them."""
        self.run_worker(self._fetch(), group="load", exclusive=True)

    async def _fetch(self) -> None:
        """Fetch and show the remembered approvals, or why there are none."""
        try:
            self._approvals = await self.hub_app.hub.approvals.list(limit=MAX_ROWS)
        except HubbubError as error:
            self._note.update(line(error.message))
            return
        self._list.clear_options()
        self._list.add_options([line(describe_remembered(each), 300) for each in self._approvals])
        if self._approvals:
            self._list.highlighted = 0
        none = "Nothing is remembered: each call that a rule names is asked about. escape goes back"
        self._note.update("x revokes it, escape goes back" if self._approvals else none)
