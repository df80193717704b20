"""Whom an endpoint asks the questions of servers, and whether an answer of a host counts. Pure.

A host is a program, so it may answer without a person: with `decline`, with an empty `accept`, with the defaults of the
form. Such an answer, if it comes at once, does not count where people could still answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, cast

from hubbubd.config.sections.mcp import Asked, AskedToApprove, ProfileSettings
from hubbubd.core.calls.capabilities import can_answer
from hubbubd.core.hosts.extensions import UI, app_entry, select_stored_entries
from hubbubd.core.inbox.forms import Approve, ClientAnswer, Deny, Refuse, Result, Unchecked
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.core.jsonrpc import INTERNAL_ERROR
from hubbubd.core.tasks import EXTENSION

ELICITATIONS: Final = frozenset({RequestKind.ELICITATION_FORM, RequestKind.ELICITATION_URL})

METHODS: Final[Mapping[RequestKind, str]] = {
    RequestKind.ELICITATION_FORM: "elicitation/create",
    RequestKind.ELICITATION_URL: "elicitation/create",
    RequestKind.SAMPLING: "sampling/createMessage",
    RequestKind.ROOTS: "roots/list",
    RequestKind.APPROVAL: "elicitation/create",
}


DECISION: Final = "decision"
"""The required field of an approval's form; the other one is `reason`."""

MAX_REASON: Final = 2000
"""Characters of a reason to deny."""

MIN_APPROVAL_S: Final = 1.0
"""An approval that comes within so many seconds counts as given without a person, even if `unattended_s` is less."""

NAMES: Final[Mapping[RequestKind, str]] = {
    RequestKind.ELICITATION_FORM: "form",
    RequestKind.ELICITATION_URL: "url",
    RequestKind.SAMPLING: "sampling",
    RequestKind.ROOTS: "roots",
    RequestKind.APPROVAL: "approval",
}
"""The name of each kind in the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPolicy:
    """Whom an endpoint asks, by kind. An answer that needs no person does not count within `unattended_s` seconds.

    `names_server` puts the server's name before its message, as an endpoint of several servers needs. `hold_s`,
    `on_hold_end` and `join_s` are as in the settings, but there are tickets only where the hub has tools of its own.
    """

    form: Asked = "both"
    url: Asked = "both"
    sampling: Asked = "host-first"
    roots: Asked = "host-first"
    approval: AskedToApprove = "inbox"
    unattended_s: float = 1.0
    names_server: bool = False
    hold_s: Literal["auto"] | float = "auto"
    on_hold_end: Literal["ticket", "error", "wait"] = "wait"
    join_s: float = 0.0
    asks_host_alone: bool = field(init=False)
    """Whether there are questions that only the host is asked."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "asks_host_alone", "host" in (self.form, self.url, self.sampling, self.roots))

    @classmethod
    def from_settings(cls, settings: ProfileSettings, *, names_server: bool) -> Self:
        """Return the policy of a profile."""
        questions, end = settings.questions, settings.on_hold_end
        return cls(
            form=questions.form,
            url=questions.url,
            sampling=questions.sampling,
            roots=questions.roots,
            approval=questions.approval,
            unattended_s=settings.unattended_s,
            names_server=names_server,
            hold_s=settings.hold_s,
            # A server's own endpoint lacks the tool with which the host of a ticket fetches the result.
            on_hold_end="error" if end == "ticket" and not names_server else end,
            join_s=settings.join_s,
        )

    def who_answers(self, kind: RequestKind) -> Asked:
        """Return whom the endpoint asks questions of a kind: the value of the setting."""
        match kind:
            case RequestKind.ELICITATION_FORM:
                return self.form
            case RequestKind.ELICITATION_URL:
                return self.url
            case RequestKind.SAMPLING:
                return self.sampling
            case RequestKind.ROOTS:
                return self.roots
            case RequestKind.APPROVAL:
                return self.approval

    def trusts_host(self, kind: RequestKind) -> bool:
        """Return whether only the host is asked, so that its answer is not judged; never for approvals."""
        return kind is not RequestKind.APPROVAL and self.who_answers(kind) == "host"

    def asks_host_first(self, kind: RequestKind) -> bool:
        """Return whether the host is asked before other clients, or alone."""
        return self.who_answers(kind) in ("host", "host-first")

    def call_capabilities(self, host_capabilities: Mapping[str, Any]) -> dict[str, Any]:
        """Return the capabilities of a call: those of the host where only the host is asked, else those of the hub.

        What the host declares about pages of apps is added.
        """
        ui = app_entry(host_capabilities)
        capabilities: dict[str, Any] = {}
        modes: dict[str, Any] = {
            mode: {}
            for mode, kind in (("form", RequestKind.ELICITATION_FORM), ("url", RequestKind.ELICITATION_URL))
            if self.who_answers(kind) != "host" or can_answer(host_capabilities, kind, {})
        }
        if modes:
            capabilities["elicitation"] = modes
        if self.sampling != "host":
            capabilities["sampling"] = {"tools": {}}
        elif "sampling" in host_capabilities:
            capabilities["sampling"] = host_capabilities["sampling"]
        if self.roots != "host" or "roots" in host_capabilities:
            capabilities["roots"] = {}
        asks_only_host = {self.form, self.url, self.sampling, self.roots} == {"host"}
        if not asks_only_host or declares_tasks(
            host_capabilities
        ):  # else the hub waits for the end of a task in its host's place
            capabilities["extensions"] = {EXTENSION: {}}
        if ui is not None:
            capabilities["extensions"] = {**capabilities.get("extensions", {}), UI: ui}
        return capabilities


@dataclass(frozen=True, slots=True)
class UnattendedAnswer:
    """No answer of a person: the host is not asked questions of this kind for a while. `action`: what it did."""

    action: str


@dataclass(frozen=True, slots=True)
class Deferral:
    """The host leaves the question to other clients. `action` is what it did instead of an answer."""

    action: str


Verdict = ClientAnswer | UnattendedAnswer | Deferral


def declares_tasks(host_capabilities: Mapping[str, Any]) -> bool:
    """Return whether these capabilities declare the tasks extension (2026-07-28)."""
    return EXTENSION in _as_mapping(host_capabilities.get("extensions"))


def select_known_capabilities(host_capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a host's capabilities that the hub reads; their size is bounded."""
    capabilities: dict[str, Any] = {}
    modes = _as_mapping(host_capabilities.get("elicitation"))
    if "elicitation" in host_capabilities and (not modes or "form" in modes or "url" in modes):
        capabilities["elicitation"] = {mode: {} for mode in ("form", "url") if mode in modes}
    if "sampling" in host_capabilities:
        capabilities["sampling"] = {
            part: {} for part in ("context", "tools") if part in _as_mapping(host_capabilities["sampling"])
        }
    if "roots" in host_capabilities:
        capabilities["roots"] = {}
    if extensions := select_stored_entries(host_capabilities):
        capabilities["extensions"] = extensions
    return capabilities


def judge_result(
    policy: QuestionPolicy, kind: RequestKind, params: Mapping[str, Any], result: Mapping[str, Any], took_s: float
) -> Verdict:
    """Return the verdict on a result with which a host has answered a question after `took_s` seconds.

    Where only the host is asked, the result is passed on unchecked: no other client could give a better answer.
    """
    if policy.trusts_host(kind):
        return Unchecked(dict(result))
    if kind is RequestKind.APPROVAL:
        return judge_approval(policy, params, result, took_s)
    if kind not in ELICITATIONS:
        return Result(dict(result))
    action = result.get("action")
    if took_s < policy.unattended_s and (action in ("decline", "cancel") or _can_come_without_person(params, result)):
        return UnattendedAnswer(f"{action} after {round(took_s * 1000)} ms")
    if action == "cancel":
        return Deferral("cancel")
    return Result(dict(result))


def judge_approval(
    policy: QuestionPolicy, document: Mapping[str, Any], result: Mapping[str, Any], took_s: float
) -> Verdict:
    """Return the verdict on an answer to an approval's form: only a decision that a person has chosen counts."""
    action, content = str(result.get("action"))[:20], _as_mapping(result.get("content"))
    if took_s < max(policy.unattended_s, MIN_APPROVAL_S):
        return UnattendedAnswer(f"{action} after {round(took_s * 1000)} ms")
    if action != "accept":
        return Deferral(action)
    match content.get(DECISION):
        case "approve":
            return Approve(digest=document["digest"])
        case "deny":
            reason = content.get("reason")
            return Deny(reason=reason[:MAX_REASON] if isinstance(reason, str) else "")
        case _:
            return Deferral("accept without a decision")


def judge_error(policy: QuestionPolicy, kind: RequestKind, error: Mapping[str, Any]) -> Verdict:
    """Return the verdict on a JSON-RPC error with which a host has answered a question."""
    code, message = error.get("code"), str(error.get("message", ""))[:200]
    if policy.trusts_host(kind):
        return Refuse(code if isinstance(code, int) else INTERNAL_ERROR, message or "the client refused it")
    return Deferral(f"error {code}: {message}"[:200])


def _can_come_without_person(params: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Return whether a result accepts without content, or with no other values than the form's defaults."""
    content = result.get("content")
    if result.get("action") != "accept" or not content:
        return result.get("action") == "accept"
    if not isinstance(content, Mapping):
        return False
    properties = _as_mapping(_as_mapping(params.get("requestedSchema")).get("properties"))
    values = cast("Mapping[str, Any]", content)
    no_default = object()
    return all(_as_mapping(properties.get(name)).get("default", no_default) == value for name, value in values.items())


def _as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value if it is a mapping, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
