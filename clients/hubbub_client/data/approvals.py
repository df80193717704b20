"""A call to approve: the document of a pending request of kind `approval`, as data (docs/approvals.md).

`read_approval` raises nothing: a newer hub may write more than is known here, or other types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast

from hubbub_client.payload import as_list, as_object, as_objects


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalTerms:
    """The rule that wants an approval: how many have to approve and who, and their further options.

    No `approvers` means everybody with the permission to approve; `remember_s` are the seconds for which an approval
    may be extended to later calls.
    """

    name: str
    needed: int = 1
    not_by_caller: bool = False
    approvers: tuple[str, ...] = ()
    edit: bool = False
    remember_s: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalTool:
    """The tool, in the words of its server; empty where these are not known."""

    name: str
    title: str = ""
    description: str = ""
    annotations: Mapping[str, Any]
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalCaller:
    """Who calls: the principal and its roles, and the program and profile of its host, if it has one.

    `app` says that a page of an app makes the call, and no model.
    """

    name: str
    host: str = ""
    profile: str = ""
    roles: tuple[str, ...] = ()
    app: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalSuggestion:
    """A further permission that a host suggests to grant, in the hub's words.

    A `lasting` one goes into the host's settings; others end with its session.
    """

    words: str
    lasting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call that waits for approval; `changed_arguments` are those with which a person replaced its `arguments`.

    `message` is the rule's; `reason` is the hub's, for a rule that does not give one. `before` are the ids of the
    caller's latest calls of this server, newest first. `cwd` is the folder in which a host would use its tool, and
    `suggestions` are further permissions that it proposes; an approval names their indices.
    """

    message: str
    reason: str
    rule: ApprovalTerms
    tool: ApprovalTool
    arguments: Mapping[str, Any]
    digest: str
    definition: str
    caller: ApprovalCaller
    before: tuple[str, ...]
    changed_arguments: Mapping[str, Any] | None = None
    cwd: str = ""
    suggestions: tuple[ApprovalSuggestion, ...] = ()

    @property
    def current_arguments(self) -> Mapping[str, Any]:
        """Return the arguments that are to be approved now."""
        return self.arguments if self.changed_arguments is None else self.changed_arguments


class ApproveOptions(TypedDict, total=False):
    """Options of an approval: other arguments, for how many seconds it is remembered, and a comment.

    With `same_arguments` it is remembered for these arguments only. `suggestions` are the indices of the accepted ones.
    `digest` is the `arguments_digest` of the record whose arguments a person has seen.
    """

    arguments: Mapping[str, Any]
    remember_s: float
    same_arguments: bool
    suggestions: Sequence[int]
    comment: str
    digest: str


def read_approval(document: Mapping[str, Any], changed: object = None) -> ApprovalRequest:
    """Return a call to approve from its document; `changed` has the changed arguments, if a person changed them."""
    rule, tool, caller = (as_object(document.get(key)) for key in ("rule", "tool", "caller"))
    return ApprovalRequest(
        message=_text_or_empty(document.get("message")),
        reason=_text_or_empty(document.get("reason")),
        rule=ApprovalTerms(
            name=_text_or_empty(rule.get("name")),
            needed=max(_whole_or_zero(rule.get("needed")), 1),
            not_by_caller=rule.get("not_by_caller") is True,
            approvers=_only_texts(rule.get("approvers")),
            edit=rule.get("edit") is True,
            remember_s=tuple(
                seconds for each in as_list(rule.get("remember_s")) if (seconds := _whole_or_zero(each)) > 0
            ),
        ),
        tool=ApprovalTool(
            name=_text_or_empty(tool.get("name")),
            title=_text_or_empty(tool.get("title")),
            description=_text_or_empty(tool.get("description")),
            annotations=as_object(tool.get("annotations")),
            input_schema=as_object(tool.get("inputSchema")),
        ),
        arguments=as_object(document.get("arguments")),
        digest=_text_or_empty(document.get("digest")),
        definition=_text_or_empty(document.get("definition")),
        caller=ApprovalCaller(
            name=_text_or_empty(caller.get("name")),
            host=_text_or_empty(caller.get("host")),
            profile=_text_or_empty(caller.get("profile")),
            roles=_only_texts(caller.get("roles")),
            app=caller.get("app") is True,
        ),
        before=_only_texts(document.get("before")),
        cwd=_text_or_empty(document.get("cwd")),
        suggestions=tuple(
            ApprovalSuggestion(_text_or_empty(each.get("words")), each.get("lasting") is not False)
            for each in as_objects(document.get("suggestions"))
        ),
        changed_arguments=cast("Mapping[str, Any]", changed) if isinstance(changed, Mapping) else None,
    )


def _text_or_empty(value: object) -> str:
    """Return a string; empty for any other value."""
    return value if isinstance(value, str) else ""


def _only_texts(value: object) -> tuple[str, ...]:
    """Return the strings of a JSON array; empty for any other value."""
    return tuple(each for each in cast("list[object]", as_list(value)) if isinstance(each, str))


def _whole_or_zero(value: object) -> int:
    """Return a whole number, 0 for any other value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
