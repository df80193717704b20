"""A call to approve as the page shows it.

All values are texts, as Python writes them: a browser would round large numbers, and what is approved has to be what is
shown. Nothing is cut here; the page does that, and shows all on request.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from hubbub_client.data.approvals import ApprovalRequest, ApprovalTerms
from hubbub_client.data.records import PendingRequest
from hubbub_client.errors import InvalidArgument
from hubbub_client.payload import as_list, as_object
from hubbub_client.services.tokens import Caller

APPROVING_ROLES = frozenset(("approver", "operator", "admin"))
"""Roles with the permission to approve."""

PAIRS = (
    ("old_string", "new_string"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("old_str", "new_str"),
    ("before", "after"),
)
"""Names of arguments that are a text before and after a change."""

PATCHES = frozenset(("diff", "patch"))
"""Names of arguments that are a diff."""

MAX_EXACT = 2**53 - 1
"""The largest integer that a browser reads exactly."""

MAX_LINE_CHARS = 120
"""Characters of a text that is shown within a line."""

MAX_JSON_CHARS = 60
"""Characters of another value that is shown within a line."""

MAX_DEPTH = 6
"""How deep objects are shown by their fields; deeper ones as JSON."""

Row = dict[str, Any]


def approval_json(request: PendingRequest, caller: Caller) -> dict[str, Any]:
    """Return all that the page shows of a call to approve, to somebody who acts under the hub's name for them."""
    asked = request.approval
    assert asked is not None
    changed = request.changed_arguments
    current = current_arguments(request, asked)
    schema = asked.tool.input_schema
    return {
        "message": asked.message,
        "reason": asked.reason,
        "rule": {
            "name": asked.rule.name,
            "needed": asked.rule.needed,
            "not_by_caller": asked.rule.not_by_caller,
            "approvers": list(asked.rule.approvers),
            "edit": asked.rule.edit,
            "remember_s": list(asked.rule.remember_s),
        },
        "tool": {
            "name": asked.tool.name,
            "title": asked.tool.title,
            "description": asked.tool.description,
            "annotations": dict(asked.tool.annotations),
            "schema": dict(schema),
        },
        "caller": {"name": asked.caller.name, "host": asked.caller.host, "profile": asked.caller.profile},
        "before": list(asked.before),
        "approvals": [each.to_json() for each in request.approvals],
        "digest": request.arguments_digest or asked.digest,
        "rows": argument_rows(current, schema),
        "changes": None if changed is None else changed_rows(asked.arguments, current, schema),
        "text": write(current),
        "arguments": dict(current) if is_exact(current) else None,
        "you": caller.name,
        "obstacle": obstacle(request, asked.rule, asked.caller.name, caller),
    }


def current_arguments(request: PendingRequest, asked: ApprovalRequest) -> Mapping[str, Any]:
    """Return the arguments that are to be approved now: those that somebody has changed, else those of the call."""
    changed = request.changed_arguments
    return asked.arguments if changed is None else as_object(changed)


def obstacle(request: PendingRequest, rule: ApprovalTerms, called_by: str, caller: Caller) -> str:
    """Return why this person may not approve it: permission, caller, approver or again; empty if it seems they may.

    Who belongs to an identity provider's role is known to the hub alone, which has the last word.
    """
    may = any(
        grant.role in APPROVING_ROLES and any(fnmatchcase(request.server, pattern) for pattern in grant.servers)
        for grant in caller.grants
    )
    if not may:
        return "permission"
    if rule.not_by_caller and caller.name == called_by:
        return "caller"
    by_name = all(not each.startswith("oidc-role:") for each in rule.approvers)
    if rule.approvers and by_name and caller.name not in rule.approvers:
        return "approver"
    return "again" if any(each.by == caller.name for each in request.approvals) else ""


def argument_rows(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Row]:
    """Return the arguments as rows: by the titles and in the order of the schema, those that it does not know last."""
    return list(_rows(arguments, schema, (), 0))


def changed_rows(before: Mapping[str, Any], after: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Row]:
    """Return a row for each argument that is different, with what it was and what it is."""
    absent = object()
    rows: list[Row] = []
    for key in _keys({**before, **after}, schema):
        old, new = before.get(key, absent), after.get(key, absent)
        texts = ["" if each is absent else each if isinstance(each, str) else write(each) for each in (old, new)]
        is_same = old is not absent and new is not absent and write(old) == write(new)
        if not is_same:
            kinds = {"added": old is absent, "removed": new is absent}
            rows.append(_row((key,), schema, "change", old=texts[0], new=texts[1]) | kinds)
    return rows


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the arguments that somebody has written as JSON. Raises InvalidArgument, which says what is wrong."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for key, value in found:
            if key in given:
                raise ValueError(f"it has {key!r} twice")
            given[key] = value
        return given

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no number of JSON")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise _unreadable("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _unreadable(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError as error:
        raise _unreadable(str(error)) from None
    if not isinstance(value, dict):
        raise _unreadable("it must be an object, such as {}")
    return cast("dict[str, Any]", value)


def is_exact(value: object) -> bool:
    """Return whether a browser reads the value as it is."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) <= MAX_EXACT
    if isinstance(value, float):
        return not value.is_integer()
    if isinstance(value, Mapping):
        return all(is_exact(each) for each in cast("Mapping[str, Any]", value).values())
    return all(is_exact(each) for each in as_list(value))


def write(value: object) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _unreadable(why: str) -> InvalidArgument:
    return InvalidArgument("the arguments cannot be read", violations=(("approve.arguments", why),))


def _rows(given: Mapping[str, Any], schema: Mapping[str, Any], path: tuple[str, ...], depth: int) -> Iterator[Row]:
    taken: set[str] = set()
    for key in _keys(given, schema):
        if key in taken:
            continue
        value = given[key]
        pair = _pair(given, key)
        if pair:
            taken.update(pair)
            row = _row((*path, pair[1]), schema, "change", old=given[pair[0]], new=given[pair[1]])
            yield row if not path else row | {"path": ".".join(path), "title": ""}
        elif isinstance(value, str):
            yield _text_row((*path, key), schema, value)
        else:
            yield from _value_rows(value, _property(schema, key), (*path, key), schema, depth)


def _value_rows(
    value: object, spec: Mapping[str, Any], path: tuple[str, ...], schema: Mapping[str, Any], depth: int
) -> Iterator[Row]:
    """Yield an object by its fields where the schema names them, a list of changes one by one, else the value."""
    inner = depth + 1
    if inner < MAX_DEPTH and isinstance(value, Mapping) and value and as_object(spec.get("properties")):
        yield from _titled(_rows(cast("Mapping[str, Any]", value), spec, path, inner), _title(schema, path[-1]))
        return
    edits = [as_object(each) for each in as_list(value)]
    if inner < MAX_DEPTH and edits and all(any(_pair(edit, key) for key in edit) for edit in edits):
        items = as_object(spec.get("items"))
        for number, edit in enumerate(edits, 1):
            rows = _rows(edit, items, (*path, str(number)), inner)
            yield from _titled(rows, f"{_title(schema, path[-1])} {number}")
        return
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_JSON_CHARS:
        yield _row(path, schema, "line", text=text, value=True)
    else:
        yield _row(path, schema, "code", text=write(value), value=True)


def _text_row(path: tuple[str, ...], schema: Mapping[str, Any], text: str) -> Row:
    if path[-1] in PATCHES and "\n" in text:
        return _row(path, schema, "patch", text=text)
    short = "\n" not in text and len(text) <= MAX_LINE_CHARS
    return _row(path, schema, "line" if short else "code", text=text)


def _row(path: tuple[str, ...], schema: Mapping[str, Any], shape: str, **more: Any) -> Row:
    return {"path": ".".join(path), "title": _title(schema, path[-1]), "shape": shape, **more}


def _titled(rows: Iterator[Row], title: str) -> Iterator[Row]:
    for row in rows:
        yield row | {"title": f"{title}: {row['title']}" if row["title"] else title}


def _keys(given: Mapping[str, Any], schema: Mapping[str, Any]) -> Sequence[str]:
    known = {key: None for key in as_object(schema.get("properties")) if key in given}
    return [*known, *(key for key in given if key not in known)]


def _pair(given: Mapping[str, Any], key: str) -> tuple[str, str] | None:
    """Return the names of a text before and after a change, if this is one of them; `before` a day is none."""
    pair = next((each for each in PAIRS if key in each), None)
    texts = [given.get(name) for name in pair or ()]
    if pair is None or not all(isinstance(text, str) for text in texts):
        return None
    return pair if pair != PAIRS[-1] or any("\n" in str(text) for text in texts) else None


def _property(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return as_object(as_object(schema.get("properties")).get(key))


def _title(schema: Mapping[str, Any], key: str) -> str:
    title = _property(schema, key).get("title")
    return title if isinstance(title, str) and title.strip() else key
