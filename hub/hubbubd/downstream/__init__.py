"""The hub as an MCP server: what hosts ask, whatever carries their messages."""

from hubbubd.downstream.endpoint import McpEndpoint, McpEndpoints
from hubbubd.downstream.hosts.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, HostOutbox, HostRequest, McpHost
from hubbubd.downstream.hosts.limits import HostLimits
from hubbubd.downstream.hosts.processes import HostProcesses
from hubbubd.downstream.hosts.unread_bytes import UnreadBytes
from hubbubd.downstream.questions.state_tokens import StateTokens
from hubbubd.downstream.sessions.bridged_hosts import BridgedHost, BridgedHosts
from hubbubd.downstream.sessions.replay import ReplayStream
from hubbubd.downstream.sessions.session import EndpointSession, Serve
from hubbubd.downstream.sessions.session_table import EndpointSessions
from hubbubd.downstream.views.profile_view import ProfileView
from hubbubd.downstream.views.question_policy import QuestionPolicy
from hubbubd.downstream.views.view import ServerView

__all__ = [
    "HANDSHAKE_REVISIONS",
    "STATELESS_REVISIONS",
    "BridgedHost",
    "BridgedHosts",
    "EndpointSession",
    "EndpointSessions",
    "HostLimits",
    "HostOutbox",
    "HostProcesses",
    "HostRequest",
    "McpEndpoint",
    "McpEndpoints",
    "McpHost",
    "ProfileView",
    "QuestionPolicy",
    "ReplayStream",
    "Serve",
    "ServerView",
    "StateTokens",
    "UnreadBytes",
]
