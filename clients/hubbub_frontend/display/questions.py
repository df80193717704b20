"""A pending request in full: what is asked, why, and its outcome."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from hubbub_client.data.hosts import ConnectedHost
from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.payload import as_object, as_objects
from hubbub_frontend.display import content, text
from hubbub_frontend.display.agents import render_agent, render_more
from hubbub_frontend.display.approvals import render_approval
from hubbub_frontend.display.call_details import add_arguments
from hubbub_frontend.display.decisions import decision_choices
from hubbub_frontend.display.hosts import name_and_version
from hubbub_frontend.display.records import (
    describe_asked_hosts,
    describe_claim,
    describe_hangup,
    format_duration,
    local_datetime,
    outcome,
    question_text,
)
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.forms import Field, fields, typed_text
from hubbub_shared.agent_decisions import AgentDecision

# Limits on the fields and choices of a form that are listed.
MAX_FIELDS = 60
MAX_CHOICES = 8

CAUSES = {"wire": "as the server says", "inferred": "the only call it can be"}
REQUESTS = {
    "elicitation_form": "asks you to fill in a form",
    "elicitation_url": "asks you to visit a page",
    "sampling": "asks for a text as a model would write it",
    "roots": "asks which directories it may use",
}
EVENTS = {
    "shown": "shown to",
    "claimed": "claimed by",
    "released": "given back by",
    "lapsed": "left by",
    "answered": "answered by",
    "not_counted": "not counted, of",
    "approved": "approved by",
}


def headline(request: PendingRequest) -> Text:
    """Return one line that says which server asks for what, or who wants to run what."""
    if request.kind == "approval":
        return Text(text.line(question_text(request)), style="bold")
    if decision_choices(request):
        return Text.assemble((text.line(request.server), "bold"), " asks you to decide")
    return Text.assemble((text.line(request.server), "bold"), f" {REQUESTS.get(request.kind, request.kind)}")


def render_request(request: PendingRequest, call: Call | None = None) -> Text:
    """Render a pending request in full; `call` is the call that asks, None if it is not known."""
    page = DetailText().paragraph(headline(request)).defect(request.defect)
    page.paragraph(call_over_warning(request), "red")
    if request.state != "open":
        _add_outcome(page, request)
    elif request.claim:
        page.fact("now", text.line(describe_claim(request.claim)), "magenta")
    page.text.append("\n")
    add_question(page, request)
    if request.kind != "approval":
        render_more(page, request)
        add_arguments(page, call)
    page.heading("Why")
    add_cause(page, request)
    add_history(page, request)
    return page.text


def add_history(page: DetailText, request: PendingRequest) -> None:
    """List the events of a pending request: who saw, claimed and answered it, and when."""
    if request.moments:
        page.heading("What happened")
    for moment in request.moments:
        event = EVENTS.get(moment.what or "") if moment.by else None
        if moment.what == "delivered" and request.delivery == "late":
            event = "delivered too late"
        details = ""
        if event and moment.by:
            details = f" {'the agent ' if moment.agent else ''}{text.line(moment.by)}"
        if event and moment.via:
            details += f" via {text.line(moment.via)}"
        if moment.what == "answered" and outcome(request) != "answered":  # declined, dismissed or refused
            details += f": {outcome(request)}"
        after = format_duration((moment.at - request.created_at).total_seconds())
        page.paragraph(f"{after:>9}  {event or moment.what or 'unknown'}{details}")


def add_cause(page: DetailText, request: PendingRequest, host: ConnectedHost | None = None) -> None:
    """Describe the call that caused a pending request, as far as it is known, and whether that call is over.

    `host` is the host that waits for the call; it is named as well.
    """
    if request.call_id:
        source = CAUSES.get(request.cause_source or "") if request.kind != "approval" else None
        page.fact("call", f"{request.call_id} ({source})" if source else request.call_id)
    else:
        page.fact("call", describe_candidates(request))
    if request.delivery != "delivered":
        page.fact("call is over", request.cause_ended)
    page.fact("caller", describe_hangup(request), "red" if request.state == "open" else "")
    for asked_host in describe_asked_hosts(request):
        page.fact("host", text.line(asked_host))
    page.fact("caller", request.caller).fact("host", host and name_and_version(host))
    page.fact("task", request.task_id)
    page.fact("came", local_datetime(request.created_at))
    page.fact("id", request.id)


def describe_candidates(request: PendingRequest) -> str | None:
    """Name the calls that may have caused a pending request; None if there are no candidates.

    A single candidate is not certain either: the others may have ended.
    """
    ids = request.candidate_call_ids
    if not ids:
        return None
    if len(ids) == 1:
        return f"perhaps {ids[0]}"
    more = f" and {len(ids) - MAX_CHOICES} more" if len(ids) > MAX_CHOICES else ""
    return f"one of {', '.join(ids[:MAX_CHOICES])}{more}"


def call_over_warning(request: PendingRequest) -> str | None:
    """Return a warning if a request is open, but the call that asked has ended; None otherwise."""
    if request.state != "open" or not request.cause_ended:
        return None
    return f"{text.line(request.cause_ended)}: an answer may come too late"


def add_question(page: DetailText, request: PendingRequest) -> None:
    """Render the question of a pending request, by its kind."""
    params = as_object(request.request)
    match request.kind:
        case "elicitation_form":
            page.paragraph(params.get("message"))
            render_agent(page, request)
            if choices := decision_choices(request):
                add_decisions(page, choices)
            else:
                add_form(page, fields(params.get("requestedSchema")))
        case "elicitation_url":
            page.paragraph(params.get("message")).paragraph(text.render_url(str(params.get("url", ""))))
        case "sampling":
            add_sampling(page, params)
        case "approval":
            render_approval(page, request)
        case _:
            page.paragraph("It asks for the directories that it may use.")


def add_decisions(page: DetailText, choices: Sequence[AgentDecision]) -> None:
    """Render the decisions (allow, reject, ...) among which an agent's question offers a choice, with their values."""
    page.heading("Decision")
    for each in choices:
        note = f" ({each.note})" if each.note else ""
        page.paragraph(Text.assemble("• ", (text.line(each.value, 100), "bold"), f"  {each.label}{note}"))


def add_form(page: DetailText, form: Sequence[Field]) -> None:
    """Render the fields of a form, one per line: key, title, choices, bounds, default and description."""
    page.heading("Form")
    for field in form[:MAX_FIELDS]:
        row = Text.assemble("• ", (text.line(field.name, 100), "bold"), ("*" if field.required else "", "red"))
        if field.title != field.name:
            row.append(f"  {text.line(field.title, 100)}")
        value_hint = {"choices": "any of", "boolean": "yes | no"}.get(field.kind, "")
        choices = " | ".join(_describe_choice(value, title) for value, title in field.choices[:MAX_CHOICES])
        hidden = len(field.choices) - MAX_CHOICES
        for detail in (value_hint, choices, f"and {hidden} more" if hidden > 0 else "", field.hint):
            row.append(f"  {detail}" if detail else "", style="dim")
        if field.default is not None:
            row.append(f"  default: {text.line(typed_text(field.default), 60)}", style="dim")
        if field.description:
            row.append(f"\n    {text.line(field.description)}")
        page.paragraph(row)
    if len(form) > MAX_FIELDS:
        page.paragraph(f"and {len(form) - MAX_FIELDS} fields more", "dim")


def _describe_choice(value: str, title: str) -> str:
    """Return a choice as a person types it, and its title if that differs."""
    return text.line(value, 40) + (f" ({text.line(title, 40)})" if title != value else "")


def add_sampling(page: DetailText, params: Mapping[str, Any]) -> None:
    """Render the conversation to continue, and the server's preferences."""
    page.fact("system", params.get("systemPrompt"))
    for message in as_objects(params.get("messages")):
        page.fact(text.line(message.get("role", "-"), 10), content.content_text(message))
    preferences = as_object(params.get("modelPreferences"))
    page.fact("models", ", ".join(str(hint.get("name")) for hint in as_objects(preferences.get("hints"))))
    priorities = {name.removesuffix("Priority"): value for name, value in preferences.items() if name != "hints"}
    page.fact("wishes", ", ".join(f"{name} {value}" for name, value in priorities.items()))
    page.fact("at most", params.get("maxTokens") and f"{params['maxTokens']} tokens")
    page.fact("tools", ", ".join(str(tool.get("name")) for tool in as_objects(params.get("tools"))))


def _add_outcome(page: DetailText, request: PendingRequest) -> None:
    """Render the outcome of a request that is not open: its state, who answered, when, and the whole answer."""
    by = f" by {text.line(request.answered_by)}" if request.answered_by else ""
    page.fact("state", Text.assemble(text.styled_state(outcome(request)), by))
    page.fact("answered", local_datetime(request.answered_at))
    page.fact("reason", request.reason)
    late_note = ": the call that asked was over already" if request.delivery == "late" else ""
    page.fact("delivery", text.styled_state(request.delivery).append(late_note))
    if request.answer is not None:
        page.heading("Answer").json(request.answer)
