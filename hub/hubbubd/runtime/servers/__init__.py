"""Servers: registry, connections, notifications, metrics, and the configuration they come from."""

from hubbubd.runtime.servers.config.configuration import ConfigState, Configuration
from hubbubd.runtime.servers.config.revisions import StaleRevision
from hubbubd.runtime.servers.config.secrets import SpecSecrets
from hubbubd.runtime.servers.events import LOG_LINES, EventFeed, EventFilter, EventStep, ServerEvent, ServerEventKind
from hubbubd.runtime.servers.log_levels import LogLevels
from hubbubd.runtime.servers.measures import MAX_NAMES, Measures
from hubbubd.runtime.servers.parts import Assembly
from hubbubd.runtime.servers.registry import Servers
from hubbubd.runtime.servers.subscriptions import ResourceUpdate, Subscriptions

__all__ = [
    "LOG_LINES",
    "MAX_NAMES",
    "Assembly",
    "ConfigState",
    "Configuration",
    "EventFeed",
    "EventFilter",
    "EventStep",
    "LogLevels",
    "Measures",
    "ResourceUpdate",
    "ServerEvent",
    "ServerEventKind",
    "Servers",
    "SpecSecrets",
    "StaleRevision",
    "Subscriptions",
]
