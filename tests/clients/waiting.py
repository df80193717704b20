"""Pending requests as tests of notifications need them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hubbub_client.data.records import Claim, PendingRequest

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def pending(id_: str = "req_1", after_s: float = 0, **fields: Any) -> PendingRequest:
    """A form that opened so many seconds after noon."""
    made: dict[str, Any] = {
        "id": id_,
        "server": "deploy",
        "kind": "elicitation_form",
        "state": "open",
        "delivery": None,
        "request": {"message": "Deploy?", "requestedSchema": {"type": "object", "properties": {}}},
        "call_id": None,
        "cause_source": None,
        "task_id": None,
        "created_at": NOON + timedelta(seconds=after_s),
        "deadline": None,
        "claim": None,
        "answer": None,
        "answered_by": None,
        "reason": None,
    }
    return PendingRequest(**(made | fields))


def claimed(id_: str = "req_1", after_s: float = 0) -> PendingRequest:
    """One that somebody is answering."""
    return pending(id_, after_s, claim=Claim(id="c" * 16, by="ada", expires_at=NOON + timedelta(hours=1)))
