"""What only some hubs serve: Connect, MCP, metrics, and a port for the other members of a fleet."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING

from hubbubd.config import HubSettings
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.methods import Middleware
from hubbubd.runtime.hub import Hub
from hubbubd.store.vault.state_keys import StateKeyRing
from hubbubd.telemetry.meter import Meter

if TYPE_CHECKING:
    from hubbubd.program.fleet_join import FleetTerm


def import_all(settings: HubSettings) -> None:
    """Import what only some hubs offer, before the event loop runs. To import it again at its use costs nothing then.

    An import at the first use would stop the loop. It could stop the loop for good, as a thread imports OpenTelemetry's
    SDK: two threads that import the same packages can wait for each other.
    """
    offered = {
        "hubbubd.rpc.auth.jwt": settings.oidc_issuer,
        "hubbubd.rpc.listeners.connect": settings.connect_listen,
        "hubbubd.rpc.mcp.application": settings.mcp_listen,
        "hubbubd.rpc.listeners.metrics": settings.metrics_listen,
        "hubbubd.program.fleet_join": settings.fleet,
    }
    for module, setting in offered.items():
        if setting is not None:
            import_module(module)


def serve_connect_if_configured(
    hub: Hub, settings: HubSettings, gate: Gate, middleware: tuple[Middleware, ...]
) -> AbstractAsyncContextManager[str | None]:
    """Serve Connect and gRPC-Web if configured, and yield their base URL, else None; `middleware` wraps each RPC."""
    if settings.connect_listen is None:
        return nullcontext()
    from hubbubd.rpc.listeners.connect import serve_connect  # lazy: an optional extra, see `import_all`

    return serve_connect(
        hub,
        listen=settings.connect_listen,
        gate=gate,
        tls=settings.tls,
        origins=lambda: hub.configuration.settings.connect_origins,
        hosts=lambda: hub.configuration.settings.connect_hosts,
        max_message_bytes=settings.max_message_bytes,
        middleware=middleware,
    )


def serve_mcp_if_configured(
    hub: Hub, settings: HubSettings, gate: Gate, state_keys: StateKeyRing
) -> AbstractAsyncContextManager[str | None]:
    """Serve MCP hosts if configured, and yield the URL of their endpoint, else None."""
    if settings.mcp_listen is None:
        return nullcontext()
    from hubbubd.rpc.mcp.application import serve_mcp  # lazy: see `import_all`

    return serve_mcp(hub, listen=settings.mcp_listen, gate=gate, state_keys=state_keys, tls=settings.tls)


def serve_metrics_if_configured(settings: HubSettings, meter: Meter) -> AbstractAsyncContextManager[str | None]:
    """Serve Prometheus metrics if configured, and yield their URL, else None."""
    if settings.metrics_listen is None:
        return nullcontext()
    from hubbubd.rpc.listeners.metrics import serve_metrics  # lazy: an optional extra, see `import_all`

    return serve_metrics(settings.metrics_listen, meter.exposition)


@asynccontextmanager
async def serve_members_if_joined(hub: Hub, fleet_term: "FleetTerm | None") -> AsyncGenerator[tuple[Middleware, ...]]:
    """Serve the other members if the hub is in a fleet, and yield the middleware of each RPC."""
    if fleet_term is None:
        yield ()
        return
    async with fleet_term.serve_members(hub) as forwarding:
        yield (forwarding.wrap,)
