"""A member of a fleet of two, as its own process: it has the server `light`, or knows where the one is that has it.

    python member.py NAME DIRECTORY [OWNER'S FORWARD ADDRESS]

The directory has the certificates of both. Its API lets in each client that has the token TOKEN.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
from processes import stdio_server

from hubbub_frontend.certs import Authority
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.program import console
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.fleet import FleetPort
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.ownership import Owner
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.telemetry import setup
from hubbubd.upstream.connector import McpConnector

SERVER, OWNER, TOKEN, MAX_BYTES = "light", "owner", "bench", 16 * 1024 * 1024


class FixedOwnership:
    """An ownership that does not change: of SERVER by this member, or by `owner` if that is given."""

    owns_all = False

    def __init__(self, me: str, owner: Owner | None) -> None:
        self.me = me
        self._owner = owner
        self.owns_all = owner is None

    def owns(self, server: str) -> bool:
        return self._owner is None

    def may_act(self) -> bool:
        return True

    def owner(self, server: str) -> Owner | None:
        return self._owner if server == SERVER else None

    def is_free(self, server: str) -> bool:
        return False

    def others(self) -> list[Owner]:
        return [] if self._owner is None else [self._owner]

    def on_change(self, listener: Callable[[str], None]) -> None:
        pass


async def main(name: str, directory: Path, forward: str | None) -> None:
    """Serves until it is ended."""
    pair = Authority.open(directory).issue_member(name)
    fleet = FleetSettings(name=name, listen="127.0.0.1:0", ca=directory / "ca.pem", cert=pair.cert, key=pair.key)
    port = FleetPort(fleet, MAX_BYTES)
    ownership = FixedOwnership(name, Owner(OWNER, 1, forward) if forward else None)
    own = {} if forward else {SERVER: ServerConfig(name=SERVER, max_in_flight=32, **stdio_server("light_stdio.py"))}
    data = directory / name
    store = await SqliteStore.open(data / "hub.db")
    connector = McpConnector(TokenFile.open(data))
    async with (
        Hub.open(store, connector, own, HubSettings(data_dir=data), ownership=ownership) as hub,
        port.serve(hub, term=1) as forwarding,
        serve(
            hub,
            listen="127.0.0.1:0",
            gate=Gate(TOKEN, hub.clock, [hub.tokens]),
            max_message_bytes=MAX_BYTES,
            middleware=(forwarding.wrap,),
        ) as address,
    ):
        console.print_json_line({"grpc": address, "forward": port.address})
        await anyio.sleep_forever()


if __name__ == "__main__":
    console.configure_logging(None, setup.open_log_sink({}))
    console.set_log_level("warning")
    (Path(sys.argv[2]) / sys.argv[1]).mkdir(mode=0o700, exist_ok=True)
    anyio.run(
        main,
        sys.argv[1],
        Path(sys.argv[2]),
        sys.argv[3] if len(sys.argv) > 3 else None,
        backend_options={"use_uvloop": True},
    )
