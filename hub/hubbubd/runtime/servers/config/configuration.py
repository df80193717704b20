"""The configuration: loaded at the start, reloaded when files change, on SIGHUP, or over the API.

A wrong configuration changes nothing: the hub goes on with the last good one and reports the problem while it lasts.
Every reload is in the audit log, and its outcome is an event, too.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from hubbubd.config import HubSettings, LoadedSettings
from hubbubd.config.hub import LIVE_SETTINGS
from hubbubd.core.audit import BY_FILE
from hubbubd.errors import ConfigError, FailedPrecondition, HubError
from hubbubd.redaction import REDACTION
from hubbubd.runtime.background import Background
from hubbubd.runtime.oversight import Attempt, Audit
from hubbubd.runtime.servers.config.record import ServerDiff
from hubbubd.runtime.servers.events import EventFeed
from hubbubd.runtime.servers.registry import Servers
from hubbubd.timing.clock import Clock

POLL_S = 1.0
"""Seconds between polls of the files' stat by name, which finds every way of replacing them."""

RELOAD = "ReloadConfig"
"""The action of a reload in the audit log: the name of the RPC."""

log = structlog.get_logger(__name__)

FileStamps = Mapping[Path, tuple[int, ...] | None]
"""For each file, parts of its stat, the size last, to detect changes; None while there is no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadResult:
    """Result of a reload: names of changed servers, of applied settings, and of settings that need a restart."""

    servers: ServerDiff
    settings: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigState:
    """The configuration's files, when they were last applied (seconds since the epoch), and their present problem."""

    files: tuple[Path, ...]
    loaded_at: float
    problem: str = ""
    needs_restart: tuple[str, ...] = ()


class Configuration:
    """The current settings, and their reloads. `load` reads the files in a worker thread."""

    def __init__(
        self,
        *,
        settings: LoadedSettings,
        load: Callable[[], LoadedSettings],
        servers: Servers,
        clock: Clock,
        audit: Audit,
        events: EventFeed,
        background: Background,
    ) -> None:
        self.settings: HubSettings = settings.hub
        self.state = ConfigState(files=settings.files, loaded_at=clock.now())
        self._load = load
        self._servers = servers
        self._adopters: list[Callable[[HubSettings], None]] = []
        self._clock = clock
        self._audit = audit
        self._events = events
        self._background = background
        self._lock = anyio.Lock()
        # Empty, so that the first poll reloads: the files may have changed during the start.
        self._applied_stamps: FileStamps = {}
        self._stamps_at_start = _read_stamps(settings.files)

    @property
    def is_watching_files(self) -> bool:
        """Whether the hub polls the files for changes."""
        return self.settings.watch_config and bool(self.state.files)

    def on_adopted(self, adopt: Callable[[HubSettings], None]) -> None:
        """Call `adopt` with the new settings whenever live settings have changed."""
        self._adopters.append(adopt)

    async def reload(self) -> ReloadResult:
        """Read the configuration and apply it, to the end even if the caller is cancelled.

        Raises FailedPrecondition (CONFIG_REJECTED) with nothing changed, and Unavailable when only a part could be
        applied.
        """
        return await self._background.run_shielded(self._reload_exclusively)

    async def reload_by(self, principal: str, target: str) -> ReloadResult:
        """Reload without a request over the API, with an entry in the audit log. Raises as `reload`."""
        with self._audit_reload(principal, target):
            return await self.reload()

    async def _reload_exclusively(self) -> ReloadResult:
        """Reload once earlier reloads have ended. Raises as `reload`."""
        async with self._lock:
            self._applied_stamps = await to_thread.run_sync(_read_stamps, self.state.files)
            try:
                settings = await to_thread.run_sync(self._load)
            except ConfigError as exc:
                raise self._reject(exc) from None
            return await self._apply(settings)

    async def check(self) -> ConfigState:
        """Read the files without applying them; return the state, with the problem that they have now."""
        try:
            await to_thread.run_sync(self._load)
        except ConfigError as exc:
            return replace(self.state, problem=REDACTION.redact_text(str(exc)))
        return self.state

    async def watch_files(self) -> None:
        """Poll the files and reload when they change, while `watch_config` is set, until cancelled.

        Debounced: a file is read once it was unchanged for POLL_S, and not while it is empty or missing. Otherwise an
        editor that first empties a file would remove all servers.
        """
        last_stamps = self._applied_stamps
        while True:
            await anyio.sleep(POLL_S)
            if not self.settings.watch_config:
                continue
            stamps = await to_thread.run_sync(_read_stamps, self.state.files)
            is_unchanged, last_stamps = stamps == last_stamps, stamps
            if is_unchanged and stamps != self._applied_stamps:
                await self._reload_changed_files(stamps)

    async def _reload_changed_files(self, stamps: FileStamps) -> None:
        """Reload the files with these new stamps; reject them if one is empty or has been deleted. Report errors."""
        before = self._applied_stamps or self._stamps_at_start
        changed = ", ".join(str(path) for path, stamp in stamps.items() if stamp != before.get(path))
        empty = {path: "is empty" for path, stamp in stamps.items() if stamp is not None and not stamp[-1]}
        deleted = {
            path: "is gone and cannot be read"
            for path, stamp in stamps.items()
            if stamp is None and before.get(path) is not None
        }
        try:
            with self._audit_reload(BY_FILE, changed) if changed else nullcontext():
                if empty or deleted:
                    self._applied_stamps = stamps  # reported once, and not at each poll
                    path, problem = next(iter((empty | deleted).items()))
                    raise self._reject(ConfigError(str(path), f"{problem}; `hubbub reload` if that is meant"))
                await self.reload()
        except FailedPrecondition:
            pass  # `_reject` has reported it
        except HubError as exc:
            self._applied_stamps = {}  # the next poll reloads again
            log.warning("configuration not applied; retried", error=exc.message)

    async def _apply(self, settings: LoadedSettings) -> ReloadResult:
        """Apply settings that were read to the hub and its servers. Raises Unavailable."""
        before, after = self.settings, settings.hub
        differ = {name for name in HubSettings.model_fields if getattr(before, name) != getattr(after, name)}
        live, needs_restart = sorted(differ & LIVE_SETTINGS), tuple(sorted(differ - LIVE_SETTINGS))
        self.settings = before.model_copy(update={name: getattr(after, name) for name in live})
        if live:
            for adopt in self._adopters:
                adopt(self.settings)
        try:
            servers = await self._servers.adopt({each.name: each for each in settings.servers}, self.settings)
        except HubError as exc:
            self._note_problem(f"not all of it could be done: {exc.message}")
            raise
        state = self.state
        self.state = ConfigState(files=settings.files, loaded_at=self._clock.now(), needs_restart=needs_restart)
        if state.problem or state.needs_restart != needs_restart or live or servers != ServerDiff():
            changes = {**asdict(servers), "settings": live, "needs_restart": needs_restart}
            log.info("configuration reloaded", **changes)
            self._events.publish_reload(changes)
        return ReloadResult(servers=servers, settings=tuple(live), needs_restart=needs_restart)

    def _audit_reload(self, principal: str, target: str) -> AbstractContextManager[None]:
        """Return a context whose block is recorded in the audit log as a reload."""
        return self._audit.record_change(Attempt(principal=principal, action=RELOAD, target=target))

    def _reject(self, exc: ConfigError) -> FailedPrecondition:
        """Log and publish that the files are wrong, and return the error for the caller of the reload."""
        problem = REDACTION.redact_text(str(exc))
        self._note_problem(problem)
        log.error("configuration rejected; the previous one stays in force", problem=problem)
        return FailedPrecondition(
            f"the configuration is wrong, and the hub goes on with the one before: {problem}",
            reason="CONFIG_REJECTED",
            metadata={"key": exc.key, "problem": exc.problem},
        )

    def _note_problem(self, problem: str) -> None:
        """Note the problem of the files; publish it if it is a new one."""
        if problem != self.state.problem:  # a retried reload reports a problem only once
            self._events.publish_config_problem(problem)
        self.state = replace(self.state, problem=problem)


def _read_stamps(files: tuple[Path, ...]) -> FileStamps:
    """Return the present stamp of each file."""
    stamps: dict[Path, tuple[int, ...] | None] = {}
    for path in files:
        try:
            stat = path.expanduser().stat()
        except OSError:
            stamps[path] = None
        else:
            stamps[path] = stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
    return stamps
