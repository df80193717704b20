"""How a model is reached: the address of an OpenAI-compatible endpoint, its key, and its options."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

Text = Annotated[str, StringConstraints(min_length=1)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, StringConstraints(pattern="^[ -~]*$")]
Secret = Annotated[str, StringConstraints(pattern=r"^[^/]+/.+$")]
KEY_SOURCES = ("api_key_env", "api_key_file", "api_key_keyring")


class Chat(BaseModel):
    """A model behind an OpenAI-compatible endpoint. Prices are per million tokens, in any currency."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    base_url: str = Field(pattern=r"^https?://\S+$")
    model: Text
    models: Mapping[str, Text] = {}
    system: str = ""
    api_key_env: str | None = None
    api_key_file: str | None = None
    api_key_keyring: Secret | None = None
    api_key_header: HeaderName = "authorization"
    headers: Mapping[HeaderName, HeaderValue] = {}
    max_tokens: int = Field(default=4096, ge=1)
    limit_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"
    json_mode: Literal["auto", "schema", "object", "none"] = "auto"
    retries: int = Field(default=2, ge=0, le=10)
    input_price: float = Field(default=0.0, ge=0, strict=False)
    output_price: float = Field(default=0.0, ge=0, strict=False)

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        """Check that the address has a host, and a valid port if any; return it unchanged. Raises ValueError."""
        parts = urlsplit(value)
        try:
            is_usable = bool(value.isprintable() and parts.hostname and parts.port != 0)
        except ValueError:
            is_usable = False
        if not is_usable:
            raise ValueError("needs a host, and perhaps a port: https://api.example.com/v1")
        return value

    @model_validator(mode="after")
    def _check_single_key(self) -> Self:
        """Check that at most one source has the key. Raises ValueError."""
        sources = [name for name in KEY_SOURCES if getattr(self, name) is not None]
        if len(sources) > 1:
            raise ValueError(f"only one of {', '.join(sources)} can have the key")
        return self

    def api_key(self) -> str | None:
        """Return the key from the source that the rules name; None if they name none.

        Raises ValueError if the key is missing, or cannot be in a header.
        """
        for name, read in zip(KEY_SOURCES, (_read_environment, _read_file, _read_keyring), strict=True):
            if (source := getattr(self, name)) is None:
                continue
            try:
                key = read(source).strip()
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            # The key itself must not be in the message, which is printed and audited.
            if not (key and _is_header_value(key)):
                problem = "has characters that no header can have, such as a line break" if key else "is empty"
                raise ValueError(f"{name}: the key at {source} {problem}; put the key there, and nothing else")
            return key
        return None

    def all_headers(self) -> dict[str, str]:
        """Return the headers of a request, with the key. Raises ValueError if the key is missing."""
        key = self.api_key()
        is_bearer = self.api_key_header.lower() == "authorization"
        return {**self.headers, **({self.api_key_header: f"Bearer {key}" if is_bearer else key} if key else {})}


def _is_header_value(text: str) -> bool:
    """Return whether a text can be the value of a header."""
    return text.isascii() and text.isprintable()


def _read_environment(name: str) -> str:
    """Return the key in a variable of the environment. Raises ValueError."""
    if not (key := os.environ.get(name)):
        raise ValueError(f"the environment has no {name}; set it, then start again")
    return key


def _read_file(name: str) -> str:
    """Return the text of a file. Raises ValueError."""
    try:
        return Path(name).expanduser().read_text()
    except UnicodeDecodeError:
        raise ValueError(f"{name} is no text") from None
    except (OSError, RuntimeError) as error:
        raise ValueError(str(error)) from None


def _read_keyring(source: str) -> str:
    """Return the key in the keyring under `SERVICE/ENTRY`. Raises ValueError."""
    service, _, entry = source.partition("/")
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        raise ValueError(
            "needs the package keyring, which is not there: install Hubbub again, with all that it needs"
        ) from None
    try:
        key = keyring.get_password(service, entry)
    except keyring.errors.KeyringError as error:
        raise ValueError(f"the keyring cannot be read: {error}") from None
    if not key:
        raise ValueError(f"the keyring has no {source}; store it: keyring set {service} {entry}")
    return key
