"""Settings of the store: `[store]`, or HUBBUBD_STORE__*."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from hubbubd.config.servers.server import Seconds
from hubbubd.errors import ConfigError

STORE: Final = "store"
"""The setting that has the store."""

MAX_PASSWORD_BYTES: Final = 4096
"""The longest password of a database, in bytes."""


def _check_database_url(url: SecretStr) -> SecretStr:
    """Return the URL of a PostgreSQL database. Raises ValueError for another scheme."""
    if not url.get_secret_value().startswith(("postgresql://", "postgres://")):
        raise ValueError(
            "is postgresql://USER@HOST:PORT/DATABASE; without it the store is a file in the data directory"
        )
    return url


class StoreSettings(BaseModel):
    """Where the hub keeps its records."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    url: Annotated[SecretStr, AfterValidator(_check_database_url)] | None = None
    """The PostgreSQL database; none is a file in the data directory. Options as libpq has them, several hosts too."""

    schema_name: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "hubbub"
    """The schema in the database, made if missing. Each hub has one of its own."""

    password_file: Annotated[Path, AfterValidator(Path.expanduser)] | None = None
    """A file with the password, instead of PGPASSWORD or ~/.pgpass."""

    unavailable_after_s: Seconds = 5.0
    """Seconds that a change or a read waits for a database that is away, before it is refused."""

    def read_password(self) -> str | None:
        """Return the password in `password_file` without its line end; None without a file. Raises ConfigError."""
        if self.password_file is None:
            return None
        try:
            with self.password_file.open("rb") as file:
                content = file.read(MAX_PASSWORD_BYTES + 1)
            text = content.decode().strip("\r\n")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError("store.password_file", f"{self.password_file} cannot be read: {reason}") from None
        if not text or len(content) > MAX_PASSWORD_BYTES:
            raise ConfigError("store.password_file", f"{self.password_file} has no password, or a very long one")
        return text
