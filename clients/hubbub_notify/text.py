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
    """A notification: `id` stays the same over all attempts, `to` is the view of the page that it is about."""

    id: str
    title: str
    body: str
    to: str
    requests: tuple[str, ...] = ()


def find_page_view(requests: Sequence[PendingRequest]) -> str:
    """Return the view of the web page in which these requests are answered."""
    return f"request/{requests[0].id}" if len(requests) == 1 else "inbox"


def compose_notice(
    notice_id: str, requests: Sequence[PendingRequest], answer_place: str, *, content: bool, zone: tzinfo | None = None
) -> Notice:
    """Return the notification of one or several pending requests.

    `answer_place` is the link or command to answer them; empty: the text has none. With `content`, the text has their
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
    described = [each for each in requests if content or (each.kind == "approval" and not is_single)]
    lines += [_format_question(each, with_server=not is_single, content=content) for each in described[:MAX_LISTED]]
    if len(described) > MAX_LISTED:
        lines.append(f"... and {len(described) - MAX_LISTED} more.")
    deadlines = [request.deadline for request in requests if request.deadline is not None]
    if deadlines:
        soonest = _format_time(min(deadlines), zone)
        lines.append(f"Answer before {soonest}." if is_single else f"The first lapses at {soonest}.")
    if answer_place:
        lines.append(f"Answer: {answer_place}")
    return Notice(
        notice_id, title, "\n".join(lines), find_page_view(requests), tuple(request.id for request in requests)
    )


def compose_test_notice(notice_id: str) -> Notice:
    """Return a notification that only says that notifications arrive."""
    return Notice(notice_id, "Hubbub can reach you", "This is a test. Nothing waits for an answer.", "inbox")


def _describe_single(request: PendingRequest) -> tuple[str, list[str]]:
    """Return the title and the lines about a single pending request."""
    view = approval_view(request) if request.kind == "approval" else None
    if view is None:
        return f"{_clean_text(request.server)} asks", [f"It waits for {KINDS.get(request.kind, 'an answer')}."]
    title = f"Approve {_clean_text(view.tool)} on {_clean_text(view.server)}?"
    return title, [f"{_clean_text(view.headline)}.", *filter(None, [_clean_text(view.progress)])]


def _format_question(request: PendingRequest, *, with_server: bool, content: bool) -> str:
    """Return the question of a request in one line, after the server's name if `with_server`.

    With `content`, a call to approve has its arguments; a coding agent's question that is sent alone (without
    `with_server`) has a second line with the action of the agent, unless the question has it already.
    """
    text, server_prefix = fold_code(question_text(request)), f"{_clean_text(request.server)}: " if with_server else ""
    if (view := approval_view(request)) is not None:
        arguments = f"with {arguments_line(view.arguments)}" if content else ""
        server_prefix, text = "", f"{view.headline} {arguments}".strip() if with_server else arguments
    # ` …` marks that a command has more lines; only the line before that can be in the question.
    if content and not with_server and (agent_action := agent_line(request)).partition(" …")[0] not in text:
        return f"{server_prefix}{_cut_question(_clean_text(text))}\n{_cut_question(_clean_text(agent_action))}"
    return server_prefix + _cut_question(_clean_text(text))


def _cut_question(text: str) -> str:
    """Return a text cut to MAX_QUESTION_CHARS."""
    return f"{text[: MAX_QUESTION_CHARS - 1]}…" if len(text) > MAX_QUESTION_CHARS else text


def _clean_text(text: str) -> str:
    """Return text of a server in one line, without characters that chat services take for markup."""
    return " ".join(clean(text[: 4 * MAX_QUESTION_CHARS]).translate(_HARMLESS).split())


def _format_time(moment: datetime, zone: tzinfo | None) -> str:
    """Return a time with the name of its zone, for people; None is the zone of this machine."""
    local = moment.astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M %Z") if zone != UTC else local.strftime("%Y-%m-%d %H:%M UTC")
