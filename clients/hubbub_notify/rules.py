"""Rules of notifications: who is notified, of what, and when. Read from options and from the table `[notify]`."""

import json
import re
import tomllib
from collections.abc import Container, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)

from hubbub_client.data.records import PendingRequest, RequestKind
from hubbub_client.transport.discovery import is_loopback
from hubbub_notify.quiet_hours import QuietHours, parse_hours

Text = Annotated[str, StringConstraints(min_length=1)]
DAY_S = 86400.0
WEEK_S = 7 * DAY_S
MAX_URLS = 50
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_VARIABLE = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class NoticeRuleProblem(Exception):
    """The rules are wrong; the message begins with the key."""


class UnreadableRules(NoticeRuleProblem):
    """The file cannot be read, or its content does not fit its ending."""


class Rules(BaseModel):
    """Who is notified of what, and when. Times in seconds.

    `urls` are those of Apprise, and may hold secrets. `after_s` is how long a pending request is open and unclaimed
    before a notification. Requests within `digest_s` after a notification are gathered for the next. `contact` is the
    address that push services may ask about pushes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    urls: tuple[Text, ...] = Field(default=(), max_length=MAX_URLS, repr=False)
    servers: tuple[Text, ...] = ("*",)
    kinds: tuple[RequestKind, ...] = ()
    after_s: float = Field(default=10.0, ge=0, le=WEEK_S, strict=False)
    quiet: str | None = None
    timezone: str | None = None
    digest_s: float = Field(default=60.0, ge=0, le=DAY_S, strict=False)
    per_hour: int = Field(default=20, ge=1, le=3600)
    content: bool = False
    link: str | None = None
    login: bool = True
    contact: str | None = Field(default=None, pattern=r"^(mailto:[^@\s]+@[^@\s]+|https://\S+)$")
    link_lasts_s: float = Field(default=DAY_S, ge=60, le=WEEK_S, strict=False)

    @field_validator("urls", "servers", "kinds", mode="before")
    @classmethod
    def _convert_to_tuple(cls, value: object) -> object:
        """Return a list, or a single text, as a tuple."""
        if isinstance(value, list):
            return tuple(cast("list[object]", value))
        return (value,) if isinstance(value, str) else value

    @field_validator("quiet")
    @classmethod
    def _check_hours(cls, value: str | None) -> str | None:
        """Return the quiet hours unchanged. Raises ValueError if they are not HH:MM-HH:MM."""
        if value is not None:
            parse_hours(value)
        return value

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        """Return the name of a time zone unchanged. Raises ValueError if there is no such zone."""
        if value is not None:
            try:
                ZoneInfo(value)
            except (OSError, ValueError, KeyError):
                raise ValueError(f"{value!r} is no time zone, as for example Europe/Berlin") from None
        return value

    @field_validator("link")
    @classmethod
    def _check_link(cls, value: str | None) -> str | None:
        """Return the address of the page without its last slash. Raises ValueError."""
        return None if value is None else _check_page_address(value)

    @property
    def quiet_hours(self) -> QuietHours | None:
        """The quiet hours in their time zone; None if there are none."""
        if self.quiet is None:
            return None
        return QuietHours(*parse_hours(self.quiet), ZoneInfo(self.timezone) if self.timezone else None)

    def applies_to(self, request: PendingRequest) -> bool:
        """Return whether people are notified of this pending request at all: by its server and kind."""
        is_server_named = any(fnmatchcase(request.server, pattern) for pattern in self.servers)
        return is_server_named and (not self.kinds or request.kind in self.kinds)


def parse_rules(content: Mapping[str, Any], where: str = "") -> Rules:
    """Return the rules of a table, checked.

    Raises NoticeRuleProblem, whose message begins with `where` and the key, suggests a similar key for an unknown one,
    and quotes no url.
    """
    try:
        return Rules.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        # pydantic begins a message with "Value error, " or "Input should ...". Here the key is named before the
        # message, so "Value error, " goes, and "Input" becomes "it".
        reason = re.sub(r"^(Value error, )?(Input )?", lambda match: "it " if match[2] else "", first["msg"])
        if first["type"] == "extra_forbidden":
            similar = get_close_matches(key, Rules.model_fields, n=1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"there are {', '.join(Rules.model_fields)}"
            reason = f"unknown key; {hint}"
        raise NoticeRuleProblem(f"{where}{key}: {reason}" if key else f"{where}{reason}") from None


def read_table(file: Path, environ: Mapping[str, str], *, except_: Container[str] = ()) -> dict[str, Any]:
    """Return the table `[notify]` of a configuration file of the hub, with `${VAR}` replaced; {} without the table.

    Keys of `except_` are left out. Raises NoticeRuleProblem.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        document: Any = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableRules(f"{file}: {reason}") from None
    table: Any = cast("dict[str, Any]", document).get("notify", {}) if isinstance(document, dict) else {}
    if not isinstance(table, dict):
        raise NoticeRuleProblem(f"{file}: notify: is not a table")
    return {
        key: _resolve_variables(value, environ, f"{file}: notify.{key}")
        for key, value in cast("dict[str, Any]", table).items()
        if key not in except_
    }


def _resolve_variables(value: Any, environ: Mapping[str, str], key: str) -> Any:
    """Replace references in a text, or in each text of a list; `key` names the value in errors."""
    if isinstance(value, list):
        elements = enumerate(cast("list[Any]", value))
        return [_resolve_variables(element, environ, f"{key}.{index}") for index, element in elements]
    if not isinstance(value, str):
        return value

    def replace_reference(match: re.Match[str]) -> str:
        """Return the value of a reference such as `${VAR}`; `${` for the escaped `$${`. Raises NoticeRuleProblem."""
        if match.group() == "$${":  # an escaped one
            return "${"
        reference = _VARIABLE.fullmatch(match["body"] or "") if match["end"] else None
        if reference is None:
            raise NoticeRuleProblem(f"{key}: a reference is ${{VAR}}, ${{VAR:-default}} or ${{env:VAR}}")
        name, default = reference["name"], reference["default"]
        variable = environ.get(name)
        if default is not None:
            return variable or default
        if variable is None:
            problem = f"the environment variable {name} is not set; set it, or give a default: ${{{name}:-...}}"
            raise NoticeRuleProblem(f"{key}: {problem}")
        return variable

    return _REFERENCE.sub(replace_reference, value)


def _check_page_address(link: str) -> str:
    """Return the address of a page without its last slash. Raises ValueError for any other text.

    Off this machine, http is refused, too: the address becomes part of links that let people in.
    """
    try:
        parts = urlsplit(link)
        host, _ = parts.hostname or "", parts.port  # reading the port checks it
    except ValueError:
        host, parts = "", urlsplit("")
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username:
        raise ValueError("is not the address of a page, as for example https://hub.example:8443")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError("links let people in, so off this machine the page needs https")
    return link.rstrip("/")
