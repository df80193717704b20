"""An approval that also holds for later calls of the same tool by the same caller."""

from dataclasses import dataclass

from hubbubd.bounds import Moment
from hubbubd.config.sections.approvals import ApprovalRule
from hubbubd.core.approvals.requests import digest_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedApproval:
    """What was approved, by whom, and until when it holds (seconds since the epoch).

    It holds while the tool's `definition` (a digest) and what the rule asks for (`terms`) stay as they were; with
    `arguments`, a JSON object whose digest is `arguments_digest`, for these only; with `folder`
    where a host uses its own tool in it.
    """

    id: str
    server: str
    tool: str
    caller: str
    rule: str
    terms: str
    definition: str
    approved_by: tuple[str, ...]
    created_at: Moment
    expires_at: Moment
    request_id: str
    arguments: bytes | None = None
    arguments_digest: str = ""
    folder: str = ""

    def covers(
        self, tool: str, caller: str, rule: ApprovalRule, definition: str, digest: str, now: float, *, folder: str = ""
    ) -> bool:
        """Return whether this approval also holds for a call of the same server about which `rule` asks.

        `tool` and `caller` are those of the call, `definition` and `digest` the digests of its tool and of its
        arguments. `folder` is the one in which a host wants to use its own tool, else "". `now` is in seconds since the
        epoch.
        """
        return (
            now < self.expires_at
            and (self.tool, self.caller, self.definition, self.folder) == (tool, caller, definition, folder)
            and self.arguments_digest in ("", digest)  # "": the approval holds for any arguments
            and self.terms == digest_terms(rule)
        )
