"""Settings: of the hub, and of each server; from files, the environment and the command line."""

from hubbubd.config.server import ServerConfig

__all__ = ["ServerConfig"]
