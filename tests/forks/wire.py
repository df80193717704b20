"""What a process that is to be forked and the fork server say to each other: one packet each way, then the end.

Asked: JSON of `program`, `arguments`, `env` and `cwd`, with the descriptors of stdin, stdout and stderr.
Answered: the pid, with a descriptor that stands for the process; then, once it has ended, its status as `Popen` has it.
The client that asked may hang up before: the process is killed.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

PACKET_BYTES = 1 << 17

PROGRAMS = ("hubbubd", "hubbub")
"""Besides them, a program is the path of a script."""

AT_IMPORT = ("PYTHON", "LD_", "GRPC_", "LANG", "LC_", "COLUMNS", "TERM", "NO_COLOR", "FORCE_COLOR", "_TYPER", "SSL_")
"""Beginnings of variables that are read at the start of Python or when modules are imported."""

READ_LATER = {"PYTHON_KEYRING_BACKEND"}
"""What begins so and is read by the call that needs it."""


def ask(
    address: str,
    program: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    descriptors: Sequence[int],
) -> tuple[socket.socket, int, int]:
    """Has a process forked: the way on which its status comes, its pid, and a descriptor for it."""
    way = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        way.connect(address)
        packet = {"program": program, "arguments": list(arguments), "env": dict(env), "cwd": cwd}
        socket.send_fds(way, [json.dumps(packet).encode()], descriptors)
        answer, found, *_ = socket.recv_fds(way, PACKET_BYTES, 1)
        return way, int(answer), found[0]
    except BaseException:
        way.close()
        raise


def taken(way: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What is asked, as the fork server reads it; None for somebody who has hung up."""
    packet, descriptors, *_ = socket.recv_fds(way, PACKET_BYTES, 3)
    return (json.loads(packet), descriptors) if packet else None


def same_at_import(env: Mapping[str, str], server: Mapping[str, str]) -> bool:
    """Whether a process with this environment would import the same, in the same way, as the fork server has."""

    def early(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: variables[name] for name in variables if name.startswith(AT_IMPORT) and name not in READ_LATER}

    return early(env) == early(server)


def status_of(ended: int) -> int:
    """What `waitpid` says, as `Popen` says it."""
    return os.waitstatus_to_exitcode(ended)
