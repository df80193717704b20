"""Settings of the hub and of each server: from files, the environment and the command line."""

from hubbubd.config.hub import HubSettings
from hubbubd.config.load import LoadedSettings, load_settings
from hubbubd.config.policy.confinement import Confinement
from hubbubd.config.servers.references import VariableNotSet, expand, has_references, resolve
from hubbubd.config.servers.server import ServerConfig

__all__ = [
    "Confinement",
    "HubSettings",
    "LoadedSettings",
    "ServerConfig",
    "VariableNotSet",
    "expand",
    "has_references",
    "load_settings",
    "resolve",
]
