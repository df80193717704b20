"""The hub as an MCP server: what hosts ask, whatever carries their messages."""

from hubbubd.downstream.endpoint import Endpoint
from hubbubd.downstream.endpoints import Endpoints
from hubbubd.downstream.hosts.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, Exchange, Host, Outlet
from hubbubd.downstream.hosts.limits import Limits
from hubbubd.downstream.hosts.processes import Processes
from hubbubd.downstream.hosts.unread_bytes import Unread
from hubbubd.downstream.questions.state_keys import KeyRing
from hubbubd.downstream.questions.state_tokens import Handles
from hubbubd.downstream.sessions.bridged_hosts import BridgedHost, BridgedHosts
from hubbubd.downstream.sessions.replay import Replay
from hubbubd.downstream.sessions.session import Serve, Session
from hubbubd.downstream.sessions.session_table import Sessions
from hubbubd.downstream.views.profile_view import Merged
from hubbubd.downstream.views.question_policy import Policy
from hubbubd.downstream.views.view import Transparent

__all__ = [
    "HANDSHAKE_REVISIONS",
    "STATELESS_REVISIONS",
    "BridgedHost",
    "BridgedHosts",
    "Endpoint",
    "Endpoints",
    "Exchange",
    "Handles",
    "Host",
    "KeyRing",
    "Limits",
    "Merged",
    "Outlet",
    "Policy",
    "Processes",
    "Replay",
    "Serve",
    "Session",
    "Sessions",
    "Transparent",
    "Unread",
]
