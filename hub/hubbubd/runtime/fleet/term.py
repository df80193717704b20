"""The term of a member of a fleet: it is over once the database says so, and the next term notes what was lost."""

from collections.abc import Awaitable, Callable
from copy import copy

import anyio
import structlog

from hubbubd.errors import Category, Fault, HubError, UpstreamError
from hubbubd.store import StoreUnavailable
from hubbubd.store.membership import Expelled, HistoryLost

log = structlog.get_logger(__name__)


class MembershipTerm:
    """One term of a member: from a start until it is gone. `losses` has the losses of history not yet in the audit log.

    `losses` outlives the term, so that the next one can note them.
    """

    def __init__(self, member: str, losses: list[HistoryLost]) -> None:
        self.over = anyio.Event()
        """Set once this member is found to be gone."""
        self.is_quitting = False
        """Whether this member ends the term on purpose, and tells the fleet so itself."""
        self._member = member
        self._losses = losses
        self._why_over = "this member of the fleet was declared gone; its servers are with others"

    async def attempt(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do work with the database, and return whether it was done; its errors are logged and contained.

        If the database says that this member is gone, the term ends.
        """
        try:
            await work()
        except Expelled as exc:
            if not self.is_quitting and not self.over.is_set():  # otherwise it is over already
                self._end(exc)
            return False
        except (StoreUnavailable, HubError) as exc:
            log.warning("the fleet's database did not answer", member=self._member, error=str(exc))
            return False
        except Exception:  # a member that lived on and looked no more would keep its servers, and take none
            log.exception("looking after the fleet failed: internal error; tried again", member=self._member)
            return False
        return True

    def _end(self, why: Expelled) -> None:
        """End the term and log why; if the database has lost history, keep that loss for the next term to note."""
        self.over.set()
        if isinstance(why, HistoryLost):
            self._losses.append(copy(why))  # without its traceback, which leads to all that this term has read
            self._why_over = "the database has lost what this member of the fleet has seen; it restarts"
            about = {"seen": why.seen, "reached": why.reached}
            log.error(
                "the database has lost history; this member restarts", member=self._member, error=str(why), **about
            )
        else:
            log.error("this member was declared gone; it restarts", member=self._member, error=str(why))

    def over_error(self) -> UpstreamError:
        """Return the error for work that cannot go on as this term is over; it says why the term ended."""
        return UpstreamError(Fault(code="OWNER_LOST", category=Category.CONNECTION, message=self._why_over))

    def note_losses(self, note: Callable[[str, str], None]) -> None:
        """Note in the audit log, each once, the losses of history in former terms; `note` takes action and target."""
        while self._losses and not self.over.is_set():
            lost = self._losses.pop(0)
            note("LoseHistory", f"{self._member}: revision {lost.seen}, now {lost.reached}")
