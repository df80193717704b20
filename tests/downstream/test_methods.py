"""What docs/mcp.md says of each method is what an endpoint does."""

import pytest

from hubbubd.downstream.protocol.messages import NotificationMessage

from ..method_table import ROWS, TO_HUB, Row
from ..runtime.peer import Outcome, Sent
from .conftest import NEW, OLD, OldHost, Opened, settle

COLUMNS = {"2024-11-05": 0, "2025-03-26": 0, "2025-06-18": 0, OLD: 1, NEW: 2}
URI = "file:///a"
SKILLS = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
EVERYTHING = {
    "tools": {},
    "prompts": {},
    "logging": {},
    "completions": {},
    "resources": {"subscribe": True},
    "extensions": SKILLS,
}
PARAMS = {"name": "t", "uri": URI, "ref": {"type": "ref/prompt", "name": "p"}, "level": "info", "notifications": {}}
REQUESTS = [row for row in ROWS[TO_HUB] if not row.is_notification]
IGNORED = [row for row in ROWS[TO_HUB] if "ignored" in row.fates.values()]


def fate(row: Row, revision: str) -> str:
    return list(row.fates.values())[COLUMNS[revision]]


async def every_list_empty(_sent: Sent) -> Outcome:
    return {"tools": [], "prompts": [], "resources": [], "resourceTemplates": [], "skills": []}


@pytest.mark.parametrize("revision", COLUMNS)
@pytest.mark.parametrize("row", REQUESTS, ids=lambda row: row.method)
async def test_a_request_is_passed_on_or_answered_or_refused_as_the_table_says(
    place: Opened, row: Row, revision: str
) -> None:
    async with place(OLD, capabilities=EVERYTHING, listing=every_list_empty) as at:
        host = at.host(revision)
        if row.method == "resources/unsubscribe" and isinstance(host, OldHost) and fate(row, revision) != "refused":
            await host.ask("resources/subscribe", uri=URI)
        under_way = host.begin(row.method, **PARAMS)
        await settle(1)
        refused = under_way.done() and b'"code":-32601' in under_way.result()
        assert refused == (fate(row, revision) == "refused")
        passed_on = row.method in [sent.method for sent in at.peer.sent]
        assert passed_on == (fate(row, revision) == "passed on")
        under_way.cancel()


@pytest.mark.parametrize("revision", [each for each in COLUMNS if each != NEW])
@pytest.mark.parametrize("row", IGNORED, ids=lambda row: row.method)
async def test_a_notification_that_the_hub_has_no_use_for_changes_nothing(
    place: Opened, row: Row, revision: str
) -> None:
    async with place(OLD, capabilities=EVERYTHING, listing=every_list_empty) as at:
        host = at.old(revision)
        await host.ask("tools/call", name="t")
        before = len(at.peer.link.notified), len(at.peer.fetches), len(at.peer.sent)
        host.session.receive(NotificationMessage(row.method, {"progressToken": 1, "progress": 1, "taskId": "x"}))
        await settle(1)
        assert (len(at.peer.link.notified), len(at.peer.fetches), len(at.peer.sent)) == before
        assert (host.stream.take_all(), host.session.ended) == ([], False)
        assert await host.ask("ping") == {}
