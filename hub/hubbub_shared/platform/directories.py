"""Where programs keep their files, by platform."""

from collections.abc import Mapping
from pathlib import Path


def settings_directory(application: str, platform: str, home: Path, environ: Mapping[str, str]) -> Path:
    """Return the directory of an application's settings; `platform` as `sys.platform`."""
    match platform:
        case "darwin":
            base = home / "Library" / "Application Support"
        case "win32":
            base = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
        case _:
            base = _xdg_directory(environ.get("XDG_CONFIG_HOME")) or home / ".config"
    return base / application


def default_config_file(platform: str, home: Path, environ: Mapping[str, str]) -> Path:
    """Return the file that a hub reads if none is named; `platform` as `sys.platform`."""
    return settings_directory("hubbub", platform, home, environ) / "hubbub.toml"


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Return the data directory of a hub that is given none. Raises RuntimeError if the user has no home directory."""
    return (_xdg_directory(environ.get("XDG_DATA_HOME")) or Path.home() / ".local" / "share") / "hubbub"


def _xdg_directory(value: str | None) -> Path | None:
    """Return the directory of an XDG variable; None if it is relative, which the specification says to ignore.

    https://specifications.freedesktop.org/basedir-spec
    """
    return Path(value) if value is not None and value.startswith("/") else None
