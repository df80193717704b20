"""The pane of servers: their connections and queues."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.data.records import Server
from hubbub_frontend.display import text
from hubbub_frontend.display.records import describe_queue, local_datetime, relative_time
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.error_help import help_hint
from hubbub_frontend.shell_commands import with_hub_options
from hubbub_tui.boards import Board, BoardRow
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.screens.new_server import AddServer
from hubbub_tui.widgets.table import Column


def _render_trouble(server: Server) -> Text:
    """Return why a server is not connected, and when the hub tries again; the queue of a server without trouble."""
    code, message = (server.error.code, server.error.message or "") if server.error else ("", "")
    if server.gave_up:
        reason = f"{code} · c connects again: {message}" if server.error else "c connects again"
        return Text(text.line(reason), style="red")
    if server.state == "error" or server.error:
        retry = f"next try {relative_time(server.next_retry_at)} · " if server.next_retry_at else ""
        return Text(text.line(f"{retry}{code}: {message}" if server.error else retry), style="red")
    return Text(describe_queue(server.queue), style="" if server.state == "connected" else "dim")


def _styled_state(server: Server) -> Text:
    """Return the state of a connection in its colour; `gave up` if the hub does not try again by itself."""
    return text.styled_state("gave_up" if server.gave_up else server.state)


class ServersPane(ListPane):
    """All servers, by name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "add", "Add"),
        Binding("c", "connect", "Connect"),
        Binding("d", "disconnect", "Disconnect"),
        Binding("x", "clear_queue", "Clear queue", show=False),
    ]
    COLUMNS = (
        Column("name", lambda row: text.line(row.record.name), 14),
        Column("state", lambda row: _styled_state(row.record), 13),
        Column("by", lambda row: row.record.transport or "-", 5),
        Column("protocol", lambda row: text.line(row.record.protocol_version or "-"), 10, wide=True),
        Column("queue or trouble", lambda row: _render_trouble(row.record)),
    )

    @property
    def board(self) -> Board[Any]:
        """Return the board of servers."""
        return self.boards.servers

    def rows(self) -> Sequence[BoardRow[Server]]:
        """Return the servers, by name."""
        return sorted(self.board.rows.values(), key=lambda row: row.key)

    def summary_line(self) -> str:
        """Return how many of the servers are connected."""
        servers = [row.record for row in self.board.rows.values()]
        if not servers:
            return "No servers yet"
        connected = sum(server.state == "connected" for server in servers)
        limit_note = f" (the newest {len(servers)} are shown)" if self.board.hidden else ""
        return f"{connected} of {self.board.total} connected{limit_note}"

    def empty_detail(self) -> Text:
        """Return how to add the first server."""
        page = DetailText().paragraph("A server is a program that offers tools over MCP. a adds one.")
        return page.paragraph(with_hub_options("Those of your other programs: hubbub init"), "dim").text

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return what the filter searches: the name, the state and the transport."""
        return f"{row.key} {row.record.state} {row.record.transport}"

    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Render the server in full: its state, its error, its queue, what it says of itself; nothing is fetched."""
        server: Server = row.record
        page = (
            DetailText().defect(server.defect).fact("state", _styled_state(server)).fact("wanted", server.desired_state)
        )
        if server.gave_up:
            page.paragraph("The hub does not try again by itself: press c", "red")
        page.fact("transport", server.transport).fact("protocol", server.protocol_version).fact("process", server.pid)
        page.fact("attempt", server.attempt or None)
        page.fact("next try", local_datetime(server.next_retry_at))
        if server.error:
            page.heading("Trouble").fact("code", f"{server.error.code} ({server.error.category})", "red")
            page.paragraph(server.error.message, "red").fact(
                "help", help_hint(server.error.code, server.error.help_url)
            )
            if server.error.details:
                page.json(server.error.details)
        if server.notes:
            page.heading("Noted")
            for note in server.notes:
                page.paragraph(note)
        counts = server.queue.to_json() if server.queue else {}
        if any(counts.values()):
            page.heading("Queue")
            for name, count in counts.items():
                page.fact(name.replace("_", " "), count or None)
        if server.server_info:
            page.heading("Server").json(server.server_info)
        if server.capabilities:
            page.heading("Capabilities").json(server.capabilities)
        return page.text

    def action_add(self) -> None:
        """Ask for a server, and add it."""

        def confirm_added(name: str | None) -> None:
            """Say that a server was added, and show all rows; None: the person left."""
            if name is not None:
                self.notify(f"{text.line(name)} is added", markup=False)
                self.clear_filter()

        self.hub_app.push_screen(AddServer(), confirm_added)

    def action_connect(self) -> None:
        """Connect the server under the cursor."""
        if (row := self.current) is not None:
            self.hub_app.start_action(self.hub_app.hub.servers.connect(row.key), f"{row.key} is being connected")

    def action_disconnect(self) -> None:
        """Disconnect the server under the cursor, after a question."""
        if (row := self.current) is not None:
            question = f"Disconnect {text.line(row.key)}? Its calls fail, and its pending requests are withdrawn."
            self.hub_app.confirm(
                question, lambda: self.hub_app.hub.servers.disconnect(row.key), f"{row.key} is being disconnected"
            )

    def action_clear_queue(self) -> None:
        """Cancel all queued calls of the server under the cursor, after a question."""
        if (row := self.current) is not None:
            self.hub_app.clear_queue(row.key)
