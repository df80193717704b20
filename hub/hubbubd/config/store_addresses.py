"""The addresses of the two stores of a copy, as the command line has them."""

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
class FileAddress:
    """The address of a store in a file."""

    path: Path

    def is_same(self, other: "StoreAddress") -> bool:
        """Return whether both lead to the same file, links followed."""
        return isinstance(other, FileAddress) and self.path.resolve() == other.path.resolve()


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a store in a schema of a database; `url` has no password and no option for the schema."""

    url: str
    schema: str

    def is_same(self, other: "StoreAddress") -> bool:
        """Return whether both have the same URL and schema; different URLs of one database count as different."""
        return self == other


StoreAddress = FileAddress | DatabaseAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCopy:
    """A copy to make. `secrets` copies the secrets of servers, too; `verify` compares both stores afterwards."""

    source: StoreAddress
    target: StoreAddress
    secrets: bool
    verify: bool


def parse_store_address(text: str, settings: StoreSettings) -> StoreAddress:
    """Parse the address of a store: `sqlite:PATH`, or the URL of a database as in `[store] url`.

    The schema comes from the option `schema_name` of the URL, otherwise from `[store]`. Raises ConfigError, whose text
    never contains a password.
    """
    if text.startswith(FILE_SCHEME) and text != FILE_SCHEME and "\0" not in text:
        return FileAddress(Path(text.removeprefix(FILE_SCHEME)).expanduser())
    if text.startswith(DATABASE_SCHEMES):
        return _parse_database(text, settings)
    raise ConfigError(OPTION, "FROM and TO are sqlite:PATH or postgresql://USER@HOST:PORT/DATABASE")


def _parse_database(url: str, settings: StoreSettings) -> DatabaseAddress:
    """Parse the URL of a database; its option for the schema is removed from the URL. Raises ConfigError."""
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
    other_options = [each for each in parts.query.split("&") if each.partition("=")[0] != SCHEMA_NAME]
    return DatabaseAddress(urlunsplit(parts._replace(query="&".join(other_options))), schema)
