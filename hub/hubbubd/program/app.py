"""The composition root: from settings to a hub that serves its API, and back down."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import structlog
from anyio import to_thread

from hubbub_shared import __version__
from hubbubd.config import HubSettings, LoadedSettings, load_settings
from hubbubd.config.sections.network import UNIX, check_unix_path
from hubbubd.config.store_addresses import StoreCopy
from hubbubd.core.audit import BY_SIGNAL
from hubbubd.errors import ConfigError, HelpLinks, HubError, Unavailable, first_cause
from hubbubd.process import garbage
from hubbubd.program import console, listeners
from hubbubd.redaction import REDACTION
from hubbubd.rpc.auth import client_file
from hubbubd.rpc.auth.gate import Authenticator, Gate
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers import Configuration
from hubbubd.store import StoreError, StoreUnavailable, engines
from hubbubd.store.membership import HistoryLost, Membership
from hubbubd.store.vault.file import TokenFile
from hubbubd.store.vault.state_keys import StateKeyRing
from hubbubd.telemetry import setup
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.tracer import Tracer
from hubbubd.timing.clock import Clock
from hubbubd.upstream.connector import McpConnector
from hubbubd.upstream.ports import Permit, SecretsVault

if TYPE_CHECKING:
    from hubbubd.program.fleet_join import FleetTerm

log = structlog.get_logger(__name__)

LOCAL_SOCKET = "hub.sock"

RESTART_PAUSE_S = 1.0
"""Seconds until a member of a fleet that could not start again tries it once more."""

SUCCEEDED, FAILED, USAGE = 0, 1, 2
"""Exit statuses; 2 for wrong usage and configuration, as shells and argparse have it."""
DEBUG = "HUBBUB_DEBUG"


def run(argv: Sequence[str]) -> int:
    """Run the daemon and return its exit status; if that is not 0, one line on stderr says why.

    A bug in the hub also gets one line; the environment variable HUBBUB_DEBUG shows its traceback.
    """
    try:
        return _run(argv)
    except OSError as exc:  # stdout is full or closed, or a file of the system cannot be used
        return _complain(str(exc), FAILED)
    except Exception as exc:
        if os.environ.get(DEBUG):
            raise
        first = first_cause(exc)
        problem = f"{type(first).__name__}: {first}".rstrip(": ")
        return _complain(f"the hub has ended by a fault of its own: {problem}; {DEBUG}=1 shows where", FAILED)


def _run(argv: Sequence[str]) -> int:
    """Carry out the options of the command line, and return the exit status."""
    load = partial(load_settings, argv, dict(os.environ))
    try:
        settings = load()
        setup.require_usable_exporters(os.environ)
    except ConfigError as exc:
        return _complain(str(exc), USAGE)
    if settings.check_config == "settings":
        return SUCCEEDED
    if settings.check_config:
        return anyio.run(_print_checks, settings)
    if settings.copy_store:
        return _copy_store(settings.copy_store, settings.hub)
    if settings.release:
        return _release_member(settings.hub)
    sink = setup.open_log_sink(os.environ)
    console.configure_logging(settings.hub.log_file, sink)
    _apply_process_settings(settings.hub)
    listeners.import_all(settings.hub)
    garbage.configure_collection()
    try:
        anyio.run(_serve, settings, load, backend="asyncio", backend_options={"use_uvloop": True})
    except Exception as exc:  # noqa: BLE001  # it is raised again if it was not expected
        return _complain_if_expected(exc)
    finally:
        sink.close()
    return SUCCEEDED


def _complain_if_expected(exc: Exception) -> int:
    """Print in one line why a command failed and return the exit status. Raises an unexpected exception again."""
    first = first_cause(exc)
    if isinstance(first, ConfigError):
        return _complain(str(first), USAGE)
    if isinstance(first, (StoreError, OSError, Unavailable)):
        return _complain(str(first), FAILED)
    raise exc


def _copy_store(request: StoreCopy, settings: HubSettings) -> int:
    """Make the copy of `--copy-store` and print a line of JSON; return FAILED also if the stores differ."""
    from hubbubd.program import store_copy  # lazy: hubs do without

    try:
        result = store_copy.copy_store(request, settings)
    except Exception as exc:  # noqa: BLE001  # it is raised again if it was not expected
        return _complain_if_expected(exc)
    if result is None:
        return _complain("the copy was given up; its target has all of it, or is as it was", FAILED)
    console.print_json_line(result.to_json())
    return FAILED if result.comparison and result.comparison.differing else SUCCEEDED


def _release_member(settings: HubSettings) -> int:
    """Declare to the fleet that this member has ended, and print the result."""
    try:
        console.print_line(anyio.run(engines.release_member, settings.store, settings.data_dir, settings.fleet))
    except Exception as exc:  # noqa: BLE001  # it is raised again if it was not expected
        return _complain_if_expected(exc)
    return SUCCEEDED


async def _print_checks(settings: LoadedSettings) -> int:
    """Print the preflight diagnostics of `--check-config`; return FAILED if a hub would not start."""
    from hubbubd.runtime.diagnostics import checks  # lazy: a hub that starts needs none of it

    findings = await checks.check_before_start(settings, os.environ)
    for each in findings:
        console.print_line(f"{each.severity:4}  {each.about}: {each.message}")
        if each.advice:
            console.print_line(f"      {each.advice}")
    return FAILED if any(each.severity is checks.Severity.FAIL for each in findings) else SUCCEEDED


async def _serve(settings: LoadedSettings, load: Callable[[], LoadedSettings]) -> None:
    """Serve until a signal; a member of a fleet that has lost its lease starts another term."""
    hub_settings = settings.hub
    local_socket = _find_local_socket(hub_settings)
    _make_private(hub_settings.data_dir)
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        clock = Clock(asyncio.get_running_loop().time)
        tracer = setup.open_tracer(os.environ, clock.now, content=hub_settings.trace_content)
        meter = setup.open_meter(os.environ, scraped=hub_settings.metrics_listen is not None)
        try:
            async with listeners.serve_metrics_if_configured(hub_settings, meter) as metrics:
                process = ProcessState(
                    local_socket=local_socket, clock=clock, tracer=tracer, meter=meter, metrics=metrics, signals=signals
                )
                await run_terms(lambda first: _run_term(settings if first else load(), load, process), signals)
        finally:
            async with anyio.create_task_group() as closing:
                for close in (tracer.close, meter.close):
                    closing.start_soon(to_thread.run_sync, close)


async def run_terms(run_term: Callable[[bool], Awaitable[bool]], signals: AsyncIterator[signal.Signals]) -> None:
    """Run terms of a member of a fleet (a term lasts until the fleet declares it gone) until `run_term` returns False.

    The argument of `run_term` says whether the term is the first. A later one that cannot begin is tried again.
    """
    first = True
    while True:
        try:
            if not await run_term(first):
                return
            log.warning("this member of the fleet restarts")
        except Exception as exc:
            cause = first_cause(exc)
            if first or not isinstance(cause, StoreUnavailable | OSError):
                raise
            log.warning("this member cannot restart yet; it tries again", error=str(cause))
            with anyio.move_on_after(RESTART_PAUSE_S):
                await anext(signals)  # a signal during the pause ends the program
                return
        first = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The state that outlives a member's term in a fleet; a hub without a fleet has a single term."""

    local_socket: Path | None
    clock: Clock
    tracer: Tracer
    meter: Meter
    metrics: str | None
    signals: AsyncIterator[signal.Signals]
    losses: list[HistoryLost] = field(default_factory=list[HistoryLost])


async def _run_term(settings: LoadedSettings, load: Callable[[], LoadedSettings], process: ProcessState) -> bool:
    """Run the hub until a signal; return True if it must start again, since its fleet has declared it gone."""
    hub_settings = settings.hub
    async with engines.open_store(hub_settings.store, hub_settings.data_dir, hub_settings.fleet) as (store, membership):
        fleet_term = _make_fleet_term(hub_settings, membership, process.losses)
        permit = fleet_term.fleet.wait_until_may_act if fleet_term is not None else None
        async with (
            fleet_term.send_heartbeats() if fleet_term is not None else nullcontext(),
            _open_vault(hub_settings, fleet_term) as vault,
            Hub.open(
                store,
                connector := _new_connector(settings, vault, process, permit),
                {server.name: server for server in settings.servers},
                hub_settings,
                clock=fleet_term.make_clock() if fleet_term is not None else process.clock,
                tracer=process.tracer,
                meter=process.meter,
                files=settings.files,
                load=_load_with_origins(connector, load),
                telemetry_endpoint=setup.describe_destinations(os.environ),
                fleet=fleet_term.fleet if fleet_term is not None else None,
            ) as hub,
            anyio.create_task_group() as listening,
        ):
            hub.configuration.on_adopted(_apply_process_settings)
            listening.start_soon(_reload_on_hangup, hub.configuration)
            await _serve_api(hub, hub_settings, process, fleet_term, vault)
            listening.cancel_scope.cancel()
            return fleet_term is not None and fleet_term.fleet.lost.is_set()
    raise AssertionError("the block returns or raises")


def _new_connector(
    settings: LoadedSettings, vault: SecretsVault, process: ProcessState, permit: Permit | None
) -> McpConnector:
    """Return the connector to servers; `permit` waits until this member may act."""
    connector = McpConnector(vault, process.tracer, process.meter, permit=permit)
    connector.origins |= settings.origins
    connector.variables = settings.hub.server_variables
    return connector


@asynccontextmanager
async def _open_vault(settings: HubSettings, fleet_term: "FleetTerm | None") -> AsyncGenerator[SecretsVault]:
    """Open the vault with the secrets of servers: a file, or in a fleet the database."""
    if fleet_term is None:
        yield TokenFile.open(settings.data_dir)
        return
    async with fleet_term.open_vault(settings.store) as vault:
        yield vault


def _make_fleet_term(
    settings: HubSettings, membership: Membership | None, losses: list[HistoryLost]
) -> "FleetTerm | None":
    """Return a new term in the fleet; None for a hub that is no member."""
    if membership is None or settings.fleet is None:
        return None
    from hubbubd.program.fleet_join import FleetTerm  # lazy: a fleet is an optional extra

    return FleetTerm.open(settings.fleet, membership, settings.max_message_bytes, losses)


def _load_with_origins(connector: McpConnector, load: Callable[[], LoadedSettings]) -> Callable[[], LoadedSettings]:
    """Return a loader of the settings that also notes at the connector which file configures each server."""

    def load_again() -> LoadedSettings:
        settings = load()
        connector.origins |= settings.origins
        return settings

    return load_again


async def _serve_api(
    hub: Hub, settings: HubSettings, process: ProcessState, fleet_term: "FleetTerm | None", vault: SecretsVault
) -> None:
    """Serve the API until a signal, then drain the hub; a second signal cuts the grace period short.

    A member of a fleet that was declared gone is not drained: its servers are with others.
    """
    local = process.local_socket
    token = client_file.load_or_make_token(settings.data_dir)
    REDACTION.set_secrets("the local token", [token])
    gate = _new_gate(hub, settings, token)
    if fleet_term is None:
        state_keys = await to_thread.run_sync(StateKeyRing.open, settings.data_dir, hub.clock)
    else:
        state_keys = await fleet_term.load_state_keys(vault, hub.clock)
    async with anyio.create_task_group() as ending:
        ending.start_soon(state_keys.maintain_keys)
        async with (
            listeners.serve_members_if_joined(hub, fleet_term) as middleware,
            # Connect ends after gRPC, whose `serve` drains the hub at its end.
            listeners.serve_connect_if_configured(hub, settings, gate, middleware) as connect,
            listeners.serve_mcp_if_configured(hub, settings, gate, state_keys) as mcp,
            serve(
                hub,
                listen=settings.listen,
                gate=gate,
                tls=settings.tls,
                local_socket=local,
                max_message_bytes=settings.max_message_bytes,
                state_keys=state_keys,
                middleware=middleware,
            ) as address,
        ):
            path = client_file.write(
                settings.data_dir, address=f"{UNIX}{local}" if local else address, token=token, connect=connect, mcp=mcp
            )
            if fleet_term is not None:
                await fleet_term.publish_addresses(address)
            _print_ready({"grpc": address, "connect": connect, "mcp": mcp, "metrics": process.metrics}, hub, path)
            if await _wait_for_signal(process.signals, hub):
                ending.start_soon(_cut_grace_on_second_signal, process.signals, hub.grace_cut)
            else:
                hub.grace_cut.set()
        ending.cancel_scope.cancel()


async def _wait_for_signal(signals: AsyncIterator[signal.Signals], hub: Hub) -> bool:
    """Wait for a signal; return False if this member of a fleet was declared gone before a signal came."""
    if hub.fleet is None:
        await anext(signals)
        return True
    async with anyio.create_task_group() as waiting:

        async def stop_waiting(lost: anyio.Event) -> None:
            await lost.wait()
            waiting.cancel_scope.cancel()

        waiting.start_soon(stop_waiting, hub.fleet.lost)
        await anext(signals)
        waiting.cancel_scope.cancel()
        return True
    return False  # `stop_waiting` has cancelled the block


def _make_private(data_dir: Path) -> None:
    """Create the data directory, or restrict an existing one to its owner. Raises OSError."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        reason = (
            "there is a file in its place" if isinstance(exc, FileExistsError | NotADirectoryError) else exc.strerror
        )
        raise OSError(f"the data directory {data_dir} cannot be made: {reason}; choose another, or make it") from None
    directory_stat = data_dir.stat()
    if directory_stat.st_uid != os.geteuid():
        raise OSError(
            f"{data_dir} belongs to another user, who could read and change what the hub keeps there; "
            "give it to the hub's account (chown -R), or choose another"
        )
    if directory_stat.st_mode & 0o077:
        data_dir.chmod(0o700)
        log.warning("data directory restricted to its owner", data_dir=str(data_dir))


def _new_gate(hub: Hub, settings: HubSettings, token: str) -> Gate:
    """Return the gate that authenticates callers; it ends their RPCs once a token is revoked or a grant is lost."""
    grants = Grants(settings.grants)
    gate = Gate(
        token,
        hub.clock,
        [hub.tokens, *_oidc_authenticator(settings, grants)],
        certificate_principal=grants.principal_of_certificate if settings.tls_client_ca else None,
        has_grants=grants.still_has,
        networked=settings.is_networked,
    )
    hub.tokens.on_revoked(gate.end_credential)
    hub.configuration.on_adopted(lambda after: grants.set(after.grants))
    hub.configuration.on_adopted(lambda _: gate.review_grants())
    return gate


def _oidc_authenticator(settings: HubSettings, grants: Grants) -> Iterator[Authenticator]:
    """Yield the authenticator of an identity provider, if the settings name one."""
    if settings.oidc_issuer is None:
        return
    from hubbubd.rpc.auth.jwt import Jwt  # lazy: see `listeners.import_all`

    if jwt := Jwt.from_settings(settings, grants):
        yield jwt


def _find_local_socket(settings: HubSettings) -> Path | None:
    """Return the Unix socket for local clients if `listen` speaks TLS, None if it does not. Raises ConfigError."""
    if settings.tls is None or settings.listen.startswith(UNIX):
        return None
    path = settings.data_dir.absolute() / LOCAL_SOCKET
    try:
        check_unix_path(str(path))
    except ValueError as exc:
        raise ConfigError("hub.data_dir", f"{exc}; local clients need {path}") from None
    return path


def _apply_process_settings(settings: HubSettings) -> None:
    """Apply the settings that are global to the process."""
    console.set_log_level(settings.log_level)
    HelpLinks.serve_at(settings.help_base_url)


async def _reload_on_hangup(configuration: Configuration) -> None:
    """Reload the configuration on SIGHUP; not at a terminal, where SIGHUP ends the hub, as is its default."""
    if any(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        async for _ in signals:
            try:
                await configuration.reload_by(BY_SIGNAL, "SIGHUP")
            except HubError as exc:
                log.warning("reload on SIGHUP failed", error=exc.message)


async def _cut_grace_on_second_signal(signals: AsyncIterator[signal.Signals], grace_cut: anyio.Event) -> None:
    """Skip the grace period on a second SIGTERM or SIGINT."""
    await anext(signals)
    grace_cut.set()


def _print_ready(addresses: Mapping[str, str | None], hub: Hub, client: Path) -> None:
    """Print that the hub is ready: for a person at a terminal, else as JSON. Move stderr to the log file, if any."""
    line = {
        "event": "ready",
        **{name: address for name, address in addresses.items() if address is not None},
        "pid": os.getpid(),
        "version": __version__,
        "data_dir": str(hub.configuration.settings.data_dir),
        "client_file": str(client),
    }
    console.redirect_stderr_to_log_file()
    if console.is_at_terminal():
        files = hub.configuration.state.files
        console.print_welcome(addresses, hub.configuration.settings, files, has_no_servers=not hub.servers.all())
    else:
        console.print_json_line(line)


def _complain(problem: str, status: int = SUCCEEDED) -> int:
    """Print one error line and return the exit status that the caller gives: FAILED or USAGE."""
    console.print_error(problem)
    return status
