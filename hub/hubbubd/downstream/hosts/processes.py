"""Which process of a host sends a request, where its revision has no sessions.

A principal may run one program many times at once: at a terminal, where a person is, and in scripts, where nobody is.
So what is learned about one process must not count for another.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hubbubd import payload
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.downstream.hosts.host import McpHost

MAX_KNOWN: Final = 1000
"""Processes of which anything is remembered: the latest."""

ANY_PROCESS: Final = ""
"""In place of a connection: all processes that look the same."""

Identity = tuple[str, ...]
"""What all processes of one program have in common that were started the same way."""


@dataclass(slots=True)
class _KnownProcess:
    """What is remembered of a process; as in `McpHost`."""

    silent: dict[RequestKind, float] = field(default_factory=dict[RequestKind, float])
    read_from: set[str] = field(default_factory=set[str])
    """A process without a stream may read a page over one connection and call over another: so it counts as having
    read what all have read that look the same."""


class HostProcesses:
    """The processes that send requests to the endpoints of one transport."""

    def __init__(self, *, has_bridges: bool = False) -> None:
        """`has_bridges`: each connection is a bridge, and so a process of its own, which has no other connection."""
        self._has_bridges = has_bridges
        self._known: OrderedDict[Identity, _KnownProcess] = OrderedDict()
        self._listening: dict[Identity, list[str]] = {}
        """The streams that hosts have open to hear of changes: one for each process."""

    def recognise(self, host: McpHost, endpoint: str, connection: str) -> None:
        """Find out which process sends a request; set in `host` which one it is, and what is remembered of it.

        `connection` is where its request came from: a bridge, or a connection of HTTP. A process may have many of
        these. If all hosts that look the same have one stream open together, they are taken for one process.
        """
        identity = _identify(host, endpoint)
        streams = self._listening.get(identity, [])
        self._set_process(host, identity, streams[0] if len(streams) == 1 else connection)

    @contextmanager
    def note_stream(self, host: McpHost, endpoint: str, connection: str) -> Generator[None]:
        """Note that a process has a stream open during the block; by that it is recognised on all its connections.

        At the end of the block what is remembered of the process is dropped.
        """
        identity = _identify(host, endpoint)
        streams = self._listening.setdefault(identity, [])
        streams.append(connection)
        self._set_process(host, identity, connection)
        try:
            yield
        finally:
            streams.remove(connection)
            self._known.pop((*identity, connection), None)
            if not streams:
                self._listening.pop(identity, None)

    def _set_process(self, host: McpHost, identity: Identity, process: str) -> None:
        """Set the process of a host, and share with it what is remembered of that process.

        Without bridges, `read_from` is shared by all that look the same, unless they have exactly one stream open.
        """
        host.process = process
        known = self._find_or_add((*identity, process))
        host.silent = known.silent
        if not self._has_bridges and len(self._listening.get(identity, ())) != 1:
            known = self._find_or_add((*identity, ANY_PROCESS))
        host.read_from = known.read_from

    def _find_or_add(self, key: Identity) -> _KnownProcess:
        """Return what is known of a process; a new, empty entry if nothing is. Beyond MAX_KNOWN the oldest goes."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        known = self._known[key] = _KnownProcess()
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known


def _identify(host: McpHost, endpoint: str) -> Identity:
    """Return what all processes of a host's program have in common."""
    capabilities_hash = hashlib.sha256(payload.dumps_canonical(host.capabilities)).hexdigest()
    return host.principal.name, endpoint, host.name, capabilities_hash
