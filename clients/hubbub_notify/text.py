"""The text of a notification. Pure. Text of servers is in it only if the rules say so, and never as markup."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from hubbub_client.data.records import PendingRequest, RequestKind
from hubbub_frontend.display.agents import agent_line
from hubbub_frontend.display.approvals import approval_view, arguments_line
from hubbub_frontend.display.code_spans import fold_code
from hubbub_frontend.display.records import question_text
from hubbub_shared.legible import clean

MAX_QUESTION_CHARS = 300
"""Characters of a question."""

MAX_LISTED = 10
"""Questions and servers that one notification names."""

KINDS: dict[RequestKind, str] = {
    "elicitation_form": "a form to fill in",
    "elicitation_url": "a page to visit",
    "sampling": "a text to write",
    "roots": "directories to allow",
    "approval": "an approval",
}

# What chat services could take for a mention, a link or markup.
_HARMLESS = str.maketrans({"@": "(at)", "<": "(", ">": ")", "`": "'", "[": "(", "]": ")"})


@dataclass(frozen=True, slots=True)
class Notice:
    """What is sent: `id` stays the same over all attempts, `to` is the place in the page that it is about."""

    id: str
    title: str
    body: str
    to: str
    requests: tuple[str, ...] = ()


def find_page_view(requests: Sequence[PendingRequest]) -> str:
    """Return the place in the web page where these requests are answered."""
    return f"request/{requests[0].id}" if len(requests) == 1 else "inbox"


def compose_notice(
    id_: str, requests: Sequence[PendingRequest], answer_at: str, *, content: bool, zone: tzinfo | None = None
) -> Notice:
    """Return the notification of one or several pending requests.

    `answer_at` says where they are answered; empty: the text does not say it. With `content`, the text has their
    questions, and the arguments of calls to approve.
    """
    is_single = len(requests) == 1
    if is_single:
        title, lines = _describe_single(requests[0])
    else:
        title = f"{len(requests)} questions wait"
        counts = Counter(_clean_text(request.server) for request in requests).most_common()
        listed = ", ".join(f"{count} of {server}" for server, count in counts[:MAX_LISTED])
        others = len(counts) - MAX_LISTED
        lines = [f"{listed}, and of {others} other servers." if others > 0 else f"{listed}."]
    # Without `content`, only calls to approve have a line, and only if there are several requests: the title and the
    # lines about a single request name its call already.
    shown = [each for each in requests if content or (each.kind == "approval" and not is_single)]
    lines += [_format_question(each, with_server=not is_single, content=content) for each in shown[:MAX_LISTED]]
    if len(shown) > MAX_LISTED:
        lines.append(f"... and {len(shown) - MAX_LISTED} more.")
    deadlines = [request.deadline for request in requests if request.deadline is not None]
    if deadlines:
        soonest = _format_time(min(deadlines), zone)
        lines.append(f"Answer before {soonest}." if is_single else f"The first lapses at {soonest}.")
    if answer_at:
        lines.append(f"Answer: {answer_at}")
    return Notice(id_, title, "\n".join(lines), find_page_view(requests), tuple(request.id for request in requests))


def compose_test_notice(id_: str) -> Notice:
    """Return a notification that only says that notifications arrive."""
    return Notice(id_, "Hubbub can reach you", "This is a test. Nothing waits for an answer.", "inbox")


def _describe_single(request: PendingRequest) -> tuple[str, list[str]]:
    """Return the title and the lines about a single pending request."""
    view = approval_view(request) if request.kind == "approval" else None
    if view is None:
        return f"{_clean_text(request.server)} asks", [f"It waits for {KINDS.get(request.kind, 'an answer')}."]
    title = f"Approve {_clean_text(view.tool)} on {_clean_text(view.server)}?"
    return title, [f"{_clean_text(view.headline)}.", *filter(None, [_clean_text(view.progress)])]


def _format_question(request: PendingRequest, *, with_server: bool, content: bool) -> str:
    """Return what is asked in one line, after the server's name if `with_server`.

    With `content`, a call to approve has its arguments; a coding agent's question that is sent alone (without
    `with_server`) has a second line about what the agent would do, unless the question says so.
    """
    text, place = fold_code(question_text(request)), f"{_clean_text(request.server)}: " if with_server else ""
    if (view := approval_view(request)) is not None:
        with_ = f"with {arguments_line(view.arguments)}" if content else ""
        place, text = "", f"{view.headline} {with_}".strip() if with_server else with_
    if content and not with_server and (agent := agent_line(request)).partition(" …")[0] not in text:
        return f"{place}{_cut_question(_clean_text(text))}\n{_cut_question(_clean_text(agent))}"
    return place + _cut_question(_clean_text(text))


def _cut_question(text: str) -> str:
    return f"{text[: MAX_QUESTION_CHARS - 1]}…" if len(text) > MAX_QUESTION_CHARS else text


def _clean_text(text: str) -> str:
    """Return text of a server in one line, without characters that chat services take for markup."""
    return " ".join(clean(text[: 4 * MAX_QUESTION_CHARS]).translate(_HARMLESS).split())


def _format_time(moment: datetime, zone: tzinfo | None) -> str:
    local = moment.astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M %Z") if zone != UTC else local.strftime("%Y-%m-%d %H:%M UTC")
