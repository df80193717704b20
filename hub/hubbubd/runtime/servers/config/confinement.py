"""What servers of the API may do by the current settings, and which servers a change of the settings affects."""

import os
from collections.abc import Collection
from dataclasses import replace

import structlog

from hubbubd.config import Confinement, HubSettings
from hubbubd.config.hub import CONFINEMENT_SETTINGS
from hubbubd.config.sections.mcp import PROFILES
from hubbubd.core.servers.server_record import ServerRecord

log = structlog.get_logger(__name__)


class ConfinementCheck:
    """The current settings, and the confinement of servers that follows from them."""

    def __init__(self, settings: HubSettings, me: str = "") -> None:
        """`me` is this member's name; empty without a fleet."""
        self.settings = settings
        self._me = me
        self._confinement = Confinement.from_settings(settings, os.environ)

    def find_confinement(self, record: ServerRecord) -> Confinement | None:
        """Return what a server may do; None is everything, as for servers of files."""
        return self.confinement_if(self.trusts(record)) if record.source == "api" else None

    def trusts(self, record: ServerRecord) -> bool:
        """Return whether the owner of this machine has added a server; in a fleet it is trusted at its home alone."""
        return record.trusted and (not self._me or record.home in ("", self._me))

    def depends_on_trust(self, record: ServerRecord) -> bool:
        """Return whether a server is trusted, and may be connected only where it is.

        That is so if another member was not allowed to connect it (`bound`), or if these settings would forbid it.
        """
        return record.trusted and (record.bound or bool(self._find_refusal(record, trusted=False)))

    def confinement_if(self, trusted: bool) -> Confinement:
        """Return what a server of the API may do, `trusted` by the owner of the machine or not."""
        return self._confinement.with_trust(trusted)

    def admits(self, record: ServerRecord) -> bool:
        """Return whether a server of the API may be connected here; its record need not have its secrets."""
        return not self._find_refusal(record, trusted=self.trusts(record))

    def _find_refusal(self, record: ServerRecord, *, trusted: bool) -> str:
        """Return why a server may not be connected, `trusted` or not; "" if it may."""
        return self.confinement_if(trusted).find_refusal(record.config.without_placeholders(), os.environ)

    def adopt(self, settings: HubSettings) -> frozenset[str]:
        """Apply settings; return the names of those that changed and confine servers."""
        before, self.settings = self.settings, settings
        changed = frozenset(name for name in CONFINEMENT_SETTINGS if getattr(before, name) != getattr(settings, name))
        if changed and changed <= {
            PROFILES
        }:  # this setting has no effect on commands, so these need not be looked up again
            self._confinement = replace(self._confinement, hub=settings)
        elif changed:
            self._confinement = Confinement.from_settings(settings, os.environ)
        if changed:
            self.warn_of_missing_commands()
        return changed

    def may_affect(self, record: ServerRecord, before: Confinement | None, changed: Collection[str]) -> bool:
        """Return whether a server of the API may reach or run something else since the settings `changed`, by name.

        `before` is how the server was confined; None if it was not, so that any confinement is a change.
        """
        config, is_trusted = record.config, self.trusts(record)
        host_rules = {"allow_hosts", "deny_hosts"}
        if is_trusted:
            host_rules.add("trust_local")
        # The addresses of a name, and where a server redirects, are not known here: any change of these rules counts.
        if before is None or (config.url is not None and not host_rules.isdisjoint(changed)):
            return True
        return before.find_refusal(config, os.environ) != self.confinement_if(is_trusted).find_refusal(
            config, os.environ
        )

    def warn_of_missing_commands(self) -> None:
        """Warn of allowed commands that cannot be run."""
        for command in self._confinement.commands.missing_commands:
            log.warning("allowed command not found or not executable", command=command)
