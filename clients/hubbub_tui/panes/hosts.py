"""The pane of hosts: who uses the hub as an MCP server, and what each waits for."""

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.data.hosts import ConnectedHost, HostRequest
from hubbub_frontend.display import hosts, text
from hubbub_frontend.display.records import local_datetime, relative_time
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.shell_commands import with_hub_options
from hubbub_tui.boards import Board, BoardRow, Boards
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.widgets.table import Column

REFRESH_S = 2.0


class HostsPane(ListPane):
    """The hosts that are connected, newest first; or also those that have probably gone.

    The hub has no watch of hosts, so they are read again from time to time.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer"),
        Binding("g", "call", "Its call"),
        Binding("h", "gone", "Show gone"),
        Binding("h", "present", "Hide gone"),
    ]
    COLUMNS = (
        Column("host", lambda row: text.line(hosts.name_and_version(row.record))),
        Column("for", lambda row: text.line(row.record.principal), 12),
        Column("sees", lambda row: text.line(hosts.endpoint_name(row.record)), 18),
        Column("by", lambda row: text.line(row.record.transport), 5, wide=True),
        Column("protocol", lambda row: text.line(row.record.protocol_version), 10, wide=True),
        Column("stream", lambda row: hosts.stream_state(row.record), 6, wide=True),
        Column("last seen", lambda row: relative_time(row.record.last_used_at), 9),
        Column("state", lambda row: text.styled_state(hosts.host_state(row.record)), 13),
    )

    def __init__(self) -> None:
        super().__init__()
        self._read_at = -REFRESH_S  # of `time.monotonic`, when the hosts were read last
        self._includes_gone = False

    @property
    def board(self) -> Board[Any]:
        """Return the board of hosts."""
        return self.boards.hosts

    def version(self) -> object:
        """Return a value that changes with the hosts and with which of them are shown."""
        return self._includes_gone, self.board.version

    def rows(self) -> Sequence[BoardRow[ConnectedHost]]:
        """Return the hosts, newest first; those that have probably gone only if the person asked for them."""
        return [row for row in self.board.rows.values() if self._includes_gone or not row.record.gone]

    def refresh_rows(self, *, at_once: bool = False) -> None:
        """Show the hosts; read them again from time to time while the pane is visible."""
        now = time.monotonic()
        if self.is_visible_pane and now >= self._read_at + REFRESH_S:
            self._read_at = now
            self.run_worker(self.boards.read_newest_hosts(), group="hosts", exclusive=True)
        super().refresh_rows(at_once=at_once)

    def summary_line(self) -> str:
        """Return how many hosts are connected, wait for an answer, and have probably gone."""
        rows = self.board.rows.values()
        gone = sum(row.record.gone for row in rows)
        connected = self.board.total - gone
        gone_note = (
            f" · {gone} probably gone: {'shown, too' if self._includes_gone else 'h shows them'}" if gone else ""
        )
        if not connected:
            return "" if self.boards.hosts_refused else f"No host is connected{gone_note}"
        newest = "of the newest: " if self.boards.more_hosts else ""
        waiting = sum(hosts.host_state(row.record) == "waiting_input" for row in rows)
        waiting_note = f" · {waiting} waiting for an answer" if waiting else ""
        return f"{newest}{connected} host{'' if connected == 1 else 's'}{waiting_note}{gone_note}"

    def empty_detail(self) -> Text:
        """Return how to connect a host, or why this person may not see the hosts."""
        if self.boards.hosts_refused:
            return DetailText().paragraph(hosts.REFUSED).text
        return (
            DetailText()
            .paragraph(hosts.EMPTY)
            .paragraph(f"\n{with_hub_options(hosts.PASTE)}\n", "bold")
            .paragraph(with_hub_options(hosts.OTHERS), "dim")
            .text
        )

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return what the filter searches: the names of the host, whom it acts for, its endpoint and its state."""
        host: ConnectedHost = row.record
        names = f"{row.key} {hosts.name_and_version(host)} {host.principal} {hosts.endpoint_name(host)}"
        return f"{names} {host.transport} {hosts.host_state(host)}"

    def detail_version(self, row: BoardRow[Any]) -> object:
        """Return a value that changes with the host, and with the words in which its requests are shown."""
        return row.record, [_describe_request(request, self.boards) for request in row.record.requests]

    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Render the host in full, with what it waits for; nothing is fetched."""
        host: ConnectedHost = row.record
        page = DetailText().fact("state", text.styled_state(hosts.host_state(host))).heading("What it waits for")
        can_answer = False
        for request in host.requests:
            requested_at = f"{request.created_at.astimezone():%H:%M:%S}"
            page.paragraph(f"• {_describe_request(request, self.boards)}, since {requested_at}")
            certainty = "" if request.pending_request_ids else "perhaps: "
            for id_ in _waiting_requests(request, self.boards):
                can_answer = True
                open_row = self.boards.open.rows.get(id_)
                page.paragraph(f"  {certainty}{open_row.about if open_row else text.line(id_)}", "yellow")
        if not host.requests:
            page.paragraph("nothing at the moment", "dim")
        elif can_answer:
            page.paragraph("press a to answer", "dim")
        page.paragraph("A call that it was given a ticket or a task for goes on without it: 3 shows the calls.", "dim")
        page.heading("Host").fact("name", hosts.name_and_version(host)).fact("for", host.principal)
        page.fact("sees", hosts.endpoint_name(host))
        page.fact("over", hosts.transport_name(host)).fact("protocol", host.protocol_version)
        page.fact("connected" if host.has_session else "first seen", local_datetime(host.created_at))
        page.fact("last seen", local_datetime(host.last_used_at)).fact("stream", hosts.stream_state(host))
        return page.fact("id", host.id).text

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether to offer an action: of `gone` and `present` the one that changes the list, and all others."""
        if action in ("gone", "present"):
            return self._includes_gone == (action == "present")
        return True

    def action_gone(self) -> None:
        """Show also the hosts that have probably gone."""
        self._show_hosts(include_gone=True)

    def action_present(self) -> None:
        """Show only the hosts that are connected."""
        self._show_hosts(include_gone=False)

    def action_answer(self) -> None:
        """Open the first pending request that the host waits for."""
        if (row := self.current) is not None:
            ids = [id_ for request in row.record.requests for id_ in _waiting_requests(request, self.boards)]
            self.hub_app.open_first_open(ids)

    def _show_hosts(self, *, include_gone: bool) -> None:
        """Show the connected hosts; with `include_gone`, also the hosts that have probably gone."""
        self._includes_gone = include_gone
        self.refresh_rows(at_once=True)
        self.refresh_bindings()

    def action_call(self) -> None:
        """Show the oldest call that the host waits for."""
        if (row := self.current) is not None:
            call_id = next((request.call_id for request in row.record.requests if request.call_id), None)
            self.show_related("calls", call_id, "it waits for no call")


def _describe_request(request: HostRequest, boards: Boards) -> str:
    """Return what a request is: the call in words, or its method."""
    call = boards.calls.rows.get(request.call_id or "")
    return f"{call.about} ({text.line(call.record.server)})" if call else text.line(request.method)


def _waiting_requests(request: HostRequest, boards: Boards) -> Sequence[str]:
    """Return the pending requests that the call of a request waits for, or perhaps waits for."""
    call = boards.calls.rows.get(request.call_id or "")
    return request.pending_request_ids or (boards.candidate_requests(call.record) if call else ())
