"""Actions about approvals: what a change would change, what went before, what is remembered, and the rules."""

import contextlib
import json
from functools import partial
from typing import Any

from hubbub_client.errors import HubbubError, InvalidArgument, PermissionDenied
from hubbub_client.payload import as_object
from hubbub_client.services.approvals import RememberedApproval
from hubbub_web.access.sessions import Session
from hubbub_web.records.approval import changed_rows, parse_arguments, write_json
from hubbub_web.records.brief import brief, clip
from hubbub_web.registry import Action, Id, register

ACTIONS: dict[str, Action] = {}

MAX_REMEMBERED = 1000
"""Remembered approvals that the page shows."""

action = partial(register, ACTIONS)


@action
async def compare(session: Session, id: Id, arguments: str) -> Any:  # noqa: A002 - the field's name
    """Return what is different in arguments that somebody has written, and the digest of the present arguments."""
    record = await (await session.hub()).inbox.get(id)
    approval = record.approval
    if approval is None:
        raise InvalidArgument("this is no call to approve")
    rows = changed_rows(approval.current_arguments, parse_arguments(arguments), approval.tool.input_schema)
    return {"rows": rows, "digest": record.arguments_digest or approval.digest}


@action
async def before(session: Session, id: Id) -> Any:  # noqa: A002
    """Return what the caller called of the same server before a call to approve, newest first.

    Calls that the hub does not keep any more, or does not show this person, are left out.
    """
    hub = await session.hub()
    approval = (await hub.inbox.get(id)).approval
    calls: list[dict[str, Any]] = []
    for call_id in approval.before if approval else ():
        with contextlib.suppress(HubbubError):
            call = await hub.calls.get(call_id)
            call_arguments = as_object(call.params).get("arguments")
            calls.append(
                brief(call) | {"given": clip(json.dumps(call_arguments, ensure_ascii=False)) if call_arguments else ""}
            )
    return {"calls": calls}


@action
async def approvals(session: Session) -> Any:
    """Return the remembered approvals and the rules; or `refused`: why this person may not see them."""
    service = (await session.hub()).approvals
    try:
        remembered = await service.list(limit=MAX_REMEMBERED + 1)
        rules = await service.rules()
    except PermissionDenied as error:
        return {"refused": error.message}
    return {
        "remembered": [_remembered_json(each) for each in remembered[:MAX_REMEMBERED]],
        "more": len(remembered) > MAX_REMEMBERED,
        **rules.to_json(),
    }


@action
async def revoke(session: Session, id: Id) -> Any:  # noqa: A002
    """Revoke a remembered approval, and return it: the next such call is asked about again."""
    return (await (await session.hub()).approvals.revoke(id)).to_json()


def _remembered_json(record: RememberedApproval) -> dict[str, Any]:
    """Return a remembered approval as JSON, with its arguments as a text: browsers would round large numbers."""
    text = "" if record.arguments is None else write_json(record.arguments)
    return record.to_json() | {"arguments": None, "text": text}
