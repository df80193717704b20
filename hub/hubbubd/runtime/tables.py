"""The tables of the hub, one per noun, and how each loads a record that does not fit."""

from collections.abc import Callable
from typing import Any

from hubbubd.core.approvals.remembered import RememberedApproval
from hubbubd.core.audit import AuditEntry
from hubbubd.core.calls.call_states import Call
from hubbubd.core.hosts.host_sessions import HostSession
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.core.inbox.request_views import RequestViews
from hubbubd.core.logins.visits import LoginCode, Visit
from hubbubd.core.servers.catalog import CatalogEntries, CatalogList
from hubbubd.core.servers.server_record import Lease, ServerRecord
from hubbubd.core.tasks import Task
from hubbubd.runtime.oversight import AuthorizationCode, LoginDecision, LoginKey, NewestToken, Token, Upkeep
from hubbubd.runtime.ownership import Ownership, SoleOwnership
from hubbubd.runtime.records import RepairRule, StoreContent, Table

REQUEST_STAND_INS = {"created_at": 0.0, "deadline": None, "state": "withdrawn", "origin": "plain"}
"""Stand-ins for unreadable fields of a pending request, chosen so that nobody acts on it."""

SESSION_VITAL = frozenset({"id", "principal", "credential", "endpoint", "revision"})
"""Fields of a host's session that are never guessed, as they say whose it is."""

APPROVAL_VITAL = frozenset(RememberedApproval.__dataclass_fields__) - {"approved_by", "request_id", "created_at"}
"""Fields of a remembered approval that are never guessed, as they say what it allows."""

CODE_VITAL = frozenset(AuthorizationCode.__dataclass_fields__)
"""Fields of a code that are never guessed, all of them: they say what a person has allowed."""

DECISION_VITAL = frozenset(LoginDecision.__dataclass_fields__)
"""Fields of a decision on a log-in that are never guessed: all of them."""

TOKEN_VITAL = frozenset({"id", "name", "digest", "grants", "may_name_others", "expires_at", "login"})
"""Fields of a token that are never guessed; without one of them the token is not loaded."""

VISIT_VITAL = frozenset({"id", "name", "credential", "grants", "credential_until", "expires_at"})
"""Fields of a visit, and of the code that opens one, that are never guessed: they say whose it is, and for how long."""


def _hide(_: object) -> None:
    """Return None for any value of a field: watchers see nothing of that field."""


SERVER_PARTS: dict[str, Callable[[Any], object]] = {
    "config": lambda config: config.transport,
    **dict.fromkeys(("roots", "source", "fingerprint"), _hide),
}

CALL_PARTS: dict[str, Callable[[Any], object]] = dict.fromkeys(
    ("detached", "timeout_s", "max_s", "as_task", "fingerprint", "rounds", "under_way"), _hide
)
"""By field of a server or a call, a function from its value to what watchers see; other fields they see whole."""


class Tables:
    """All tables."""

    def __init__(self, stored: StoreContent, ownership: Ownership = SoleOwnership()) -> None:  # noqa: B008 - has no state
        """Load all tables from the `stored` records; this hub acts on records of the servers that it owns."""

        def is_server_own(record: PendingRequest | Call | Task) -> bool:
            """Return whether the server of a record is this hub's own."""
            return ownership.owns(record.server)

        is_own = None if ownership.owns_all else is_server_own
        self.servers = Table(
            stored, "server", ServerRecord, RepairRule(vital=frozenset({"name", "config", "source"})), SERVER_PARTS
        )
        self.requests = Table(stored, "request", PendingRequest, RepairRule(REQUEST_STAND_INS), is_own=is_own)
        self.request_views = Table(stored, "shown", RequestViews)
        self.calls = Table(
            stored, "call", Call, RepairRule({"created_at": 0.0, "state": "failed"}), CALL_PARTS, is_own=is_own
        )
        self.tasks = Table(
            stored,
            "task",
            Task,
            RepairRule({"created_at": 0.0, "last_updated_at": 0.0, "status": "failed"}),
            is_own=is_own,
        )
        self.lists = Table(stored, "catalog", CatalogList)
        self.entries = Table(stored, "catalog_entries", CatalogEntries)
        self.upkeep = Table(stored, "upkeep", Upkeep)
        self.tokens = Table(stored, "token", Token, RepairRule(vital=TOKEN_VITAL))
        self.codes = Table(stored, "authorization_code", AuthorizationCode, RepairRule(vital=CODE_VITAL))
        self.login_decisions = Table(stored, "login_decision", LoginDecision, RepairRule(vital=DECISION_VITAL))
        self.login_keys = Table(stored, "login_key", LoginKey, RepairRule(vital=frozenset({"secret"})))
        self.newest_token = Table(stored, "minted", NewestToken)
        self.host_sessions = Table(
            stored, "host_session", HostSession, RepairRule({"begun_at": 0.0, "used_at": 0.0}, SESSION_VITAL)
        )
        self.login_codes = Table(stored, "login_code", LoginCode, RepairRule(vital=VISIT_VITAL))
        self.visits = Table(stored, "visit", Visit, RepairRule(vital=VISIT_VITAL))
        self.approvals = Table(stored, "approval", RememberedApproval, RepairRule(vital=APPROVAL_VITAL))
        self.audit = Table(stored, "audit", AuditEntry)
        self.leases = Table(stored, "lease", Lease, RepairRule(vital=frozenset({"server", "member", "life"})))

    def all(self) -> list[Table[Any]]:
        """Return all tables, in the order in which they were made."""
        return list(vars(self).values())
