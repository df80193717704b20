"""A pending request as the screen shows it: the question first, then who asks, the form, and what came of it."""

from rich.text import Text

from hubbub_client.data.hosts import ConnectedHost
from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.payload import as_object
from hubbub_frontend.display import records, text
from hubbub_frontend.display.agents import render_agent, render_more
from hubbub_frontend.display.answers import answer_pairs
from hubbub_frontend.display.approvals import render_approval
from hubbub_frontend.display.call_details import add_arguments
from hubbub_frontend.display.code_spans import fold_code
from hubbub_frontend.display.content import describe_result
from hubbub_frontend.display.decisions import decision_choices
from hubbub_frontend.display.questions import (
    MAX_CHOICES,
    MAX_FIELDS,
    add_cause,
    add_history,
    add_sampling,
    call_over_warning,
)
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.forms import Field, fields, value_label

# A short word and a colour per kind.
KINDS = {
    "elicitation_form": "form",
    "elicitation_url": "page",
    "sampling": "sampling",
    "roots": "roots",
    "approval": "approval",
}
STYLES = {
    "elicitation_form": "cyan",
    "elicitation_url": "magenta",
    "sampling": "yellow",
    "roots": "blue",
    "approval": "red",
}
# A longer question is shown whole below its headline.
MAX_TITLE_CHARS = 220
MAX_RESULT_CHARS = 300


def styled_kind(request: PendingRequest) -> Text:
    """Return the kind as a short word in its colour."""
    return Text(KINDS.get(request.kind, "-"), style=STYLES.get(request.kind, ""))


def question_message(request: PendingRequest) -> str:
    """Return the text that is asked, without the address of a page; never empty."""
    if request.kind == "roots":
        return "Which directories may it use?"
    message = as_object(request.request).get("message") if request.kind.startswith("elicitation") else None
    question = records.question_text(request) if message is None else str(message)
    return question if question.strip() else f"{request.server} asks without a word"


def headline_text(request: PendingRequest) -> Text:
    """Return what is asked, in one bold line."""
    return Text(text.line(fold_code(question_message(request)), MAX_TITLE_CHARS), style="bold")


def fits_title(request: PendingRequest) -> bool:
    """Return whether the headline has the whole question."""
    return text.line(question_message(request), MAX_TITLE_CHARS) == question_message(request).strip()


def render_request(request: PendingRequest, about: str, call: Call | None, host: ConnectedHost | None) -> Text:
    """Render a pending request in full. `about` names its call; `call`, and the `host` that waits, may be unknown."""
    page = DetailText()
    first_line, _, rest = text.safe_text(question_message(request)).strip().partition("\n")
    page.paragraph(Text(first_line, style="bold")).paragraph(rest)
    for_call = f" · for {text.line(about)}" if about else ""
    page.paragraph(Text.assemble(styled_kind(request), (f" · {text.line(request.server)}{for_call}", "dim")))
    page.defect(request.defect).paragraph(call_over_warning(request), "red")
    if request.state == "open":
        if request.claim:
            page.paragraph(text.line(records.describe_claim(request.claim)), "magenta")
        page.paragraph("enter answers it", "dim")
    else:
        _add_outcome(page, request, call)
    _add_question(page, request)
    if request.kind != "approval":
        render_more(page, request)
        add_arguments(page, call)
    page.heading("Why")
    add_cause(page, request, host)
    add_history(page, request)
    return page.text


def has_failed(call: Call) -> bool:
    """Return whether an ended call failed, or its tool says in the result that it failed."""
    return call.error is not None or records.call_state(call) == records.TOOL_ERROR


def describe_return(call: Call) -> str:
    """Return in one line what an ended call returned, or why it failed."""
    name = text.line(records.short_call_title(call), 60)
    if call.state == "cancelled" and call.error is not None:
        return f"{name} was cancelled: {text.line(call.error.message or '', MAX_RESULT_CHARS)}"
    if call.error is not None:
        return f"{name} failed: {text.line(records.describe_fault(call.error), MAX_RESULT_CHARS)}"
    result = describe_result(call.method, call.result)
    verb = "says that it failed" if as_object(call.result).get("isError") else "returned"
    return f"{name} {verb}: {text.line(result, MAX_RESULT_CHARS) or 'nothing that is text'}"


def _add_outcome(page: DetailText, request: PendingRequest, call: Call | None) -> None:
    """Add how an ended request was answered, and what the call that asked returned."""
    by = f" by {text.line(request.answered_by)}" if request.answered_by else ""
    page.heading("Answer").fact("state", Text.assemble(text.styled_state(records.outcome(request)), by))
    if request.state == "answered":  # an expired request has an answer for the server, too, but nobody gave it
        for name, value in answer_pairs(request):
            page.fact(name, value)
    page.fact("when", records.local_datetime(request.answered_at)).fact("reason", request.reason)
    late = ": the call that asked was over already" if request.delivery == "late" else ""
    page.fact("delivery", text.styled_state(request.delivery).append(late))
    if call is not None and call.ended and request.call_id:
        page.paragraph(describe_return(call), "red" if has_failed(call) else "")


def _add_question(page: DetailText, request: PendingRequest) -> None:
    """Add what is asked beside the message, by kind: fields, the page, the conversation or the call."""
    params = as_object(request.request)
    match request.kind:
        case "elicitation_form":
            render_agent(page, request)
            if decision_choices(request):
                return
            page.heading("Form")
            form = fields(params.get("requestedSchema"))
            for field in form[:MAX_FIELDS]:
                page.paragraph(_render_field(field))
            if len(form) > MAX_FIELDS:
                page.paragraph(f"and {len(form) - MAX_FIELDS} more", "dim")
        case "elicitation_url":
            page.heading("Page").paragraph(text.render_url(str(params.get("url", ""))))
        case "sampling":
            page.heading("Conversation")
            add_sampling(page, params)
        case "approval":
            page.text.append("\n")
            render_approval(page, request)
        case _:
            pass


def _render_field(field: Field) -> Text:
    """Render a field as the form shows it, with the titles of its choices: people choose by title, not by value."""
    row = Text.assemble("• ", text.line(field.title, 100), ("*" if field.required else "", "red"))
    titles = " / ".join(text.line(title, 40) for _, title in field.choices[:MAX_CHOICES])
    hidden = len(field.choices) - MAX_CHOICES
    default = f"default: {text.line(value_label(field, field.default), 60)}" if field.default is not None else ""
    for detail in (titles, f"and {hidden} more" if hidden > 0 else "", field.hint, default):
        row.append(f"  {detail}" if detail else "", style="dim")
    return row
