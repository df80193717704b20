"""Checks of the rules of approvals: patterns that match no server, or no tool."""

from collections.abc import Iterator

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.approvals.rules import CallRules
from hubbubd.core.servers.catalog import CatalogKind, Freshness, list_id
from hubbubd.runtime.calls import HOST, people_config
from hubbubd.runtime.diagnostics.findings import Finding, Severity
from hubbubd.runtime.hub import Hub


def servers_under_rules(hub: Hub) -> dict[str, ServerConfig]:
    """Return, by name, the configurations of the servers to which approval rules apply.

    HOST stands for questions of hosts to people, and is among them where hosts can ask people.
    """
    configs = {record.name: record.config for record in hub.servers.all()}
    return configs | {HOST: people_config()} if hub.calls.has_queue(HOST) else configs


def find_unmatched(hub: Hub, rules: CallRules) -> list[str]:
    """Return a text for each rule with patterns that match no server, or no tool of servers with known tools."""
    servers = servers_under_rules(hub)
    tools_by_server: dict[str, list[str]] = {}
    for server in servers:
        tools = hub.catalog.record(server, CatalogKind.TOOL)
        # Only lists that were fetched: a tool that is missing in another list may exist.
        if tools is not None and tools.freshness in (Freshness.FRESH, Freshness.STALE, Freshness.EMPTY):
            entries = hub.catalog.entries(list_id(server, CatalogKind.TOOL))
            tools_by_server[server] = [str(payload.loads(entry).get("name")) for entry in entries]
    return list(rules.find_unmatched(servers, tools_by_server))


def check_rules(hub: Hub) -> Iterator[Finding]:
    """Yield a finding for each rule of the configuration with patterns that match nothing."""
    for problem in find_unmatched(hub, CallRules(hub.approvals.settings.rules)):
        advice = "correct the pattern, or leave it for what is yet to come (docs/approvals.md)"
        yield Finding("approvals", Severity.WARN, problem, advice)
