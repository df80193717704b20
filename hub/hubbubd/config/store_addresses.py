"""The two stores of a copy, as they are named on the command line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from hubbubd.config.sections.store import StoreSettings
from hubbubd.errors import ConfigError

OPTION: Final = "--copy-store"

FILE_SCHEME: Final = "sqlite:"
DATABASE_SCHEMES: Final = ("postgresql://", "postgres://")
SCHEMA_NAME: Final = "schema_name"
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A store in a file."""

    path: Path

    def is_same(self, other: "Place") -> bool:
        """Return whether both are one store, as far as their paths tell."""
        return isinstance(other, FilePlace) and self.path.resolve() == other.path.resolve()


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """A store in a schema of a database."""

    url: str
    schema: str

    def is_same(self, other: "Place") -> bool:
        """Return whether both are one store, as far as names say."""
        return self == other


Place = FilePlace | DatabasePlace


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCopy:
    """What is copied where. `secrets` takes those of servers along; `verify` compares both afterwards."""

    source: Place
    target: Place
    secrets: bool
    verify: bool


def parse_place(text: str, settings: StoreSettings) -> Place:
    """Return the store that an address names: `sqlite:PATH`, or a database as `[store] url` has it.

    The schema of a database is that of its `?schema_name=`, or else that of `[store]`. Raises ConfigError, which never
    repeats a password.
    """
    if text.startswith(FILE_SCHEME) and text != FILE_SCHEME and "\0" not in text:
        return FilePlace(Path(text.removeprefix(FILE_SCHEME)).expanduser())
    if text.startswith(DATABASE_SCHEMES):
        return _parse_database(text, settings)
    raise ConfigError(OPTION, "FROM and TO are sqlite:PATH or postgresql://USER@HOST:PORT/DATABASE")


def _parse_database(url: str, settings: StoreSettings) -> DatabasePlace:
    """Return the database and schema that a URL names; the option for the schema is taken out. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        has_password = parts.password is not None or "password" in options
    except ValueError as error:
        raise ConfigError(OPTION, f"the address of a database cannot be read: {error}") from None
    if has_password:
        problem = "other users of this machine see a password here; use [store] password_file, PGPASSWORD or ~/.pgpass"
        raise ConfigError(OPTION, problem)
    if "schema" in options:
        raise ConfigError(OPTION, f"the schema of a database is written ?{SCHEMA_NAME}=NAME")
    schema = options.get(SCHEMA_NAME, settings.schema_name)
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(OPTION, f"{SCHEMA_NAME} has lower-case letters, digits and _, and no digit first")
    others = [each for each in parts.query.split("&") if each.partition("=")[0] != SCHEMA_NAME]
    return DatabasePlace(urlunsplit(parts._replace(query="&".join(others))), schema)
