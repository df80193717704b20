"""The lines above the keys: what was sent last, and what the call that asked returned."""

from rich.text import Text
from textual.widgets import Static

from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.errors import HubbubError
from hubbub_frontend.display.answers import answer_line
from hubbub_frontend.display.records import outcome
from hubbub_frontend.display.text import STYLES, line
from hubbub_tui.boards import BoardRow, called
from hubbub_tui.screens.question import returned, words, wrong
from hubbub_tui.widgets.part import Part

LOOK_S = 0.2
MAX_QUESTION_CHARS = 60


class Outcome(Part, Static):
    """Shows one answer and follows its call; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__(id="outcome", markup=False)
        # The call that asked; or those of which one did.
        self._calls: tuple[str, ...] = ()
        self._certain = True
        self._seen: object = None
        self._sent = Text()
        self.display = False

    def on_mount(self) -> None:
        """Start following the call."""
        self.set_interval(LOOK_S, self._look)

    def show_answer(self, request: PendingRequest) -> None:
        """Show an answer that was accepted."""
        self._calls = (request.call_id,) if request.call_id else request.candidate_call_ids
        self._certain, self._seen = request.call_id is not None, None
        ended = {id_ for id_ in self._calls if (row := self._row(id_)) and row.record.ended}
        self._calls = tuple(id_ for id_ in self._calls if self._certain or id_ not in ended)
        question, answer = line(words(request), MAX_QUESTION_CHARS), answer_line(request)
        style = STYLES.get(outcome(request), "")
        self._sent = Text.assemble(("✓ Sent", f"bold {style}"), f": {question} ", (answer, "bold"))
        self._say("")
        self._look()

    def hide(self) -> None:
        """Show nothing, and follow nothing."""
        self._calls, self.display = (), False

    def _row(self, id_: str) -> BoardRow[Call] | None:
        return self.hub_app.boards.calls.rows.get(id_)

    def _look(self) -> None:
        rows = [row for id_ in self._calls if (row := self._row(id_)) is not None]
        row = next((each for each in rows if each.record.ended), rows[0] if self._certain and rows else None)
        if row is None or row is self._seen:
            return
        self._seen = row
        if row.record.ended:
            self.run_worker(self._fetch(row.key), group="outcome", exclusive=True)
        elif row.record.state == "waiting_input" and row.record.pending_ids:
            open_ = [id_ for id_ in row.record.pending_ids if id_ in self.hub_app.boards.open.rows]
            self._say(f"{line(called(row.record))} asks something else: it is in the inbox" if open_ else "")
        else:
            self._say(f"{line(called(row.record))} goes on; what it returns is shown here")

    async def _fetch(self, id_: str) -> None:
        try:
            call = await self.hub_app.hub.calls.get(id_)
        except HubbubError as error:
            self._say(line(error.message))
            return
        if id_ in self._calls:
            self._calls = ()
            perhaps = "" if self._certain else "Perhaps because of it: "
            self._say(f"{perhaps}{returned(call)}", "red" if wrong(call) else "")

    def _say(self, then: str, style: str = "") -> None:
        self.display = True
        self.update(Text.assemble(self._sent, ("\n  " if then else ""), (then, style)))
