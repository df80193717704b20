"""The lines above the keys: what was sent last, and what the call that asked returned."""

from rich.text import Text
from textual.widgets import Static

from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.errors import HubbubError
from hubbub_frontend.display.answers import answer_line
from hubbub_frontend.display.records import outcome, short_call_title
from hubbub_frontend.display.text import STYLES, line
from hubbub_tui.boards import BoardRow
from hubbub_tui.screens.question import describe_return, has_failed, question_message
from hubbub_tui.widgets.part import Part

LOOK_S = 0.2
MAX_QUESTION_CHARS = 60


class Outcome(Part, Static):
    """Shows one answer and follows its call; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__(id="outcome", markup=False)
        # The call that asked the question; if that is not certain, all calls that may have asked it.
        self._call_ids: tuple[str, ...] = ()
        self._is_asking_call_certain = True
        self._drawn_row: object = None
        self._sent = Text()
        self.display = False

    def on_mount(self) -> None:
        """Look how the call goes on, every LOOK_S seconds."""
        self.set_interval(LOOK_S, self._refresh)

    def show_answer(self, request: PendingRequest) -> None:
        """Show an answer that was accepted, and follow the call that asked the question.

        While several calls may have asked it, follow all of them that have not ended.
        """
        self._is_asking_call_certain, self._drawn_row = request.call_id is not None, None
        if request.call_id:
            self._call_ids = (request.call_id,)
        else:
            rows = {id_: self._find_row(id_) for id_ in request.candidate_call_ids}
            self._call_ids = tuple(id_ for id_, row in rows.items() if row is None or not row.record.ended)
        question, answer = line(question_message(request), MAX_QUESTION_CHARS), answer_line(request)
        style = STYLES.get(outcome(request), "")
        self._sent = Text.assemble(("✓ Sent", f"bold {style}"), f": {question} ", (answer, "bold"))
        self._show_text("")
        self._refresh()

    def hide(self) -> None:
        """Hide the answer, and do not follow its call any more."""
        self._call_ids, self.display = (), False

    def _find_row(self, id_: str) -> BoardRow[Call] | None:
        """Return the row of a call; None if no board has it."""
        return self.hub_app.boards.calls.rows.get(id_)

    def _refresh(self) -> None:
        """Show the state of the call that asked the question.

        While several calls may have asked it, show nothing until one of them has ended; then show that one.
        """
        rows = [row for id_ in self._call_ids if (row := self._find_row(id_)) is not None]
        row = next((row for row in rows if row.record.ended), None)
        if row is None and self._is_asking_call_certain and rows:
            row = rows[0]
        if row is None or row is self._drawn_row:
            return
        self._drawn_row = row
        call = row.record
        if call.ended:
            self.run_worker(self._show_return(row.key), group="outcome", exclusive=True)
        elif call.state == "waiting_input" and call.pending_ids:
            asks_more = any(id_ in self.hub_app.boards.open.rows for id_ in call.pending_ids)
            title = line(short_call_title(call))
            # If the inbox has none of the requests that the call waits for, there is none to point to.
            self._show_text(f"{title} asks something else: it is in the inbox" if asks_more else "")
        else:
            self._show_text(f"{line(short_call_title(call))} goes on; what it returns is shown here")

    async def _show_return(self, id_: str) -> None:
        """Fetch the ended call, and show what it returned."""
        try:
            call = await self.hub_app.hub.calls.get(id_)
        except HubbubError as error:
            self._show_text(line(error.message))
            return
        if id_ in self._call_ids:
            self._call_ids = ()
            certainty = "" if self._is_asking_call_certain else "Perhaps because of it: "
            self._show_text(f"{certainty}{describe_return(call)}", "red" if has_failed(call) else "")

    def _show_text(self, text: str, style: str = "") -> None:
        """Show a line below the line about what was sent; an empty text shows no second line."""
        self.display = True
        self.update(Text.assemble(self._sent, ("\n  " if text else ""), (text, style)))
