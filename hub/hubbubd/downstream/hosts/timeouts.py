"""How long hosts wait for a response, and so how long their requests are held while people are asked. Pure.

Measured with the releases of November 2026. `hold_s` of a request, a token or a profile replaces these values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

UNKNOWN_S: Final = 45.0
"""Seconds for which requests of unlisted hosts are held: most hosts give up after 60."""

UNNOTICED_S: Final = 300.0
"""The most seconds for which a question is reserved for a host that may have left: nothing notifies of that."""

HTTP: Final = "http"
STDIO: Final = "stdio"

LEAST_MARGIN_S: Final = 3.0
"""A hold ends a tenth of the host's timeout before it, as responses take a while: at least these seconds."""

MOST_MARGIN_S: Final = 15.0
"""And at most these seconds: a tenth of ten minutes would be a whole minute."""


@dataclass(frozen=True, slots=True)
class HostTimeouts:
    """How many seconds a host waits: without any message, and with progress at least every ten seconds."""

    silent_s: float
    with_progress_s: float


_TIMEOUTS: Final[Mapping[str, Mapping[str, HostTimeouts]]] = MappingProxyType(
    {
        "claude-code": {HTTP: HostTimeouts(300, math.inf), STDIO: HostTimeouts(1100, math.inf)},
        "codex": dict.fromkeys((HTTP, STDIO), HostTimeouts(300, 300)),
        "gemini-cli-mcp-client": dict.fromkeys((HTTP, STDIO), HostTimeouts(600, 600)),
        "opencode": dict.fromkeys((HTTP, STDIO), HostTimeouts(60, math.inf)),
        "qwen-cli-mcp-client": dict.fromkeys((HTTP, STDIO), HostTimeouts(300, 600)),
        "copilot-cli": dict.fromkeys((HTTP, STDIO), HostTimeouts(180, 700)),
        "continue-cli-client": dict.fromkeys((HTTP, STDIO), HostTimeouts(60, 60)),
    }
)
"""By the name that a host has in `clientInfo`, alone or with more after a `-`, and by its transport.

Copilot CLI still waited after 700 s with progress, and was not tried for longer. The timeout of the last one is not
known: the default of its SDK is assumed.
"""


def find_hold_s(name: object, via: str, *, gets_progress: bool) -> float:
    """Return for how many seconds a request is held (kept open); infinity for a host that does not give up.

    `name` is the host's claim, `via` its transport; `gets_progress`: the host is sent progress. A request of a host
    that is not listed is held for UNKNOWN_S.
    """
    by_transport = _find_timeouts(name)
    if by_transport is None:
        return UNKNOWN_S
    timeouts = by_transport[via]
    timeout_s = timeouts.with_progress_s if gets_progress else timeouts.silent_s
    return timeout_s if math.isinf(timeout_s) else timeout_s - min(max(timeout_s / 10, LEAST_MARGIN_S), MOST_MARGIN_S)


def _find_timeouts(name: object) -> Mapping[str, HostTimeouts] | None:
    """Return the timeouts of a host, by transport; None if they are not known.

    The host's name may go on after a known one: codex-mcp-client, qwen-cli-mcp-client-hub.
    """
    if not isinstance(name, str):
        return None
    for known_name, by_transport in _TIMEOUTS.items():
        if name == known_name or name.startswith(f"{known_name}-"):
            return by_transport
    return None
