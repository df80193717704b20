"""The keys of a fleet's vault: in a file that only its owner can read, or in the environment.

The first key encrypts, and each of them decrypts. So a key is replaced without a pause: the new one is put first at
each member, all rows are sealed with it, and the old one is taken away.
"""

import base64
import os
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from hubbubd.errors import ConfigError
from hubbubd.process import files
from hubbubd.redaction import REDACTION
from hubbubd.store.vault.encryption import KEY_BYTES, VaultKey

SETTING: Final = "fleet.vault_key_file"
VARIABLE: Final = "HUBBUBD_VAULT_KEY"

MAX_KEYS: Final = 16
"""How many keys there may be: two while one is replaced, and some that were forgotten."""

_MAX_FILE_BYTES: Final = 4096
"""The longest file: MAX_KEYS keys take 720 bytes."""


@dataclass(frozen=True, slots=True)
class VaultKeys:
    """The keys of the vault; `origin` is where they come from."""

    keys: tuple[VaultKey, ...]
    origin: str

    @classmethod
    def load(cls, file: Path | None, environ: Mapping[str, str]) -> Self:
        """Read the keys from the file if one is named, else from the environment. Blocks.

        Raises ConfigError, also if there are keys in both.
        """
        variable = environ.get(VARIABLE)
        if file is not None and variable is not None:
            raise ConfigError(SETTING, f"there are keys in {VARIABLE}, too; take away the one or the other")
        if file is not None:
            return cls._parse(_read_key_file(file), SETTING, str(file))
        if variable is None:
            raise ConfigError(
                SETTING,
                f"a fleet seals the secrets of its servers with a key, and there is none; {_key_creation_advice()}",
            )
        if len(variable) > _MAX_FILE_BYTES:
            raise ConfigError(VARIABLE, f"is longer than {_MAX_FILE_BYTES} characters")
        return cls._parse(variable, VARIABLE, VARIABLE)

    @classmethod
    def _parse(cls, text: str, setting: str, origin: str) -> Self:
        """Return the keys that a text has, one a line; from now on they are redacted in all messages.

        `origin` says for people where the text is from. Raises ConfigError, which names the setting.
        """
        lines = text.split()
        if not 0 < len(lines) <= MAX_KEYS:
            what = "has no key" if not lines else f"has more than {MAX_KEYS} keys"
            raise ConfigError(setting, f"{origin} {what}; {_key_creation_advice()}")
        # Before any message can repeat a key.
        REDACTION.set_secrets("the vault's keys", lines, whole_only=True)
        keys: dict[str, VaultKey] = {}
        for number, line in enumerate(lines, 1):
            try:
                key = VaultKey.with_id(base64.b64decode(line, validate=True))
            except ValueError:
                what = f"key {number} of {origin} is not {KEY_BYTES} bytes in base64"
                raise ConfigError(setting, f"{what}; {_key_creation_advice()}") from None
            keys[key.id] = key
        return cls(tuple(keys.values()), origin)

    @property
    def first(self) -> VaultKey:
        """The key that encrypts."""
        return self.keys[0]

    def find(self, key_id: str) -> VaultKey | None:
        """Return the key with this id; None if there is no such key here."""
        return next((key for key in self.keys if key.id == key_id), None)


def _key_creation_advice(path: Path = Path("vault.key")) -> str:
    """Return a sentence that tells an operator how to make a key."""
    command = f"(umask 077; openssl rand -base64 32 > {shlex.quote(str(path))})"
    return f"make one with `{command}`, and give the same to all members"


def _read_key_file(path: Path) -> str:
    """Return the text of the file of keys. Raises ConfigError, also when others may read the file."""
    try:
        # Without O_NONBLOCK, a pipe to which nobody writes would hold up the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            mode = status.st_mode
            content = os.read(descriptor, _MAX_FILE_BYTES + 1) if stat.S_ISREG(mode) else b""
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ConfigError(SETTING, f"there is no {path}; {_key_creation_advice(path)}") from None
    except OSError as error:
        raise ConfigError(SETTING, f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise ConfigError(SETTING, f"{path} is not a file")
    if mode & 0o077:
        raise ConfigError(
            SETTING,
            f"others may use {path} (mode {stat.S_IMODE(mode):04o}); {files.describe_permission_fix(path, status)}",
        )
    if len(content) > _MAX_FILE_BYTES:
        raise ConfigError(SETTING, f"{path} is longer than {_MAX_FILE_BYTES} bytes")
    try:
        return content.decode("ascii")
    except ValueError:
        raise ConfigError(SETTING, f"{path} is not text; {_key_creation_advice(path)}") from None
