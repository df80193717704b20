"""Opens links, with resolved configuration, transport and access."""

import gc
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import anyio
import structlog
from anyio import to_thread
from pydantic import SecretStr

from hubbubd.config import Confinement, ServerConfig, VariableNotSet, has_references, resolve
from hubbubd.config.policy.hosts import HostRules
from hubbubd.errors import ConfigError, Fault, FaultCode, PermissionDenied, UpstreamError
from hubbubd.redaction import REDACTION
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.tracer import Tracer
from hubbubd.upstream import faults
from hubbubd.upstream.deadlines import PausableDeadlines
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.links.instrumentation import LinkInstrumentation
from hubbubd.upstream.links.link import ServerLink
from hubbubd.upstream.messages.streams import PermittedStream, Transport, TransportStreams
from hubbubd.upstream.ports import Era, Inbound, McpLink, Permit, SecretsVault
from hubbubd.upstream.stdio import OnLine, StdioStreams, stdio_transport

if TYPE_CHECKING:
    from hubbubd.upstream.http import HttpTransports

DOWNLOAD_S: Final = 300.0
"""Seconds that the start of a downloader may take after one that took too long."""

EXIT_LIMIT_S: Final = 2.0
"""Seconds to wait for the exit status of a process whose stdout has ended."""

NOT_STREAMABLE: Final = (400, 404, 405)
"""Statuses with which a server that only has HTTP with SSE refuses a POST."""

log = structlog.get_logger(__name__)

_DOWNLOADERS: Final = frozenset({"bunx", "docker", "npm", "npx", "pipx", "pnpm", "podman", "uv", "uvx", "yarn"})


@dataclass(slots=True, kw_only=True)
class LinkOpener:
    """Opens links, with what they share; `origins` and `variables` are those of `McpConnector`."""

    vault: SecretsVault
    tracer: Tracer
    meter: Meter
    origins: Mapping[str, PurePath]
    variables: Sequence[str] = ()
    permit: Permit | None = None
    _http_transports: "HttpTransports | None" = None
    _import_lock: anyio.Lock = field(default_factory=anyio.Lock)
    _slow_downloads: set[str] = field(default_factory=set[str])
    """Names of servers whose last start took too long, most likely since it had to download."""

    @asynccontextmanager
    async def open_link(
        self, config: ServerConfig, inbound: Inbound, era: Era | None, confinement: Confinement | None
    ) -> AsyncGenerator[McpLink]:
        """Open a connection for the block. Raises UpstreamError with the codes of `ports.Connector.open`.

        References in the configuration (such as `${HOME}`) are resolved each time. If the server refuses streamable
        HTTP in the way of a server that has only HTTP with SSE, the older transport is tried as well.
        """
        resolved = config
        if confinement is not None or has_references(config):  # looks at files, in a thread
            origin = None if confinement is not None else self.origins.get(config.name)
            resolved = await to_thread.run_sync(_resolve_config, config, confinement, origin)
        if resolved.transport == "stdio":
            shared = {name: SecretStr(os.environ[name]) for name in self.variables if name in os.environ}
            resolved = resolved.model_copy(update={"env": shared | resolved.env})
            inbound.note("tilde", _shell_syntax_note(resolved))
        REDACTION.set_secrets(config.name, resolved.list_known_secrets(), whole_only=True)
        sse_config = resolved.model_copy(update={"transport": "sse"}) if resolved.transport == "http" else None
        budget = _TimeBudget(self._connect_limit_s(config))
        async with AsyncExitStack() as stack:
            try:
                link = await stack.enter_async_context(self._connect_link(resolved, inbound, era, confinement, budget))
            except UpstreamError as refused:
                if sse_config is None or not _may_need_sse(refused.fault) or not budget.remaining_s:
                    raise
                try:
                    link = await stack.enter_async_context(
                        self._connect_link(sse_config, inbound, era, confinement, budget)
                    )
                except UpstreamError:
                    raise refused from None
                inbound.note(Deviation.OLDER_TRANSPORT, describe_deviation(Deviation.OLDER_TRANSPORT))
            yield link

    def _connect_limit_s(self, config: ServerConfig) -> float:
        """Return the seconds that all attempts to connect may take together."""
        if config.name in self._slow_downloads:  # a download that is cut off begins again, and so might never end
            return max(config.connect_timeout_s, DOWNLOAD_S)
        return config.connect_timeout_s

    @asynccontextmanager
    async def _connect_link(
        self,
        config: ServerConfig,
        inbound: Inbound,
        era: Era | None,
        confinement: Confinement | None,
        budget: "_TimeBudget",
    ) -> AsyncGenerator[McpLink]:
        """Connect by the configured transport, for the block; the time is taken off `budget`. Raises UpstreamError."""
        deadlines = PausableDeadlines()
        hosts = confinement.find_host_rules(config) if confinement is not None else None
        transport = await self._choose_transport(config, inbound, deadlines, hosts)
        instrumentation = LinkInstrumentation(config, self.tracer, self.meter)
        link = ServerLink(config, inbound, transport, deadlines, instrumentation)
        outcome: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.hold_open)
            try:
                with instrumentation.trace_connect():
                    with deadlines.limit(budget.remaining_s) as limit:
                        try:
                            await link.connect(era)
                        finally:
                            budget.remaining_s = deadlines.remaining_s(limit)
                    if limit.cancelled_caught:
                        raise self._timeout_error(config, link, budget.total_s)
                self._slow_downloads.discard(config.name)
                yield link
            except BaseException as exc:  # noqa: BLE001 - raised below: the group would wrap it
                outcome = exc
            finally:
                await link.close()
        if outcome is not None:
            raise outcome

    async def _choose_transport(
        self, config: ServerConfig, inbound: Inbound, deadlines: PausableDeadlines, hosts: HostRules | None
    ) -> Transport:
        """Return the transport of a configuration; what HTTP needs is imported with the first such server."""
        if config.transport == "stdio":
            return lambda _: _open_stdio(config, inbound.on_stderr, self.permit)
        async with self._import_lock:
            if self._http_transports is None:
                self._http_transports = (await to_thread.run_sync(_import_http_transports))(self.vault, self.permit)
        return self._http_transports.transport(config, inbound, deadlines, hosts)

    def _timeout_error(self, config: ServerConfig, link: ServerLink, waited_s: float) -> UpstreamError:
        """Return the error of a connection that took too long; the next start of a downloader gets more time."""
        hint = None
        if config.command is not None and PurePath(config.command).stem in _DOWNLOADERS:
            self._slow_downloads.add(config.name)
            next_step = (
                f"the next start may take {DOWNLOAD_S:g} s" if waited_s < DOWNLOAD_S else "start it once by hand"
            )
            hint = f"a first start may have to download: {next_step}, or raise connect_timeout_s"
        if hint is None and (stray_lines := link.stray_tail()):
            hint = f"it writes to stdout what is no message, last: {stray_lines[-1][: faults.BODY_EXCERPT]}"
        note = f"after {waited_s:g} s; {hint or 'if it is only slow, raise connect_timeout_s'}"
        stderr = list(link.stderr_tail()) or None
        return faults.error("CONNECTION_TIMEOUT", note, elapsed_s=waited_s, stderr=stderr, hint=hint)


class _TimeBudget:
    """The seconds that attempts to connect have together; the time in which a person is asked does not count."""

    def __init__(self, total_s: float) -> None:
        self.total_s = self.remaining_s = total_s


def _shell_syntax_note(config: ServerConfig) -> str | None:
    """Return a note on what only a shell would replace, if there is any."""
    values = (*config.args, *(value.get_secret_value() for value in config.env.values()))
    if not any(value.startswith("~/") for value in values):
        return None
    return "it is started with `~/` in its args or env, which only a shell replaces: write ${HOME}/"


def _may_need_sse(refused: Fault) -> bool:
    """Return whether a server may only have HTTP with SSE (2025-11-25, basic/transports, backwards compatibility)."""
    return refused.code == FaultCode.HTTP_ERROR and refused.details.get("status") in NOT_STREAMABLE


def _resolve_config(config: ServerConfig, confinement: Confinement | None, origin: PurePath | None) -> ServerConfig:
    """Return the configuration with its references replaced. Raises UpstreamError, which names the file `origin`."""
    where = f"{origin}: " if origin is not None else ""
    try:
        if confinement is not None:
            return confinement.resolve(config, os.environ)
        return resolve(config, os.environ, warn=partial(log.warning, server=config.name))
    except PermissionDenied as exc:
        raise faults.error(exc.reason, exc.message, **exc.metadata) from None
    except VariableNotSet as exc:
        raise faults.error("VARIABLE_NOT_SET", f"{where}{exc}", variable=exc.variable) from None
    except ConfigError as exc:
        raise faults.error("CONFIG_INVALID", f"{where}{exc}") from None


def _import_http_transports() -> "type[HttpTransports]":
    """Import HttpTransports; called in a thread, as it takes long, and only if there is a server over HTTP."""
    from hubbubd.upstream.http import HttpTransports  # lazy: imports aiohttp

    gc.freeze()  # as at the start of the hub: what imports create is permanent
    return HttpTransports


@asynccontextmanager
async def _open_stdio(
    config: ServerConfig, on_stderr: OnLine, permit: Permit | None
) -> AsyncGenerator[TransportStreams]:
    """Start a server as a process for the block, and yield its pipes. With `permit` each message waits for it first."""
    async with stdio_transport(config, on_stderr) as streams:
        yield TransportStreams(
            read=streams.read,
            write=streams.write if permit is None else PermittedStream(streams.write, permit),
            reports_delivery=False,  # what is written to the pipe counts as delivered
            explain_end=partial(_explain_end, streams),
            pid=streams.pid,
            stderr_tail=streams.stderr_tail,
            stray_tail=streams.stray_tail,
            side_output=streams.side_output,
        )


async def _explain_end(streams: StdioStreams) -> Fault:
    """Return why the stdout of a process ended: what it wrote, else its exit status, if that is known soon."""
    if streams.fault is not None:
        return streams.fault
    stderr = list(streams.stderr_tail())
    with anyio.move_on_after(EXIT_LIMIT_S):
        status = await streams.wait_exit()
        stderr = list(streams.stderr_tail())
        note = f"the process ended, {status}"
        return faults.fault("CONNECTION_LOST", note, exit_code=status.code, signal=status.signal, stderr=stderr)
    return faults.fault("CONNECTION_LOST", "the process closed its stdout", stderr=stderr)
