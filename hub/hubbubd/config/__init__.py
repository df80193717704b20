"""Settings of the hub and of each server: from files, the environment and the command line."""

from hubbubd.config.hub import HubSettings, default_data_dir
from hubbubd.config.load import LoadedSettings, load_settings
from hubbubd.config.policy.confinement import Confinement
from hubbubd.config.servers.references import VariableNotSet, expand, refers, resolve
from hubbubd.config.servers.server import ServerConfig

__all__ = [
    "Confinement",
    "HubSettings",
    "LoadedSettings",
    "ServerConfig",
    "VariableNotSet",
    "default_data_dir",
    "expand",
    "load_settings",
    "refers",
    "resolve",
]
