"""The hub as an MCP server: what hosts ask, whatever carries their messages."""

from hubbubd.downstream.bridged import BridgedHost, BridgedHosts
from hubbubd.downstream.endpoint import Endpoint
from hubbubd.downstream.endpoints import Endpoints
from hubbubd.downstream.handles import Handles
from hubbubd.downstream.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, Exchange, Host, Outlet
from hubbubd.downstream.merged import Merged
from hubbubd.downstream.policy import Policy
from hubbubd.downstream.profiles import Transparent
from hubbubd.downstream.sessions import Session, Sessions
from hubbubd.downstream.state_keys import KeyRing

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
    "Merged",
    "Outlet",
    "Policy",
    "Session",
    "Sessions",
    "Transparent",
]
