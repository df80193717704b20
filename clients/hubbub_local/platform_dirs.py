"""Where programs keep their files, by platform."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hubbub_client.transport.discovery import HubLocation, client_file
from hubbub_shared import platform
from hubbub_shared.platform.directories import default_config_file, settings_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine as far as it decides where programs keep their files; `platform` as `sys.platform`."""

    platform: str
    home: Path
    environ: Mapping[str, str]

    @classmethod
    def here(cls) -> "Machine":
        """Return the machine of this process."""
        return cls(platform=platform.NAME, home=Path.home(), environ=os.environ)

    def application_dir(self, name: str) -> Path:
        """Return the directory of an application's settings."""
        return settings_directory(name, self.platform, self.home, self.environ)


def find_config_file(machine: Machine) -> Path:
    """Return the configuration file that a hub reads if no file is named."""
    return default_config_file(machine.platform, machine.home, machine.environ)


def list_config_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the configuration files that HUBBUBD_CONFIG names, as for `hubbubd`; none if it is not set."""
    return [Path(each).expanduser() for each in environ.get("HUBBUBD_CONFIG", "").split(os.pathsep) if each]


def find_data_dir(data_dir_option: str | None) -> Path:
    """Return the data directory: as given, else by HUBBUB_DATA_DIR, else the default one.

    Raises Unavailable if this user has no home directory.
    """
    return client_file(HubLocation(data_dir=data_dir_option)).parent
