"""The term of a member of a fleet: it ends once the database says so, and the next term notes what was lost."""

from collections.abc import Awaitable, Callable
from copy import copy

import anyio
import structlog

from hubbubd.errors import Category, Fault, HubError, UpstreamError
from hubbubd.store import StoreUnavailable
from hubbubd.store.membership import Expelled, HistoryLost

log = structlog.get_logger(__name__)


class MembershipTerm:
    """One term of a member: from its start until it is gone."""

    def __init__(self, member: str, losses: list[HistoryLost]) -> None:
        """`losses` has the losses of history not yet in the audit log; the next term gets the same list."""
        self.ended = anyio.Event()
        """Set once this member is found to be gone."""
        self.is_quitting = False
        """Whether this member ends the term on purpose, and has the database note that itself."""
        self._member = member
        self._losses = losses
        self._end_message = "this member of the fleet was declared gone; its servers are with others"

    async def attempt(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do work with the database, and return whether it succeeded; errors are logged, and not raised.

        If the database says that this member is gone, this also ends the term.
        """
        try:
            await work()
        except Expelled as exc:
            if not self.is_quitting and not self.ended.is_set():  # otherwise the end is known already
                self._end(exc)
            return False
        except (StoreUnavailable, HubError) as exc:
            log.warning("the fleet's database did not answer", member=self._member, error=str(exc))
            return False
        except Exception:  # a member without this loop would keep its servers, and take none
            log.exception("looking after the fleet failed: internal error; tried again", member=self._member)
            return False
        return True

    def _end(self, cause: Expelled) -> None:
        """End the term and log why; if the database has lost history, store that loss for the next term to note."""
        self.ended.set()
        if isinstance(cause, HistoryLost):
            self._losses.append(copy(cause))  # without its traceback, which leads to all that this term has read
            self._end_message = "the database has lost what this member of the fleet has seen; it restarts"
            revisions = {"seen": cause.seen, "reached": cause.reached}
            log.error(
                "the database has lost history; this member restarts",
                member=self._member,
                error=str(cause),
                **revisions,
            )
        else:
            log.error("this member was declared gone; it restarts", member=self._member, error=str(cause))

    def make_end_error(self) -> UpstreamError:
        """Return the error for work that cannot go on after the end of this term; it says why the term ended."""
        return UpstreamError(Fault(code="OWNER_LOST", category=Category.CONNECTION, message=self._end_message))

    def note_losses(self, note: Callable[[str, str], None]) -> None:
        """Note each loss of history in former terms in the audit log, once; `note` takes action and target."""
        while self._losses and not self.ended.is_set():
            loss = self._losses.pop(0)
            note("LoseHistory", f"{self._member}: revision {loss.seen}, now {loss.reached}")
