"""Servers: their connections, what they say unasked, and the configuration that they come from."""

from hubbubd.runtime.servers.configuration import ConfigState, Configuration
from hubbubd.runtime.servers.connection import Turns
from hubbubd.runtime.servers.events import LOG_LINES, EventFeed, EventFilter, Heard, ServerEvent, ServerEventKind
from hubbubd.runtime.servers.inbound import PlainRequests
from hubbubd.runtime.servers.log_levels import LogLevels
from hubbubd.runtime.servers.measures import MAX_NAMES, Measures
from hubbubd.runtime.servers.registry import Servers
from hubbubd.runtime.servers.rooms import Rooms
from hubbubd.runtime.servers.subscriptions import ResourceUpdate, Subscriptions

__all__ = [
    "LOG_LINES",
    "MAX_NAMES",
    "ConfigState",
    "Configuration",
    "EventFeed",
    "EventFilter",
    "Heard",
    "LogLevels",
    "Measures",
    "PlainRequests",
    "ResourceUpdate",
    "Rooms",
    "ServerEvent",
    "ServerEventKind",
    "Servers",
    "Subscriptions",
    "Turns",
]
