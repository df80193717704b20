"""What conditions know of a call: from its record, its params and the hints of its tool."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hubbubd.conditions import CallFacts
from hubbubd.core.calls.call_states import Call
from hubbubd.core.calls.tool_policy import CALL
from hubbubd.errors import InvalidArgument

_JUDGED_PARAMS: Final = ("name", "arguments")
_UNFIT_FOR_NAME: Final = re.compile("[\0\ud800-\udfff]")
_INVISIBLE: Final = frozenset({"Cc", "Cf"})
"""The Unicode categories of characters that are invisible: control and format."""


def is_tool_call(method: str) -> bool:
    """Return whether a method calls a tool. Case and outer spaces do not count: careless servers ignore them, too."""
    return method.strip().casefold() == CALL


def require_unambiguous_params(params: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for params that a careless server could read as the call of another tool.

    Rules and people judge `name` and `arguments`. Some servers also read `Name`, or a `name` that is no text.
    """
    name: object = params.get("name")
    if not isinstance(name, str) or _UNFIT_FOR_NAME.search(name):
        raise InvalidArgument.field("params.name", "must be a text without NUL and halves of characters, to be judged")
    for key in params:
        if key not in _JUDGED_PARAMS and (plain := plain_name(key)) in _JUDGED_PARAMS:
            raise InvalidArgument.field("params", f"has {key[:40]!r}, which a server could take for {plain!r}")


def plain_name(text: str) -> str:
    """Return a name as a careless server may read it: in lower case, trimmed, NFKC, without invisible characters."""
    if text.isascii() and text.isprintable():
        return text.lower().strip()
    visible = "".join(char for char in text if char.isspace() or unicodedata.category(char) not in _INVISIBLE)
    return unicodedata.normalize("NFKC", visible).casefold().strip()


def collect_facts(call: Call, params: Mapping[str, Any], hints: Mapping[str, Any], now: float) -> CallFacts:
    """Return the facts of a call of a tool; `now` is in seconds since the epoch, `hints` are the tool's annotations."""
    return CallFacts(
        server=call.server,
        tool=str(params.get("name")),
        args=params.get("arguments", {}),
        argument_bytes=len(call.params),
        hints=hints,
        caller=call.principal,
        roles=call.origin.roles,
        host=call.origin.host,
        profile=call.origin.profile,
        now=datetime.fromtimestamp(now, UTC),
    )
