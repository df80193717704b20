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
"""The most processes of which anything is remembered: the latest."""

ANY_PROCESS: Final = ""
"""In place of a connection: all processes of one identity."""

Identity = tuple[str, ...]
"""What all processes have in common that one principal has started of one program with the same capabilities."""


@dataclass(slots=True)
class _KnownProcess:
    """What is remembered of a process; as in `McpHost`."""

    unattended: dict[RequestKind, float] = field(default_factory=dict[RequestKind, float])
    read_from: set[str] = field(default_factory=set[str])
    """Shared by all processes of one identity where none can be told from the others by its stream: such a process may
    read a page over one connection and call over another."""


class HostProcesses:
    """The processes that send requests to the endpoints of one transport."""

    def __init__(self, *, has_bridges: bool = False) -> None:
        """`has_bridges`: each connection is a bridge's, and so a process of its own with no other connection."""
        self._has_bridges = has_bridges
        self._processes: OrderedDict[Identity, _KnownProcess] = OrderedDict()
        self._streams: dict[Identity, list[str]] = {}
        """By identity, the connections with an open stream for changes: one for each process."""

    def recognise(self, host: McpHost, endpoint: str, connection: str) -> None:
        """Find out which process sends a request, and set in `host` the process and what is remembered of it.

        `connection` is where its request came from: a bridge, or an HTTP connection. A process may have many HTTP
        connections. If all hosts of one identity have one open stream together, they count as one process.
        """
        identity = _make_identity(host, endpoint)
        streams = self._streams.get(identity, [])
        self._set_process(host, identity, streams[0] if len(streams) == 1 else connection)

    @contextmanager
    def note_stream(self, host: McpHost, endpoint: str, connection: str) -> Generator[None]:
        """Note that a process has a stream open during the block, by which its other connections are recognised.

        Sets the process of `host` as `recognise` does. At the end of the block the process is forgotten.
        """
        identity = _make_identity(host, endpoint)
        streams = self._streams.setdefault(identity, [])
        streams.append(connection)
        self._set_process(host, identity, connection)
        try:
            yield
        finally:
            streams.remove(connection)
            self._processes.pop((*identity, connection), None)
            if not streams:
                self._streams.pop(identity, None)

    def _set_process(self, host: McpHost, identity: Identity, process: str) -> None:
        """Set the process of a host, and share with it what is remembered of that process.

        Without bridges, `read_from` is shared by all hosts of the identity, unless they have exactly one open stream.
        """
        host.process = process
        entry = self._find_or_add((*identity, process))
        host.unattended = entry.unattended
        if not self._has_bridges and len(self._streams.get(identity, ())) != 1:
            entry = self._find_or_add((*identity, ANY_PROCESS))
        host.read_from = entry.read_from

    def _find_or_add(self, key: Identity) -> _KnownProcess:
        """Return what is known of a process; a new, empty entry if nothing is. Beyond MAX_KNOWN drop the oldest."""
        entry = self._processes.get(key)
        if entry is not None:
            self._processes.move_to_end(key)
            return entry
        entry = self._processes[key] = _KnownProcess()
        if len(self._processes) > MAX_KNOWN:
            self._processes.popitem(last=False)
        return entry


def _make_identity(host: McpHost, endpoint: str) -> Identity:
    """Return the identity of a host: what all processes of its program have in common that were started alike."""
    capabilities_hash = hashlib.sha256(payload.dumps_canonical(host.capabilities)).hexdigest()
    return host.principal.name, endpoint, host.name, capabilities_hash
