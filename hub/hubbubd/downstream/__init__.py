"""The hub as an MCP server: what hosts ask, whatever carries their messages."""

from hubbubd.downstream.bridged import BridgedHost, BridgedHosts
from hubbubd.downstream.endpoint import Endpoint
from hubbubd.downstream.endpoints import Endpoints
from hubbubd.downstream.handles import Handles
from hubbubd.downstream.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, Exchange, Host, Outlet
from hubbubd.downstream.limits import Limits
from hubbubd.downstream.merged import Merged
from hubbubd.downstream.policy import Policy
from hubbubd.downstream.processes import Processes
from hubbubd.downstream.profiles import Transparent
from hubbubd.downstream.replay import Replay
from hubbubd.downstream.session import Serve, Session
from hubbubd.downstream.session_table import Sessions
from hubbubd.downstream.state_keys import KeyRing
from hubbubd.downstream.unread import Unread

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
