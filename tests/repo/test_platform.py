"""What one system has and another has not is in one room: hubbub_shared.platform."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "hub" / "hubbub_shared" / "platform"
OF_ONE_SYSTEM = {
    "os": {"memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity", "eventfd", "O_TMPFILE", "O_PATH"},
    "signal": {"pidfd_send_signal", "SIGRTMIN", "SIGRTMAX"},
    "socket": {"SOCK_SEQPACKET", "MSG_CMSG_CLOEXEC", "SO_PEERCRED", "TCP_INFO"},
    "sys": {"platform"},
    "time": {"CLOCK_BOOTTIME", "CLOCK_UPTIME_RAW"},
    "fcntl": {"F_FULLFSYNC"},
}


def _find_uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in OF_ONE_SYSTEM.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            yield from (each.name for each in node.names if each.name in OF_ONE_SYSTEM.get(node.module or "", ()))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc"):
            yield node.value


@pytest.mark.parametrize("folder", ["hub", "clients"])
def test_nothing_else_asks_which_system_it_runs_on(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*.py") if ROOM not in path.parents]
    found = {f"{path.relative_to(ROOT)}: {use}" for path in files for use in _find_uses(ast.parse(path.read_bytes()))}
    assert not found
