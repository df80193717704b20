"""The text of a notification. Pure. Text of servers is in it only if the rules say so, and never as markup."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from hubbub_client.data.records import PendingRequest, RequestKind
from hubbub_frontend.display.records import question_text
from hubbub_shared.legible import clean

LONGEST = 300
"""Characters of a question."""

MOST = 10
"""Questions and servers that one notification names."""

KINDS: dict[RequestKind, str] = {
    "elicitation_form": "a form to fill in",
    "elicitation_url": "a page to visit",
    "sampling": "a text to write",
    "roots": "directories to allow",
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


def place(requests: Sequence[PendingRequest]) -> str:
    """Return where in the page these are answered."""
    return f"request/{requests[0].id}" if len(requests) == 1 else "inbox"


def notice(
    id_: str, requests: Sequence[PendingRequest], answer_at: str, *, content: bool, zone: tzinfo | None = None
) -> Notice:
    """Return the notification of one or several pending requests; `answer_at` says where they are answered, if it is to
    be said.
    """
    if len(requests) == 1:
        (request,) = requests
        title, lines = f"{_plain(request.server)} asks", [f"It waits for {KINDS.get(request.kind, 'an answer')}."]
    else:
        title = f"{len(requests)} questions wait"
        counts = Counter(_plain(each.server) for each in requests).most_common()
        told = [f"{count} of {server}" for server, count in counts[:MOST]]
        lines = [", ".join(told) + (f", and of {len(counts) - MOST} other servers." if len(counts) > MOST else ".")]
    if content:
        lines += [_asked(each, single=len(requests) == 1) for each in requests[:MOST]]
        if len(requests) > MOST:
            lines.append(f"... and {len(requests) - MOST} more.")
    deadlines = [each.deadline for each in requests if each.deadline is not None]
    if deadlines:
        soonest = _time(min(deadlines), zone)
        lines.append(f"Answer before {soonest}." if len(requests) == 1 else f"The first lapses at {soonest}.")
    if answer_at:
        lines.append(f"Answer: {answer_at}")
    return Notice(id_, title, "\n".join(lines), place(requests), tuple(each.id for each in requests))


def trial(id_: str) -> Notice:
    """Return a notification that says nothing but that they work."""
    return Notice(id_, "Hubbub can reach you", "This is a test. Nothing waits for an answer.", "inbox")


def _asked(request: PendingRequest, *, single: bool) -> str:
    text = _plain(question_text(request))
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return text if single else f"{_plain(request.server)}: {text}"


def _plain(text: str) -> str:
    return " ".join(clean(text[: 4 * LONGEST]).translate(_HARMLESS).split())


def _time(moment: datetime, zone: tzinfo | None) -> str:
    local = moment.astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M %Z") if zone != UTC else local.strftime("%Y-%m-%d %H:%M UTC")
