"""A call to approve as the page shows it.

All values are texts, as Python writes them: a browser would round large numbers, and what is approved has to be what is
shown. Nothing is cut here; the page does that, and shows all on request.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any, cast

from hubbub_client.data.approvals import ApprovalRequest
from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.errors import InvalidArgument
from hubbub_client.payload import as_list, as_object, to_plain
from hubbub_client.services.tokens import Caller
from hubbub_frontend.display.approvals import approval_view
from hubbub_frontend.display.argument_rows import ArgumentRow, argument_rows
from hubbub_shared.legible import NOT_LEGIBLE

APPROVING_ROLES = frozenset(("approver", "operator", "admin"))
"""Roles with the permission to approve."""

MAX_EXACT = 2**53 - 1
"""The largest integer that a browser reads exactly."""

MAX_INDENTED_CHARS = 100_000
"""The longest JSON that is indented: to do so is slow."""


ChangedRow = dict[str, Any]


def approval_json(request: PendingRequest, caller: Caller) -> dict[str, Any] | None:
    """Return all that the page shows of a call to approve; `caller` is the person who looks, as the hub knows them.

    None for a pending request that asks for something else, or cannot be read.
    """
    document, changed = number_hidden_characters(request.request), number_hidden_characters(request.changed_arguments)
    view, approval = approval_view(replace(request, request=document, changed_arguments=changed)), request.approval
    if view is None or approval is None:
        return None
    current, schema = approval.current_arguments, approval.tool.input_schema
    view_fields = {name: value for name, value in asdict(view).items() if name != "original"}
    # A caller may have sent something else than an object as arguments. It is shown as it is, and not to be changed.
    original_arguments = as_object(request.request).get("arguments", {})
    if not isinstance(original_arguments, Mapping):
        row = ArgumentRow(
            path="arguments",
            title="arguments",
            kind="json",
            text=write_json(number_hidden_characters(original_arguments)),
        )
        view_fields |= {"arguments": [asdict(row)], "may_change": False}
    return {
        **view_fields,
        "changes": changed_rows(approval.arguments, current, schema) if view.changed else None,
        "needed": approval.rule.needed,
        "destructive": approval.tool.annotations.get("destructiveHint") is True,
        "approvals": [each.to_json() for each in request.approvals],
        "digest": request.arguments_digest or approval.digest,
        "text": write_json(current if isinstance(original_arguments, Mapping) else original_arguments),
        "given": dict(current) if is_exact(current) else None,
        "schema": dict(schema),
        "obstacle": find_obstacle(request, approval, caller),
    }


def call_approval_json(call: Call, requests: Sequence[PendingRequest]) -> dict[str, Any] | None:
    """Return the approval of a call: its rule, who and when, and changed arguments; None if no rule wanted it."""
    approval = call.approval
    if approval is None:
        return None
    request = next((each for each in requests if each.id == approval.pending_request_id), None)
    approval_request = request.approval if request else None
    changed = approval.changed_arguments
    original_arguments = as_object(as_object(call.params).get("arguments"))
    schema = approval_request.tool.input_schema if approval_request else as_object(None)
    return approval.to_json() | {
        "granted_at": to_plain(request.answered_at) if request else None,
        "changes": changed_rows(original_arguments, as_object(changed), schema) if changed else [],
    }


def number_hidden_characters(value: Any) -> Any:
    """Return a JSON value in which each character that is not shown is replaced by its number, `[U+202E]`."""
    if isinstance(value, str):
        return NOT_LEGIBLE.sub(lambda found: f"[U+{ord(found.group()):04X}]", value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {number_hidden_characters(name): number_hidden_characters(each) for name, each in items}
    return (
        [number_hidden_characters(each) for each in as_list(cast("object", value))]
        if isinstance(value, list)
        else value
    )


def find_obstacle(request: PendingRequest, approval: ApprovalRequest, person: Caller) -> str:
    """Return why a person may not approve a call: `permission`, `caller`, `approver`, `again`; empty if they may.

    The hub has the last word: it alone knows who has a role of an identity provider, or matches a pattern.
    """
    rule = approval.rule
    if not any(
        grant.role in APPROVING_ROLES and any(fnmatchcase(request.server, pattern) for pattern in grant.servers)
        for grant in person.grants
    ):
        return "permission"
    if rule.not_by_caller and person.name == approval.caller.name:
        return "caller"
    is_by_name = all(":" not in each for each in rule.approvers)
    if rule.approvers and is_by_name and person.name not in rule.approvers:
        return "approver"
    return "again" if any(each.by == person.name for each in request.approvals) else ""


def changed_rows(before: Mapping[str, Any], after: Mapping[str, Any], schema: Mapping[str, Any]) -> list[ChangedRow]:
    """Return a row for each argument that is different, with the old and the new value.

    `fate` is `added`, `removed`, or empty for an argument that is in both.
    """
    rows: list[ChangedRow] = []
    names = [*before, *(name for name in after if name not in before)]
    titles = {row.path: row.title for row in argument_rows(dict.fromkeys(names, ""), schema)}
    for name in names:
        is_in_both = name in before and name in after
        if not (is_in_both and write_json(before[name]) == write_json(after[name])):
            old, new = (_text_or_json(of[name]) if name in of else "" for of in (before, after))
            row = ArgumentRow(path=name, title=titles.get(name, name), kind="change", old=old, new=new)
            rows.append(asdict(row) | {"fate": "" if is_in_both else "removed" if name in before else "added"})
    return rows


def _text_or_json(value: object) -> str:
    """Return a text as it is, another value as JSON."""
    return value if isinstance(value, str) else write_json(value)


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the arguments that somebody has written as JSON. Raises InvalidArgument, which says what is wrong."""

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the object with these keys and values. Raises ValueError for a key that is there twice."""
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise ValueError(f"it has {key!r} twice")
            result[key] = value
        return result

    def reject_constant(name: str) -> Any:
        """Raise ValueError for NaN and Infinity, which Python reads as JSON."""
        raise ValueError(f"{name} is no number of JSON")

    try:
        value = json.loads(text, object_pairs_hook=build_object, parse_constant=reject_constant)
    except RecursionError:
        raise _unreadable_error("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _unreadable_error(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError as error:
        raise _unreadable_error(str(error)) from None
    if not isinstance(value, dict):
        raise _unreadable_error("it must be an object, such as {}")
    return cast("dict[str, Any]", value)


def is_exact(value: object) -> bool:
    """Return whether a browser reads the numbers in a value exactly."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) <= MAX_EXACT
    if isinstance(value, float):
        return not value.is_integer()  # the page's form would send 1.0 back as 1
    if isinstance(value, Mapping):
        return all(is_exact(each) for each in cast("Mapping[str, Any]", value).values())
    return all(is_exact(each) for each in as_list(value))


def write_json(value: object) -> str:
    """Return a value as JSON, indented unless it is very long."""
    compact = json.dumps(value, ensure_ascii=False)
    return compact if len(compact) > MAX_INDENTED_CHARS else json.dumps(value, indent=2, ensure_ascii=False)


def _unreadable_error(reason: str) -> InvalidArgument:
    """Return the error for arguments that cannot be read, with the reason in words."""
    return InvalidArgument("the arguments cannot be read", violations=(("approve.arguments", reason),))
