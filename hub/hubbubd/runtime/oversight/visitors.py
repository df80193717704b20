"""The people at browsers as the store has them: login codes, and visits (browsers in which a code was typed).

    requested ──> durable code; the person's oldest code is deleted beyond MAX_CODES
    typed     ──> one commit: the code is used, the visit begins. Of fifty at once, one wins
    ended     ──> with the credential that requested the code, with its time, or with the decision

Every member of a fleet serves every step: it reads the store for a code or visit that it does not know.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from hubbubd.core.access import Principal
from hubbubd.core.logins import visits
from hubbubd.core.logins.visits import CodeProblem, LoginCode, Visit, Visitor
from hubbubd.errors import FailedPrecondition, ResourceExhausted
from hubbubd.runtime.oversight.tokens import Tokens
from hubbubd.runtime.records import Change, Ledger, Table, delete
from hubbubd.timing.bucket import Bucket
from hubbubd.timing.clock import Clock

MAX_ALL_CODES: Final = 2000
"""The most codes in the store, used and expired ones included."""

MAX_VISITS: Final = 2000
"""The most browsers that are remembered; beyond that the oldest is forgotten."""

LOOKUPS_PER_S: Final = 5.0
LOOKUPS_BURST: Final = 50.0
"""How often a second, and in a burst, the store is read for an unknown code or cookie, which may be made up."""

OFF: Final = (
    "hosts cannot log in at this hub: set `mcp_listen`, and `mcp_login = true` where it is not on; "
    "`hubbub mcp install HOST` or `hubbub tokens create NAME --role caller` works without"
)


class CodeRefused(FailedPrecondition):
    """A code was refused; `problem` says why."""

    def __init__(self, problem: CodeProblem) -> None:
        super().__init__("this code lets nobody in", reason=problem)
        self.problem = problem


class Visitors:
    """All login codes and visits. A visit is a browser whose person is known by a code."""

    def __init__(
        self, ledger: Ledger, codes: Table[LoginCode], table: Table[Visit], tokens: Tokens, clock: Clock
    ) -> None:
        """`table` has the visits."""
        self.address: str | None = None
        """The address of the hub's own pages, as browsers have it; None where hosts cannot log in."""
        self._ledger = ledger
        self._codes = codes
        self._table = table
        self._tokens = tokens
        self._clock = clock
        self._store_lookups = Bucket(LOOKUPS_PER_S, LOOKUPS_BURST, clock.steady())
        tokens.on_revoked(self._forget_visits)

    async def create_code(self, principal: Principal) -> tuple[str, LoginCode]:
        """Make a login code for a principal, durable on return; return the code as text for people, and its record.

        Beyond MAX_CODES this deletes the person's oldest valid code. Raises FailedPrecondition (LOGIN_OFF),
        ResourceExhausted (TOO_MANY_LOGIN_CODES), Unavailable.
        """
        if self.address is None:
            raise FailedPrecondition(OFF, reason="LOGIN_OFF")
        code = visits.format_code("".join(secrets.choice(visits.ALPHABET) for _ in range(visits.CODE_CHARS)))
        record = visits.new_login_code(code, principal, self._clock.now())

        def plan_code() -> tuple[LoginCode, Sequence[Change[Any]]]:
            """Plan the new code, and the deletion of superfluous ones. Raises ResourceExhausted."""
            old = self._find_superfluous_codes(principal, self._clock.now())
            if sum(1 for _ in self._codes) - len(old) >= MAX_ALL_CODES:
                raise ResourceExhausted(
                    f"there are {MAX_ALL_CODES} codes already; try again in an hour", reason="TOO_MANY_LOGIN_CODES"
                )
            return record, [*(self._codes.change(each.id, None) for each in old), self._codes.new(record.id, record)]

        return code, await self._ledger.transact(plan_code)

    def _find_superfluous_codes(self, principal: Principal, now: float) -> list[LoginCode]:
        """Return the codes to delete for a new one: long ended ones, and the person's oldest beyond MAX_CODES."""
        ended = [code for code in self._codes if code.may_be_deleted(now)]
        of_person = [
            code
            for code in self._codes
            if code.is_good(now) and (code.name, code.credential) == (principal.name, principal.credential)
        ]
        of_person.sort(key=lambda code: code.created_at, reverse=True)
        return ended + of_person[visits.MAX_CODES - 1 :]

    async def find_owner(self, code: str) -> Principal | None:
        """Return the principal for whom a code was made, also if it is used or expired; None for an unknown code.

        Raises Unavailable.
        """
        code_id = visits.digest(code)
        if self._codes.record(code_id) is None:
            await self._catch_up_if_allowed()
        found = self._codes.record(code_id)
        return None if found is None else visits.make_principal(found)

    async def use_code(self, code: str, *, secure: bool) -> tuple[str, Visitor]:
        """Use a code up and begin a visit (a browser whose person is known), both durable on return.

        Return the cookie for the browser in which the code was typed, and the visitor. `secure` says that the browser
        uses TLS. Raises CodeRefused, Unavailable.
        """
        code_id, cookie = visits.digest(code), secrets.token_urlsafe(32)
        if self._codes.record(code_id) is None:
            await self._catch_up_if_allowed()

        def plan_visit() -> tuple[Visitor, Sequence[Change[Any]]]:
            """Plan the code's use, the new visit and the end of old visits; return the visitor. Raises CodeRefused."""
            now = self._clock.now()
            found = self._require_good_code(code_id, now)
            visit = visits.new_visit(cookie, found, now, secure=secure)
            visitor = visits.find_visitor(visit, now)
            if visitor is None or self._tokens.is_gone(found.credential):
                raise CodeRefused(CodeProblem.ENDED)
            code_change = self._codes.change(code_id, replace(found, used_at=now))
            ended = [self._table.change(each.id, None) for each in self._find_ended_visits(now)]
            return visitor, [code_change, *ended, self._table.new(visit.id, visit)]

        return cookie, await self._ledger.transact(plan_visit)

    def _require_good_code(self, code_id: str, now: float) -> LoginCode:
        """Return the code with this id. Raises CodeRefused if it is unknown, used or expired."""
        found = self._codes.record(code_id)
        if found is None:
            raise CodeRefused(CodeProblem.UNKNOWN)
        if found.used_at is not None:
            raise CodeRefused(CodeProblem.USED)
        if not found.is_good(now):
            raise CodeRefused(CodeProblem.EXPIRED)
        return found

    def _find_ended_visits(self, now: float) -> list[Visit]:
        """Return the visits to delete for a new one: ended ones, and the oldest of the others beyond MAX_VISITS."""
        ended: list[Visit] = []
        lasting: list[Visit] = []
        for visit in self._table:
            (ended if visits.find_visitor(visit, now) is None else lasting).append(visit)
        lasting.sort(key=lambda visit: visit.created_at)
        return ended + lasting[: max(0, len(lasting) - MAX_VISITS + 1)]

    async def find_visitor(self, cookie: str, statement: str | None = None) -> Visitor | None:
        """Return the visitor with this cookie; None if the visit is unknown or ended, or its token was revoked.

        A decision on a statement ends the visit, except for this very `statement`: a person may send the same page
        again. Raises Unavailable.
        """
        if not visits.is_cookie(cookie):
            return None
        visit_id = visits.digest(cookie)
        if self._table.record(visit_id) is None:
            await self._catch_up_if_allowed()
        found = self._table.record(visit_id)
        if found is None or self._tokens.is_gone(found.credential):
            return None
        if found.decided and (statement is None or found.decided != visits.digest(statement)):
            return None
        return visits.find_visitor(found, self._clock.now())

    async def end_by_decision(self, cookie: str, statement: str) -> None:
        """End the visit of a browser, as its person has decided on a statement; durable on return.

        An unknown or ended visit stays as it is. Raises Unavailable.
        """

        def mark_decided(stored: Visit | None) -> Visit | None:
            """Return the visit as ended by this decision; unchanged if it is unknown (None) or ended by another."""
            return stored if stored is None or stored.decided else replace(stored, decided=visits.digest(statement))

        await self._ledger.change(self._table, visits.digest(cookie), mark_decided)

    async def _catch_up_if_allowed(self) -> None:
        """Apply commits of other members, but at most LOOKUPS_PER_S times a second. Raises Unavailable.

        A hub without other members does nothing.
        """
        if self._ledger.shared and not self._store_lookups.take(self._clock.steady()):
            await self._ledger.catch_up()

    def _forget_visits(self, credential: str) -> None:
        """Delete the visits of a revoked credential, write-behind; `find_visitor` refuses them at once."""
        for visit in [visit for visit in self._table if visit.credential == credential]:
            self._ledger.change_later(self._table, visit.id, delete)
