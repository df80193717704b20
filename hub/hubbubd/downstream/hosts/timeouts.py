"""How long hosts wait for the response to a request, and so how long one is held while people are asked. Pure.

Seen on the wire with the releases of November 2026. `hold_s` of a request, a token or a profile has the last word.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

UNKNOWN_S: Final = 45.0
"""Seconds for which hosts are held that are not listed: most give up after 60."""

GONE_S: Final = 300.0
"""The most seconds for which a question is kept for a host that may have gone: nothing tells of that."""

HTTP: Final = "http"
STDIO: Final = "stdio"

LEAST_MARGIN_S: Final = 3.0
"""A request is held for a tenth less than its host waits, as responses take a while; these are the least seconds."""

MOST_MARGIN_S: Final = 15.0
"""And the most seconds: a tenth of ten minutes would be a whole minute."""


@dataclass(frozen=True, slots=True)
class HostTimeouts:
    """How many seconds a host waits: that hears nothing, and that hears of progress at least every ten seconds."""

    silent_s: float
    with_progress_s: float


_WAITS: Final[Mapping[str, Mapping[str, HostTimeouts]]] = MappingProxyType(
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

Copilot CLI still waited after 700 s with progress, and was not tried for longer. What the last one waits is not known:
it is taken to wait as long as the SDK that it is made with does by default.
"""


def find_hold_s(name: object, via: str, *, hears_progress: bool) -> float:
    """Return for how many seconds a request is held (kept open); infinity for a host that does not give up.

    `name` is the host's own, `via` its transport; `hears_progress` is whether the host gets progress. A host that is
    not listed is held for UNKNOWN_S.
    """
    by_transport = _find_timeouts(name)
    if by_transport is None:
        return UNKNOWN_S
    timeouts = by_transport[via]
    waits_s = timeouts.with_progress_s if hears_progress else timeouts.silent_s
    return waits_s if math.isinf(waits_s) else waits_s - min(max(waits_s / 10, LEAST_MARGIN_S), MOST_MARGIN_S)


def _find_timeouts(name: object) -> Mapping[str, HostTimeouts] | None:
    """Return how long a host waits, by transport; None if it is not known.

    Its name may go on after a known one: codex-mcp-client, qwen-cli-mcp-client-hub.
    """
    if not isinstance(name, str):
        return None
    for known_name, by_transport in _WAITS.items():
        if name == known_name or name.startswith(f"{known_name}-"):
            return by_transport
    return None
