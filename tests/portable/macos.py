"""Lets the product think that this machine is a Mac, as far as Linux can play one.

What only Linux has is taken away: its functions are missing, `/proc` is not there for the product's own code, and the
modules of `hubbub_shared.platform` see `sys.platform` as on macOS. Libraries and tests see the machine as it is.
"""

import fcntl
import os
import signal
import socket
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOM = "hubbub_shared.platform"
ROOM_PATH = (Path(__file__).parents[2] / "hub" / "hubbub_shared" / "platform",)
OWN = tuple(f"{Path(__file__).parents[2] / name}{os.sep}" for name in ("hub", "clients"))
READS = frozenset({"open", "os.listdir", "os.scandir"})
MISSING = (
    (os, ("memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity")),
    (signal, ("pidfd_send_signal",)),
    (socket, ("SOCK_SEQPACKET", "MSG_CMSG_CLOEXEC", "TCP_INFO")),
    (time, ("CLOCK_BOOTTIME",)),
)


class _Loader(Loader):
    """Runs a module of the room as on macOS."""

    def __init__(self, loader: Any, name: str = "darwin") -> None:
        self._loader = loader
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        real, sys.platform = sys.platform, self._name
        try:
            self._loader.exec_module(module)
        finally:
            sys.platform = real
        if hasattr(module, "sys"):
            module.sys = SimpleNamespace(**{**vars(sys), "platform": self._name})  # type: ignore[attr-defined]


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != ROOM and not fullname.startswith(f"{ROOM}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def load(name: str, system: str = "darwin") -> ModuleType:
    """Return a module of the room as it is on another system, beside the one that this process has."""
    spec = PathFinder.find_spec(f"{ROOM}.{name}", [str(path) for path in ROOM_PATH])
    assert spec is not None
    assert spec.loader is not None
    module = ModuleType(spec.name)
    module.__file__ = spec.origin
    _Loader(spec.loader, system).exec_module(module)
    return module


def play() -> None:
    """Play a Mac in this process from here on; before anything of the product is imported."""
    assert ROOM not in sys.modules
    for module, names in MISSING:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    time.CLOCK_UPTIME_RAW = time.CLOCK_MONOTONIC  # type: ignore[attr-defined]
    fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder())
    sys.addaudithook(_hide_proc)


def _hide_proc(event: str, given: tuple[Any, ...]) -> None:
    if event in READS and isinstance(given[0], str) and given[0].startswith("/proc") and _is_asked_by_product():
        raise FileNotFoundError(2, "there is no /proc on a Mac", given[0])


def _is_asked_by_product() -> bool:
    """Return whether the nearest code that is not Python's own is the product's."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(OWN):
            return True
        if "site-packages" in name or f"{os.sep}tests{os.sep}" in name:
            return False
        frame = frame.f_back
    return False
