"""Diagnostics for operators: preflight checks (`hubbubd --check-config`) and checks of a live hub (`hubbub doctor`).

They check directory, store, certificates, commands and addresses. Read-only, except for the store's write probe.
"""

import errno
import os
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from hubbubd import bounds
from hubbubd.config import Confinement, HubSettings, LoadedSettings, ServerConfig, resolve
from hubbubd.config.policy.allowances import is_routing_header
from hubbubd.config.sections.network import LAST_PORT, UNIX
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import ConfigError, first_cause
from hubbubd.redaction import REDACTION
from hubbubd.runtime.diagnostics.findings import Finding, Severity
from hubbubd.runtime.diagnostics.rule_checks import check_rules
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers import ConfigState
from hubbubd.store import Store, StoreError, StoreLocked, StoreUnavailable, engines

REACH_S = 5.0
"""Seconds that an address has to answer."""

MAX_ATTEMPTS = 20
"""How many addresses are tried concurrently."""

SCARCE_BYTES = 256 * 1024 * 1024
"""Bytes free on the disk below which an operator is warned: long before commits fail, at 1 MiB (`sqlite.engine`)."""

LISTED_DEFECTS = 5
"""How many defective records are listed one by one."""

EXPIRES_SOON = timedelta(days=14)

NETWORK_VARIABLES: Final = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    }
)
"""Variables that set proxies and trusted certificates of programs; some are also used in lower case."""


async def check_before_start(settings: LoadedSettings, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings of preflight checks for a valid configuration. Safe to run beside a live hub."""
    hub = settings.hub
    store, in_use = await _check_store(hub)
    findings = [
        Finding("configuration", Severity.OK, _describe_files(settings)),
        *await to_thread.run_sync(_check_directory, hub.data_dir),
        store,
    ]
    for setting in ("listen", "connect_listen", "mcp_listen", "metrics_listen"):
        listen: str | None = getattr(hub, setting)
        if listen is not None:
            findings.append(_check_address(setting, listen, hub.data_dir, in_use=in_use))
    if hub.fleet is not None:
        findings.append(_check_address("fleet.listen", hub.fleet.listen, hub.data_dir, in_use=in_use))
        findings.append(await to_thread.run_sync(_check_vault_keys, hub.fleet.vault_key_file, environ))
    return [*findings, *await check_common(hub, settings.servers, environ)]


async def check_running_hub(hub: Hub, environ: Mapping[str, str]) -> list[Finding]:
    """Return findings about a live hub, and about servers of its files that are wanted but not connected."""
    servers = [record for record in hub.servers.all() if record.source == "file" and record.wanted]
    unconnected = [record.config for record in servers if record.connection.state is not ConnectionState.CONNECTED]
    settings = hub.configuration.settings
    return [
        _check_configuration(await hub.configuration.check()),
        await _check_writable(hub.store),
        *describe_defects(hub.defects()),
        *describe_notes(hub.servers.all()),
        *check_rules(hub),
        _check_clock(hub.clock.set_by_s, hub.ages.doubted_s),
        *await to_thread.run_sync(_check_directory, settings.data_dir),
        *await _check_fleet(hub),
        *await check_common(settings, unconnected, environ),
    ]


async def _check_fleet(hub: Hub) -> list[Finding]:
    """Return the findings about the fleet; none for a hub that is no member."""
    if hub.fleet is None:
        return []
    from hubbubd.runtime.diagnostics.fleet_checks import check_fleet  # lazy: few hubs are members of a fleet

    return await check_fleet(hub.fleet, hub.servers.candidates.find_differing(), hub.clock.now())


async def check_common(hub: HubSettings, servers: Sequence[ServerConfig], environ: Mapping[str, str]) -> list[Finding]:
    """Return findings about certificates, commands, variables and log-in, and one about each server."""
    findings = await to_thread.run_sync(
        lambda: [
            *_check_certificates(hub),
            *_check_allowed_commands(hub, environ),
            *_check_variables(hub, servers, environ),
            *_check_login(hub),
        ]
    )
    server_findings: dict[str, Finding] = {}
    limiter = anyio.CapacityLimiter(MAX_ATTEMPTS)

    async def check_one_server(config: ServerConfig) -> None:
        """Check one server, as one of MAX_ATTEMPTS at a time."""
        async with limiter:
            server_findings[config.name] = await _check_server(config, environ)

    async with anyio.create_task_group() as tasks:
        for config in servers:
            tasks.start_soon(check_one_server, config)
    return [*findings, *(server_findings[config.name] for config in servers)]


def _describe_files(settings: LoadedSettings) -> str:
    """Return for people how many servers the configuration files have, or that there is no file."""
    files, count = ", ".join(map(str, settings.files)), len(settings.servers)
    if not any(path.exists() for path in settings.files):
        return f"there is no {files}: the hub starts without servers (`hubbub init` makes it, --config names another)"
    return f"{count or 'no'} server{'' if count == 1 else 's'} in {files}"


def _check_configuration(state: ConfigState) -> Finding:
    """Return a finding: whether the last reload failed, or has left settings that need a restart."""
    if state.problem:
        advice = "correct it; until then the hub goes on with what held before"
        return Finding("configuration", Severity.FAIL, state.problem, advice)
    if state.needs_restart:
        names = ", ".join(state.needs_restart)
        return Finding("configuration", Severity.WARN, f"changed since the start: {names}", "restart the hub")
    files = ", ".join(map(str, state.files))
    return Finding("configuration", Severity.OK, files or "no files")


def _check_clock(set_by_s: float, doubted_s: float) -> Finding:
    """Return the finding about the system clock: whether it was set since the start, or is too far ahead to trust.

    `set_by_s` is by how many seconds it was set, `doubted_s` by how many it is ahead of the last recorded time.
    """
    if doubted_s:
        return Finding(
            "clock",
            Severity.WARN,
            f"it is {doubted_s / 3600:.0f} h ahead of the last recorded time; it deletes nothing until confirmed",
            "if the hub did not run for so long: hubbub store trust-clock; else set the clock, best by a time service",
        )
    if not set_by_s:
        return Finding("clock", Severity.OK, "not set since the hub started")
    return Finding(
        "clock",
        Severity.WARN,
        f"the system's clock was set by {set_by_s:+.0f} s since the hub started",
        "nothing, if it is right now; earlier timestamps keep the old time",
    )


async def _check_writable(store: Store) -> Finding:
    """Return a finding: whether the store can be written, by a test that changes nothing."""
    try:
        await store.probe()
    except StoreUnavailable as exc:
        return Finding("store", Severity.FAIL, str(exc), "docs/store.md says what helps")
    return Finding("store", Severity.OK, f"{store.name} can be written")


def describe_defects(defects: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings about stored records that were repaired or left out. `defects` says why, by key of the record.

    Beyond LISTED_DEFECTS records one more finding has only the number of all.
    """
    for key, why in islice(defects.items(), LISTED_DEFECTS):
        advice = "the hub goes on with what fits of it; keep a copy of the store, and report it (docs/store.md)"
        yield Finding(f"record {key}", Severity.WARN, why, advice)
    if len(defects) > LISTED_DEFECTS:
        yield Finding("records", Severity.WARN, f"{len(defects)} records of the store do not fit", "see the hub's log")


def describe_notes(servers: Sequence[ServerRecord]) -> Iterator[Finding]:
    """Yield a finding for each note of the hub about how a server deviates from MCP."""
    for record in servers:
        for note in record.notes:
            yield Finding(f"server {record.name}", Severity.WARN, note, "tell its author (docs/servers.md)")


def _check_directory(path: Path) -> list[Finding]:
    """Return the findings about the data directory: its space, and who may use it."""
    return [*_check_space(path), *_check_permissions(path)]


def _check_space(path: Path) -> Iterator[Finding]:
    """Yield a finding: whether the data directory can be made or written, and how much of its disk is free."""
    about = f"data directory {path}"
    if path.exists() and not path.is_dir():
        yield Finding(about, Severity.FAIL, "there is a file in its place", "choose another (--data-dir)")
        return
    existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            about, Severity.FAIL, f"{existing} cannot be written", "give it to the account that the hub runs under"
        )
        return
    free = shutil.disk_usage(existing).free
    space = f"{free // 1024**2} MiB are free"
    if free < SCARCE_BYTES:
        yield Finding(about, Severity.WARN, f"only {space}", "make room, or keep less (docs/store.md)")
    elif existing != path.absolute():
        yield Finding(about, Severity.OK, f"it will be made; {space}")
    elif path.stat().st_uid != os.geteuid():
        yield Finding(about, Severity.FAIL, "it belongs to another user", f"chown -R {os.geteuid()} {path}")
    else:
        yield Finding(about, Severity.OK, space)


def _check_permissions(path: Path) -> Iterator[Finding]:
    """Yield a warning if other users may read the data directory, or files with secrets in it."""
    if not path.is_dir():
        return
    names = ("", "client.json", "tokens.json", "state_keys.json", "hubbub.db")
    open_to_others = [each for each in (path / name for name in names) if each.exists() and each.stat().st_mode & 0o077]
    if open_to_others:
        paths = " ".join(map(str, open_to_others))
        yield Finding("secrets", Severity.WARN, f"others may read {paths}", f"chmod go= {paths}")


async def _check_store(hub: HubSettings) -> tuple[Finding, bool]:
    """Check the store without opening it; return the finding, and whether a hub has the store open."""
    about = "store" if hub.store.url else f"store {hub.data_dir / engines.FILE}"
    try:
        return Finding(about, Severity.OK, await engines.check_store(hub.store, hub.data_dir)), False
    except StoreLocked:
        return Finding(about, Severity.OK, "a hub has it open"), True
    except (StoreError, ConfigError) as exc:
        return Finding(about, Severity.FAIL, str(exc), "docs/store.md says what helps"), False


def _check_address(setting: str, listen: str, data_dir: Path, *, in_use: bool) -> Finding:
    """Return a finding: whether the hub can listen at the address `listen` of a setting.

    `in_use` says that a hub has the store open: an address in use then counts as the address of that hub.
    """
    about = f"{setting} {listen}"
    if listen.startswith(UNIX):
        directory = Path(listen.removeprefix(UNIX)).absolute().parent
        if not directory.is_dir() and directory != data_dir.absolute():
            return Finding(about, Severity.FAIL, f"there is no directory {directory}", "make it")
        return Finding(about, Severity.OK, "its directory is there, or will be made")
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        number = bounds.parse_whole(port, high=LAST_PORT) or 0
        with socket.create_server((host, number), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return Finding(about, Severity.OK, "it is free")
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE and in_use:
            return Finding(about, Severity.OK, "in use by the running hub")
        return Finding(about, Severity.FAIL, _error_text(exc), "end what listens there, or choose another address")


def _check_vault_keys(file: Path | None, environ: Mapping[str, str]) -> Finding:
    """Return a finding: whether the keys of a fleet's vault can be read, from `file` or else the environment."""
    from hubbubd.store.vault.keys import VaultKeys  # lazy: few hubs are members of a fleet

    try:
        keys = VaultKeys.load(file, environ)
    except ConfigError as exc:
        return Finding(exc.key, Severity.FAIL, exc.problem, "docs/security.md says what the keys of the vault are")
    count = len(keys.keys)
    return Finding("vault", Severity.OK, f"{count} key{'' if count == 1 else 's'} in {keys.origin}")


def _check_certificates(hub: HubSettings) -> Iterator[Finding]:
    """Yield a finding for the hub's certificate and one for that of the fleet, as far as they are configured."""
    for each in (hub.tls, hub.fleet.tls if hub.fleet is not None else None):
        if each is not None:
            yield from _check_certificate(each)


def _check_certificate(files: TlsFiles) -> Iterator[Finding]:
    """Yield a finding: whether the certificate in these files can be read and is valid, and until when."""
    about, renew = f"certificate {files.cert}", "renew it; the hub takes a new file by itself"
    try:
        tls = files.read()
    except ConfigError as exc:
        yield Finding(about, Severity.FAIL, str(exc))
        return
    now = datetime.now(UTC)
    until = f"valid until {tls.not_after:%Y-%m-%d %H:%M} UTC"
    if problem := tls.find_problem(now):
        yield Finding(about, Severity.WARN, problem, renew)
    elif tls.not_after - now < EXPIRES_SOON:
        yield Finding(about, Severity.WARN, until, renew)
    else:
        yield Finding(about, Severity.OK, until)


def _check_allowed_commands(hub: HubSettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning for each command of `allow_commands` that is missing or cannot be executed."""
    for command in Confinement.from_settings(hub, environ).commands.missing_commands:
        yield Finding("allow_commands", Severity.WARN, f"{command} is not there, or cannot be executed", "install it")


def _check_variables(
    hub: HubSettings, servers: Sequence[ServerConfig], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a warning if the hub has NETWORK_VARIABLES that a server started by it does not get."""
    variables = [name for name in environ if name.upper() in NETWORK_VARIABLES and name not in hub.server_variables]
    if variables and any(config.transport == "stdio" and not set(variables) <= set(config.env) for config in servers):
        names = ", ".join(f'"{name}"' for name in sorted(variables))
        problem = f"set for the hub, but not for the servers that it starts: {', '.join(sorted(variables))}"
        yield Finding("server_variables", Severity.WARN, problem, f"server_variables = [{names}] in [hub]")


def _check_login(hub: HubSettings) -> Iterator[Finding]:
    """Yield a warning if hosts that use the name of a proxy (`mcp_hosts`) would log in at an address without TLS."""
    if hub.mcp_listen is None or not hub.has_login or hub.mcp_public_url or hub.tls or not hub.mcp_hosts:
        return
    name = hub.mcp_hosts[0]
    message = f"hosts that reach mcp_listen as {name} (mcp_hosts) are sent to http://{name} to log in"
    advice = f'set mcp_public_url = "https://{name}", the address that the proxy shows, or mcp_login = false'
    yield Finding("mcp_login", Severity.WARN, message, advice)


async def _check_server(config: ServerConfig, environ: Mapping[str, str]) -> Finding:
    """Return a finding about a server: the first problem of variables, headers and options, or whether it is there.

    A server is there if its command exists, or something answers at its address.
    """
    about = f"server {config.name}"
    try:
        resolved = resolve(config, environ)
    except ConfigError as exc:
        return Finding(about, Severity.WARN, REDACTION.redact_text(str(exc)), "set the variable, or correct the file")
    if routing := sorted(name for name in resolved.headers if is_routing_header(name)):
        problem = f"its headers set what only the hub may set: {', '.join(routing)}"
        return Finding(about, Severity.WARN, problem, "take them out, unless the server needs them")
    ignored_options = _HTTP_OPTIONS if resolved.command else _STDIO_OPTIONS
    if ignored := [name for name in ignored_options if getattr(config, name)]:
        kind = "started by a command" if resolved.command else "reached by its url"
        problem = f"it is {kind}, so these are ignored: {', '.join(ignored)}"
        return Finding(about, Severity.WARN, problem, "take that out")
    if resolved.command is not None:
        return await to_thread.run_sync(_check_command, about, resolved, environ)
    url = urlsplit(resolved.url or "")
    if environ.get(f"{url.scheme}_proxy".upper()) or environ.get(f"{url.scheme}_proxy"):
        return Finding(about, Severity.OK, "it is reached through a proxy, which was not tried")
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    make_context = partial(ssl.create_default_context, cafile=resolved.ca) if url.scheme == "https" else None
    failure = await _try_to_reach(host, port, make_context)
    if failure is not None:
        problem, advice = failure
        return Finding(about, Severity.WARN, f"{host}:{port}: {problem}", advice)
    return Finding(about, Severity.OK, f"{host}:{port} answers")


def _error_text(exc: BaseException) -> str:
    """Return the system's text for an error; asyncio's own message has the address in it."""
    if isinstance(exc, OSError) and exc.errno and not isinstance(exc, socket.gaierror):
        return os.strerror(exc.errno)
    return getattr(exc, "strerror", None) or str(exc)


_UNREACHABLE_ADVICE = "start the server, or correct its url"
_HTTP_OPTIONS, _STDIO_OPTIONS = ("headers",), ("args", "env", "cwd")
"""Options that only one kind of server uses."""


async def _try_to_reach(
    host: str, port: int, make_context: Callable[[], ssl.SSLContext] | None
) -> tuple[str, str] | None:
    """Return why nothing answers at an address and what to do about it; None if something answers.

    `make_context` returns the context for TLS; None without TLS.
    """
    try:
        with anyio.fail_after(REACH_S):
            stream: ByteStream = await anyio.connect_tcp(host, port)
            if make_context:
                context = await to_thread.run_sync(make_context)  # in a thread: it reads files
                stream = await TLSStream.wrap(stream, hostname=host, ssl_context=context)
            # The address has answered: the time to close the connection does not count for REACH_S.
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await stream.aclose()
    except TimeoutError:
        return f"no answer within {REACH_S:g} s", _UNREACHABLE_ADVICE
    except ssl.SSLCertVerificationError as exc:
        problem = f"its certificate is not trusted: {exc.verify_message}"
        return problem, "set `ca` to the file of its authority, or correct the url"
    except ssl.SSLError as exc:
        return f"it does not speak TLS as expected ({exc.reason or exc})", "correct the url: is it http://?"
    except (OSError, anyio.BrokenResourceError) as exc:
        cause = exc.__cause__ or exc  # anyio's own message does not say why
        cause = first_cause(cause) if isinstance(cause, Exception) else cause
        return _error_text(cause) or type(cause).__name__, _UNREACHABLE_ADVICE
    return None


def _check_command(about: str, config: ServerConfig, environ: Mapping[str, str]) -> Finding:
    """Return a finding: whether a stdio server's command and directory exist; `about` names the server."""
    own_path = config.env.get("PATH")
    path = own_path.get_secret_value() if own_path else environ.get("PATH", os.defpath)
    command = config.command or ""
    if config.cwd and not Path(config.cwd).is_dir():
        return Finding(about, Severity.WARN, f"there is no directory {config.cwd}", "make it, or correct cwd")
    if any(arg.startswith("~/") for arg in config.args):
        return Finding(about, Severity.WARN, "its args have `~/`, which only a shell replaces", "write ${HOME}/")
    found = shutil.which(command, path=path)
    if found is None:
        problem = f"{command} is not on PATH, or cannot be executed"
        advice = "write ${HOME}: `~` is for shells" if command.startswith("~") else "install it, or correct command"
        return Finding(about, Severity.WARN, problem, advice)
    return Finding(about, Severity.OK, found)
