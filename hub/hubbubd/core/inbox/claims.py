"""The claim of a pending request, and the refusals of those who do not hold it: who does, and until when."""

from dataclasses import dataclass

from hubbubd import bounds
from hubbubd.errors import FailedPrecondition


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on a request. `id` is its fencing token, which only the holder knows: it takes an answer only with it.

    A worker's claim lasts as long as its stream and is dropped when the hub restarts. `instead_of` is the id of the
    claim by the same principal that this one took over.
    """

    id: str
    by: str
    expires_at: bounds.Moment
    worker: bool = False
    instead_of: str | None = None
    host: str = ""
    """The MCP host that it is held for, as that calls itself: it may answer before all others."""

    def is_held_by(self, by: str) -> bool:
        """Return whether a principal holds it in person. A claim of the principal's worker is not theirs to use."""
        return self.by == by and not self.worker


def already_claimed_error(request_id: str, holder: Claim, by: str) -> FailedPrecondition:
    """Return the refusal for a caller without the claim's id; metadata `own` says it holds the claim elsewhere."""
    if holder.host:
        return _held_for_host_error(request_id, holder, by)
    if not holder.is_held_by(by):
        who = f"a worker of {holder.by}" if holder.worker else holder.by
        return FailedPrecondition(
            f"{who} has claimed this request", reason="ALREADY_CLAIMED", metadata={"claimed_by": holder.by}
        )
    return FailedPrecondition(
        "you have claimed this request already, under another claim id: answer with that id (--claim), or take the "
        f"claim over (hubbub inbox claim {request_id} --take-over)",
        reason="ALREADY_CLAIMED",
        metadata={"claimed_by": holder.by, "own": "true"},
    )


def _held_for_host_error(request_id: str, holder: Claim, by: str) -> FailedPrecondition:
    """Return the refusal for a request that a host may answer before all others; `by` is the principal refused."""
    until = f"{bounds.utc_date(holder.expires_at):%H:%M:%S} UTC"
    metadata = {"claimed_by": holder.by, "host": holder.host, "until": f"{holder.expires_at:.3f}"}
    if not holder.is_held_by(by):
        message = f"held for {holder.host} of {holder.by} until {until}; answer it then"
        return FailedPrecondition(message, reason="ALREADY_CLAIMED", metadata=metadata)
    return FailedPrecondition(
        f"held for {holder.host} until {until}; take it with hubbub inbox claim {request_id} --take-over, or answer it "
        "then",
        reason="ALREADY_CLAIMED",
        metadata={**metadata, "own": "true"},
    )


def require_claim(holder: Claim | None, claim_id: str) -> Claim:
    """Return the claim that a caller holds by its id. Raises FailedPrecondition (CLAIM_LOST)."""
    if holder is not None and holder.id == claim_id:
        return holder
    if holder is not None and holder.instead_of == claim_id:
        raise FailedPrecondition(
            f"{holder.by} has taken this claim over in another window or program; it is no longer valid here",
            reason="CLAIM_LOST",
            metadata={"claimed_by": holder.by, "own": "true"},
        )
    raise FailedPrecondition("this claim is no longer valid; claim the request again", reason="CLAIM_LOST")
