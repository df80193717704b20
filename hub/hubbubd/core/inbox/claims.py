"""The claim of a pending request (a lease), and the refusals that tell others who has claimed it, and until when."""

from dataclasses import dataclass

from hubbubd import bounds
from hubbubd.errors import FailedPrecondition


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on a request. `id` is its fencing token: only the claimant knows it, and can answer meanwhile.

    A `worker` is a program of `by` to which the hub assigns requests over a stream. Its claim lasts as long as the
    stream, and is dropped when the hub restarts. `instead_of` is the id of the claim by the same principal that this
    one took over.
    """

    id: str
    by: str
    expires_at: bounds.Moment
    worker: bool = False
    instead_of: str | None = None
    host: str = ""
    """The MCP host for which the request is held, as the host calls itself: it may answer before all others."""

    def is_held_by(self, by: str) -> bool:
        """Return whether a principal holds the claim in person. A claim of the principal's worker does not count."""
        return self.by == by and not self.worker


def already_claimed_error(request_id: str, claim: Claim, by: str) -> FailedPrecondition:
    """Return the refusal for a principal `by` that did not send the claim's id.

    The metadata `own` says that this principal has claimed the request itself, in another window or program.
    """
    if claim.host:
        return _held_for_host_error(request_id, claim, by)
    if not claim.is_held_by(by):
        holder = f"a worker of {claim.by}" if claim.worker else claim.by
        return FailedPrecondition(
            f"{holder} has claimed this request", reason="ALREADY_CLAIMED", metadata={"claimed_by": claim.by}
        )
    return FailedPrecondition(
        "you have claimed this request already, under another claim id: answer with that id (--claim), or take the "
        f"claim over (hubbub inbox claim {request_id} --take-over)",
        reason="ALREADY_CLAIMED",
        metadata={"claimed_by": claim.by, "own": "true"},
    )


def _held_for_host_error(request_id: str, claim: Claim, by: str) -> FailedPrecondition:
    """Return the refusal for a request that a host may answer before all others; `by` is the principal refused."""
    until = f"{bounds.utc_date(claim.expires_at):%H:%M:%S} UTC"
    metadata = {"claimed_by": claim.by, "host": claim.host, "until": f"{claim.expires_at:.3f}"}
    if not claim.is_held_by(by):
        message = f"held for {claim.host} of {claim.by} until {until}; answer it then"
        return FailedPrecondition(message, reason="ALREADY_CLAIMED", metadata=metadata)
    return FailedPrecondition(
        f"held for {claim.host} until {until}; take it with hubbub inbox claim {request_id} --take-over, or answer it "
        "then",
        reason="ALREADY_CLAIMED",
        metadata={**metadata, "own": "true"},
    )


def require_claim(valid_claim: Claim | None, claim_id: str) -> Claim:
    """Return `valid_claim`, the claim that holds now. Raises FailedPrecondition (CLAIM_LOST) if it has another id."""
    if valid_claim is not None and valid_claim.id == claim_id:
        return valid_claim
    if valid_claim is not None and valid_claim.instead_of == claim_id:
        raise FailedPrecondition(
            f"{valid_claim.by} has taken this claim over in another window or program; it is no longer valid here",
            reason="CLAIM_LOST",
            metadata={"claimed_by": valid_claim.by, "own": "true"},
        )
    raise FailedPrecondition("this claim is no longer valid; claim the request again", reason="CLAIM_LOST")
