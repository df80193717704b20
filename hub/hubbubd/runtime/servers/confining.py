"""What servers of the API may do, by the current settings, and whether a change of these concerns one."""

import os
from collections.abc import Collection
from dataclasses import replace

import structlog

from hubbubd.config import Confinement, HubSettings
from hubbubd.config.hub import CONFINING
from hubbubd.config.mcp import PROFILES
from hubbubd.core.server import ServerRecord

log = structlog.get_logger(__name__)


class Confining:
    """The settings, and the confinement that they make up."""

    def __init__(self, settings: HubSettings) -> None:
        self.settings = settings
        self._now = Confinement.of(settings, os.environ)

    def of(self, record: ServerRecord) -> Confinement | None:
        """Return what a server may do; None is everything, as for those of files."""
        return self.trusting(record.trusted) if record.source == "api" else None

    def trusting(self, trusted: bool) -> Confinement:
        """Return what a server of the API may do."""
        return self._now.trusting(trusted)

    def admits(self, record: ServerRecord) -> bool:
        """Return whether a server of the API may be connected here; its record need not have its secrets."""
        return not self.trusting(record.trusted).refusal(record.config.without_placeholders(), os.environ)

    def adopt(self, settings: HubSettings) -> frozenset[str]:
        """Apply settings; return the names of those that changed and confine servers."""
        before, self.settings = self.settings, settings
        changed = frozenset(name for name in CONFINING if getattr(before, name) != getattr(settings, name))
        if changed and changed <= {PROFILES}:  # only names: what was found of commands stays
            self._now = replace(self._now, hub=settings)
        elif changed:
            self._now = Confinement.of(settings, os.environ)
        if changed:
            self.warn()
        return changed

    def concerns(self, record: ServerRecord, before: Confinement | None, changed: Collection[str]) -> bool:
        """Return whether a server that was confined like `before` may reach or run something else now."""
        config, now = record.config, self.trusting(record.trusted)
        rules = {"allow_hosts", "deny_hosts", *(("trust_local",) if record.trusted else ())}
        moved = config.url is not None and bool(rules & {*changed})
        return before is None or moved or before.refusal(config, os.environ) != now.refusal(config, os.environ)

    def warn(self) -> None:
        """Warn of allowed commands that cannot be run."""
        for command in self._now.commands.missing:
            log.warning("allowed command not found or not executable", command=command)
