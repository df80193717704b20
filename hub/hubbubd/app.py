"""The composition root: from settings to a hub that serves its API, and down again."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from hubbubd import __version__, payload
from hubbubd.clock import Clock
from hubbubd.config import HubSettings, Settings, load_settings
from hubbubd.errors import ConfigError, Unavailable, first_cause
from hubbubd.rpc import client_file
from hubbubd.rpc.server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.store import StoreError
from hubbubd.store.sqlite import SqliteStore
from hubbubd.store.tokens import TokenFile
from hubbubd.telemetry import setup
from hubbubd.telemetry.logs import LogSink, placed
from hubbubd.telemetry.meter import Meter
from hubbubd.upstream.connector import McpConnector

STORE_FILE = "hubbub.db"

DONE, FAILED, USAGE = 0, 1, 2


def run(argv: Sequence[str]) -> int:
    """The daemon from start to end; returns its exit status, and says in one line on stderr why it is not 0."""
    try:
        settings = load_settings(argv, os.environ)
    except ConfigError as exc:
        return _complain(str(exc), USAGE)
    if settings.check_config:
        return DONE
    try:
        sink = setup.log_sink(os.environ)
    except ConfigError as exc:
        return _complain(str(exc), USAGE)
    _log_to_stderr(settings.hub.log_level, sink)
    # What the imports made stays for ever; looked at in each full collection, it stopped the loop for 80 ms and more.
    gc.collect()
    gc.freeze()
    try:
        anyio.run(_serve, settings, backend="asyncio", backend_options={"use_uvloop": True})
    except Exception as exc:
        first = first_cause(exc)
        if isinstance(first, ConfigError):
            return _complain(str(first), USAGE)
        if isinstance(first, (StoreError, OSError, Unavailable)):
            return _complain(str(first), FAILED)
        raise
    finally:
        sink.close()
    return DONE


async def _serve(settings: Settings) -> None:
    hub_settings = settings.hub
    hub_settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        clock = Clock(asyncio.get_running_loop().time)
        tracer = setup.tracer(os.environ, clock.now, content=hub_settings.trace_content)
        meter = setup.meter(os.environ, scraped=hub_settings.metrics_listen is not None)
        connector = McpConnector(TokenFile.open(hub_settings.data_dir), tracer, meter)
        store = await SqliteStore.open(hub_settings.data_dir / STORE_FILE)
        hurry = anyio.Event()
        try:
            configured = {server.name: server for server in settings.servers}
            async with (
                Hub.open(store, connector, configured, hub_settings, clock, tracer, meter) as hub,
                _metrics(hub_settings, meter) as metrics,
                anyio.create_task_group() as listening,
            ):
                token = client_file.token(hub_settings.data_dir)
                async with (
                    _connect(hub, hub_settings, token) as connect,  # serves to the end of what `serve` waits for
                    serve(
                        hub,
                        listen=hub_settings.listen,
                        token=token,
                        max_message_bytes=hub_settings.max_message_bytes,
                        grace_s=hub_settings.shutdown_grace_s,
                        hurry=hurry,
                    ) as address,
                ):
                    path = client_file.write(hub_settings.data_dir, address=address, token=token, connect=connect)
                    _say_ready(address, connect, metrics, hub_settings, path)
                    await anext(signals)
                    listening.start_soon(_hear, signals, hurry)
                listening.cancel_scope.cancel()
        finally:
            await store.close()
            async with anyio.create_task_group() as closing:
                for close in (tracer.close, meter.close):
                    closing.start_soon(to_thread.run_sync, close)


@asynccontextmanager
async def _connect(hub: Hub, settings: HubSettings, token: str) -> AsyncGenerator[str | None, None]:
    """The base URL of Connect and gRPC-Web, where they are wanted."""
    if settings.connect_listen is None:
        yield None
        return
    from hubbubd.rpc.connect import serve_connect  # an extra, which need not be installed

    async with serve_connect(
        hub,
        listen=settings.connect_listen,
        token=token,
        origins=settings.connect_origins,
        max_message_bytes=settings.max_message_bytes,
    ) as url:
        yield url


@asynccontextmanager
async def _metrics(settings: HubSettings, meter: Meter) -> AsyncGenerator[str | None, None]:
    """The URL at which Prometheus finds the metrics, where that is wanted."""
    if settings.metrics_listen is None:
        yield None
        return
    from hubbubd.rpc.metrics import serve_metrics  # an extra, which need not be installed

    async with serve_metrics(settings.metrics_listen, meter.exposition) as url:
        yield url


async def _hear(signals: AsyncIterator[signal.Signals], hurry: anyio.Event) -> None:
    """A second signal means that the first one was meant for now."""
    await anext(signals)
    hurry.set()


def _say_ready(address: str, connect: str | None, metrics: str | None, settings: HubSettings, client: Path) -> None:
    line = {
        "event": "ready",
        "grpc": address,
        **({"connect": connect} if connect else {}),
        **({"metrics": metrics} if metrics else {}),
        "pid": os.getpid(),
        "version": __version__,
        "data_dir": str(settings.data_dir),
        "client_file": str(client),
    }
    sys.stdout.write(payload.dumps(line).decode() + "\n")
    sys.stdout.flush()


def _log_to_stderr(level: str, sink: LogSink) -> None:
    """One line per event on stderr: readable on a terminal, JSON elsewhere; and to the sink, as it is there."""
    on_terminal = sys.stderr.isatty()
    steps: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        placed,
    ]
    last = structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *steps, sink, last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard library; what they warn of belongs in the same place, in the same form.
    bridge = logging.StreamHandler(sys.stderr)
    one_form = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, sink, last]
    bridge.setFormatter(structlog.stdlib.ProcessorFormatter(processors=one_form, foreign_pre_chain=steps))
    logging.basicConfig(level=logging.WARNING, handlers=[bridge], force=True)


def _complain(problem: str, status: int) -> int:
    sys.stderr.write(f"hubbubd: {' '.join(problem.split())}\n")
    return status
