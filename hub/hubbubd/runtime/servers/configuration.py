"""What the hub was told to be: its files, taken over at the start, and again when they change or somebody asks.

Files that are wrong change nothing: the hub goes on with what held before, and says so for as long as they are. Every
reload is in the audit log, whoever asked for it; what came of it is an event, too.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from hubbubd.clock import Clock
from hubbubd.config import HubSettings, Settings
from hubbubd.config.hub import LIVE
from hubbubd.core.audit import BY_FILE
from hubbubd.errors import ConfigError, FailedPrecondition, HubError
from hubbubd.redaction import REDACTION
from hubbubd.runtime.background import Background
from hubbubd.runtime.oversight import Attempt, Audit
from hubbubd.runtime.servers.events import EventFeed
from hubbubd.runtime.servers.registry import ServerDiff, Servers

POLL_S = 1.0
"""How often the files are looked at. By their names and not by what a file system reports, so that it makes no
difference how they are replaced: in place, by another file, by a link to another directory, from another machine."""

RELOAD = "ReloadConfig"
"""The action of a reload in the audit log, as of the RPC."""

log = structlog.get_logger(__name__)

FileStamps = Mapping[Path, tuple[int, ...] | None]
"""What tells a file from another one in its place, and from itself before it was written; None while there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload was good for: names of servers, and of the hub's settings."""

    servers: ServerDiff
    settings: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigState:
    """Where the settings come from, when they were last taken over, and why not what the files say now."""

    files: tuple[Path, ...]
    loaded_at: float
    problem: str = ""
    needs_restart: tuple[str, ...] = ()


class Configuration:
    """The hub's configuration, over its changes. `load` reads it from where it comes from, and may take a moment."""

    def __init__(
        self,
        *,
        settings: Settings,
        load: Callable[[], Settings],
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
        self._turn = anyio.Lock()
        # Empty, so that the first look reads the files once more: they may have changed during the start.
        self._seen: FileStamps = {}
        self._at_start = _stamps_of(settings.files)

    @property
    def watching(self) -> bool:
        """Whether the hub looks by itself whether the files change."""
        return self.settings.watch_config and bool(self.state.files)

    def on_adopted(self, adopt: Callable[[HubSettings], None]) -> None:
        """Calls `adopt` with the hub's settings whenever some of them have changed."""
        self._adopters.append(adopt)

    async def reload(self) -> Reloaded:
        """Reads the configuration and does what it says, to the end, whatever becomes of the caller.

        Raises FailedPrecondition (CONFIG_REJECTED), and the hub goes on as before; Unavailable when only a part of it
        could be done.
        """
        return await self._background.finish(self._reload)

    async def reload_by(self, principal: str, target: str) -> Reloaded:
        """`reload` for somebody who did not ask over the API, with an entry in the audit log. Raises as `reload`."""
        with self._noted(principal, target):
            return await self.reload()

    async def _reload(self) -> Reloaded:
        async with self._turn:
            self._seen = await to_thread.run_sync(_stamps_of, self.state.files)
            try:
                settings = await to_thread.run_sync(self._load)
            except ConfigError as exc:
                raise self._reject(exc) from None
            return await self._take_over(settings)

    async def check(self) -> ConfigState:
        """The state, with what is wrong with the files now."""
        try:
            await to_thread.run_sync(self._load)
        except ConfigError as exc:
            return replace(self.state, problem=REDACTION.text(str(exc)))
        return self.state

    async def follow(self) -> None:
        """Reloads when the files change, for as long as the hub runs and `watch_config` says so.

        A file is read when it has been left alone for a moment, and not while it is empty: whoever writes it may be
        in the middle of that. Else an editor that begins by emptying a file would end all servers.
        """
        unsettled = self._seen
        while True:
            await anyio.sleep(POLL_S)
            if not self.settings.watch_config:
                continue
            found = await to_thread.run_sync(_stamps_of, self.state.files)
            settled, unsettled = found == unsettled, found
            if found == self._seen or not settled:
                continue
            await self._take_notice(found)

    async def _take_notice(self, found: FileStamps) -> None:
        """Reloads, since the files are not what they were."""
        before = self._seen or self._at_start
        changed = ", ".join(str(path) for path, about in found.items() if about != before.get(path))
        empty = [path for path, about in found.items() if about is not None and not about[-1]]
        try:
            with self._noted(BY_FILE, changed) if changed else nullcontext():
                if empty:
                    self._seen = found
                    raise self._reject(ConfigError(str(empty[0]), "is empty; `hubbub reload` if that is meant"))
                await self.reload()
        except FailedPrecondition:
            pass  # it has been said
        except HubError as exc:
            self._seen = {}
            log.warning("the configuration could not be taken over; it is tried again", error=exc.message)

    async def _take_over(self, settings: Settings) -> Reloaded:
        before, after = self.settings, settings.hub
        differ = {name for name in HubSettings.model_fields if getattr(before, name) != getattr(after, name)}
        live, needs_restart = sorted(differ & LIVE), tuple(sorted(differ - LIVE))
        self.settings = before.model_copy(update={name: getattr(after, name) for name in live})
        if live:
            for adopt in self._adopters:
                adopt(self.settings)
        try:
            servers = await self._servers.adopt({each.name: each for each in settings.servers}, self.settings)
        except HubError as exc:
            self._note_problem(f"not all of it could be done: {exc.message}")
            raise
        state, done = self.state, Reloaded(servers=servers, settings=tuple(live), needs_restart=needs_restart)
        self.state = ConfigState(files=settings.files, loaded_at=self._clock.now(), needs_restart=needs_restart)
        if state.problem or state.needs_restart != needs_restart or live or servers != ServerDiff():
            about = {**asdict(servers), "settings": live, "needs_restart": needs_restart}
            log.info("the configuration was taken over", **about)
            self._events.reloaded(about)
        return done

    def _noted(self, principal: str, target: str) -> AbstractContextManager[None]:
        return self._audit.change(Attempt(principal=principal, action=RELOAD, target=target))

    def _reject(self, exc: ConfigError) -> FailedPrecondition:
        problem = REDACTION.text(str(exc))
        self._note_problem(problem)
        log.error("the configuration is wrong; the hub goes on with the one before", problem=problem)
        return FailedPrecondition(
            f"the configuration is wrong, and the hub goes on with the one before: {problem}",
            reason="CONFIG_REJECTED",
            metadata={"key": exc.key, "problem": exc.problem},
        )

    def _note_problem(self, problem: str) -> None:
        if problem != self.state.problem:  # what is tried again and again is told once
            self._events.config_problem(problem)
        self.state = replace(self.state, problem=problem)


def _stamps_of(files: tuple[Path, ...]) -> FileStamps:
    def about(path: Path) -> tuple[int, ...] | None:
        try:
            found = path.expanduser().stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    return {path: about(path) for path in files}
