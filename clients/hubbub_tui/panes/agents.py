"""The pane of coding agents: their sessions, as they go on."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Footer

from hubbub_client.data.coding_sessions import CodingSession
from hubbub_client.errors import HubbubError
from hubbub_frontend.display import text
from hubbub_frontend.display.coding_sessions import (
    read_tool_failure,
    render_no_agents,
    render_session,
    session_title,
    sort_sessions,
)
from hubbub_frontend.display.records import relative_time
from hubbub_tui.boards import Board, BoardRow
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.screens.dialogs import ChoicePrompt, TextPrompt
from hubbub_tui.widgets.header import Header
from hubbub_tui.widgets.part import Part
from hubbub_tui.widgets.table import Column

# States of a session in which a turn is under way.
GOING = frozenset(("working", "waiting"))


class AgentsPane(ListPane):
    """The sessions of all coding agents: those that wait for a person first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer"),
        Binding("c", "continue", "Go on"),
        Binding("x", "cancel", "Stop"),
        Binding("n", "new", "New session"),
    ]
    COLUMNS = (
        Column("changed", lambda row: relative_time(row.record.updated_at), 8),
        Column("server", lambda row: text.line(row.record.server), 12),
        Column("about", lambda row: session_title(row.record)),
        Column("folder", lambda row: text.line(row.record.cwd), 24, wide=True),
        Column("state", lambda row: text.styled_state(row.record.state), 8),
    )

    @property
    def board(self) -> Board[Any]:
        """Return the board of sessions."""
        return self.boards.sessions

    def rows(self) -> Sequence[BoardRow[CodingSession]]:
        """Return the sessions: those that wait for a person, those that work, then the newest."""
        by_key = {row.key: row for row in self.board.rows.values()}
        return [by_key[_row_key(each)] for each in sort_sessions(row.record for row in by_key.values())]

    def action_back(self) -> None:
        """Go one step back: from the detail to the table, from the filtered rows to all rows, else to the panes."""
        if self.has_class("-full") or self._filter.words:
            super().action_back()
        else:
            self.screen.dismiss()

    def summary_line(self) -> str:
        """Return how many sessions there are, how many wait, and which agents cannot be read."""
        problems = [f"{text.line(name)}: {text.line(why)}" for name, why in self.boards.agent_problems.items()]
        if not self.board.total:
            return " · ".join(["No session of a coding agent", *problems])
        waiting = sum(row.record.state == "waiting" for row in self.board.rows.values())
        waits = f"{waiting} waiting for an answer" if waiting else ""
        return " · ".join(filter(None, [self.board.describe_count("session"), waits, *problems]))

    def empty_detail(self) -> Text:
        """Return how to start the first session, or how to add the first agent."""
        if self.boards.agents:
            return Text("No agent works. Press n to start a session.")
        return render_no_agents()

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return what the filter searches: also the prompt, the folder, the agent and the state."""
        session: CodingSession = row.record
        return f"{super().search_text(row)} {session.title} {session.cwd} {session.agent} {session.state}"

    def detail_version(self, row: BoardRow[Any]) -> object:
        """Return a value that changes with the session, and with the question that it waits for."""
        return row.record, self._find_question_id(row.record)

    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Render the session in full, with the question that it waits for; nothing is fetched."""
        open_row = self.boards.open.rows.get(self._find_question_id(row.record) or "")
        return render_session(row.record, open_row.about if open_row is not None else "")

    def action_answer(self) -> None:
        """Open the question that the session waits for."""
        if (row := self.current) is not None:
            question_id = self._find_question_id(row.record)
            self.hub_app.open_first_open([question_id] if question_id else [])

    def action_continue(self) -> None:
        """Ask for a prompt, and send it to the session. While a turn is under way, only notify of that."""
        row = self.current
        if row is None:
            return
        if row.record.state in GOING:
            self.notify("it works on a prompt; the next one can be sent when that is done")
            return
        session: CodingSession = row.record

        def send_prompt(prompt: str | None) -> None:
            """Send what was typed; nothing if the person left, or typed nothing."""
            if prompt and prompt.strip():
                self._continue(session, prompt.strip())

        self.hub_app.push_screen(TextPrompt(f"Go on with {session_title(session)}:", ""), send_prompt)

    def action_cancel(self) -> None:
        """Stop the turn of the session, after confirmation."""
        row = self.current
        if row is None:
            return
        session: CodingSession = row.record
        if session.state not in GOING:
            self.notify("no turn is under way")
            return
        question = f"Stop what {text.line(session.server)} does in {session_title(session)}?"
        arguments = {"session": session.id}
        self.hub_app.confirm(
            question, lambda: self.hub_app.hub.call_tool(session.server, "cancel", arguments), done="it is to stop"
        )

    def action_new(self) -> None:
        """Start a session, by the form of the agent's own tool."""
        agents = sorted(self.boards.agents)

        def open_form_of(index: int | None) -> None:
            """Open the form of the agent at an index; None: the person left."""
            if index is not None:
                self.run_worker(self._open_form(agents[index]), group="new", exclusive=True)

        if not agents:
            self.notify("no coding agent is behind the hub")
        elif len(agents) == 1:
            open_form_of(0)
        else:
            self.hub_app.push_screen(
                ChoicePrompt("Which agent?", [text.line(each) for each in agents], 0), open_form_of
            )

    async def _open_form(self, server: str) -> None:
        """Open the form of the tool by which an agent starts a session."""
        try:
            tools = await self.hub_app.hub.catalog.tools(server)
        except HubbubError as error:
            self.hub_app.show_error(error)
            return
        start = next((each for each in tools if each.name == "start"), None)
        if start is None:
            self.notify(f"{text.line(server)} has no tool to start a session")
        else:
            self.hub_app.invoke(start)

    def _continue(self, session: CodingSession, prompt: str) -> None:
        """Send a prompt to the session by the agent's own tool, in the background; show why that failed, if it does.

        The agent works on the prompt also after this program has ended.
        """

        async def call_tool() -> None:
            """Call the tool, wait for its result, and show a failure."""
            arguments = {"session": session.id, "prompt": prompt}
            try:
                call = await self.hub_app.hub.start_tool(session.server, "continue", arguments)
                self.notify("sent")
                result = await call.result()
            except HubbubError as error:
                self.hub_app.show_error(error)
                return
            if failure := read_tool_failure(result.raw):
                self.notify(failure, severity="error", markup=False)

        self.run_worker(call_tool(), group="turns")

    def _find_question_id(self, session: CodingSession) -> str | None:
        """Return the id of the open pending request that a session waits for; None if there is none."""
        return self.boards.session_questions.get((session.server, session.id))


class AgentsScreen(Part, Screen[None]):
    """The sessions of coding agents. They are followed once this screen is shown for the first time."""

    def compose(self) -> ComposeResult:
        yield Header()
        with Container():
            yield AgentsPane()
        yield Footer()

    def on_mount(self) -> None:
        """Begin to follow the sessions, and show those that are known."""
        self.hub_app.follow_sessions()
        for pane in self.query(AgentsPane):  # none if the program ends at the same time
            pane.refresh_rows(at_once=True)
            pane.focus_list()


def _row_key(session: CodingSession) -> str:
    """Return the key of a session's row."""
    return f"{session.server} {session.id}"
