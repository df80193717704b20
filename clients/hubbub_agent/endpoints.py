"""How a model is reached: the address of an OpenAI-compatible endpoint, its key, and what it understands."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Text = Annotated[str, StringConstraints(min_length=1)]
Secret = Annotated[str, StringConstraints(pattern=r"^[^/]+/.+$")]
KEYS = ("api_key_env", "api_key_file", "api_key_keyring")


class Chat(BaseModel):
    """A model behind an OpenAI-compatible endpoint. Prices are per million tokens, in any currency."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    base_url: str = Field(pattern=r"^https?://\S+$")
    model: Text
    models: Mapping[str, Text] = {}
    system: str = ""
    api_key_env: str | None = None
    api_key_file: str | None = None
    api_key_keyring: Secret | None = None
    api_key_header: Text = "authorization"
    headers: Mapping[str, str] = {}
    max_tokens: int = Field(default=4096, ge=1)
    limit_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"
    json_mode: Literal["auto", "schema", "object", "none"] = "auto"
    retries: int = Field(default=2, ge=0, le=10)
    input_price: float = Field(default=0.0, ge=0, strict=False)
    output_price: float = Field(default=0.0, ge=0, strict=False)

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        given = [name for name in KEYS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"only one of {', '.join(given)} can have the key")
        return self

    def api_key(self) -> str | None:
        """Return the key, which is never in the file of rules. Raises ValueError if it is missing."""
        if self.api_key_env is not None:
            if not (key := os.environ.get(self.api_key_env)):
                raise ValueError(f"api_key_env: the environment has no {self.api_key_env}; set it, then start again")
            return key
        if self.api_key_file is not None:
            try:
                return Path(self.api_key_file).expanduser().read_text().strip()
            except (OSError, ValueError) as error:
                raise ValueError(f"api_key_file: {error}") from None
        return _from_keyring(self.api_key_keyring) if self.api_key_keyring is not None else None

    def all_headers(self) -> dict[str, str]:
        """Return the headers of a request, with the key. Raises ValueError if the key is missing."""
        key = self.api_key()
        bearer = self.api_key_header.lower() == "authorization"
        return {**self.headers, **({self.api_key_header: f"Bearer {key}" if bearer else key} if key else {})}


def _from_keyring(where: str) -> str:
    service, _, entry = where.partition("/")
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        raise ValueError(
            "api_key_keyring: needs a package that is not installed: pip install 'hubbub[keyring]'"
        ) from None
    try:
        key = keyring.get_password(service, entry)
    except keyring.errors.KeyringError as error:
        raise ValueError(f"api_key_keyring: the keyring cannot be read: {error}") from None
    if not key:
        raise ValueError(f"api_key_keyring: the keyring has no {where}; store it: keyring set {service} {entry}")
    return key
