"""The pages of the log-in, as HTML: a form for the code, the question, and what went wrong with what to do next.

They work without scripts. Whatever others have chosen (names of programs, hosts, servers) is text, cut, with its
invisible characters shown.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from hubbub_shared.legible import NOT_LEGIBLE

MAX_NAME_CHARS: Final = 80
"""The most characters of a name on a page."""

MAX_UNFOLDED_SERVERS: Final = 8
"""The most servers in a list that is not folded."""

MAX_LISTED_SERVERS: Final = 500
"""The most servers in a list, folded or not."""

MAX_FORM_BYTES: Final = 32 * 1024
MAX_FIELDS: Final = 20

CODE_HELP_HTML: Final = (
    "Run <code>hubbub mcp login</code> where you use the hub, or open the menu under your name in the hub's web page."
)

_STYLE: Final = Path(__file__).with_name("page.css").read_text()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*:(//[A-Za-z0-9.-]+(:\d+)?)?")
_IPV6: Final = re.compile(r"(https?:)//\[[0-9a-f:.]+\](:\d+)?")

_BRAND: Final = (
    '<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" fill="#3558d4"/>'
    '<g stroke="#fff" stroke-width="2.4" stroke-linecap="round">'
    '<path d="M16 16 8.5 9M16 16l8-6M16 16l-6 8M16 16l7 7.5"/></g><circle cx="16" cy="16" r="4.2" fill="#fff"/>'
    '<g fill="#fff"><circle cx="8.5" cy="9" r="2.4"/><circle cx="24" cy="10" r="2.4"/><circle cx="10" cy="24" r="2.4"/>'
    '<circle cx="23" cy="23.5" r="2.4"/></g></svg>'
)


_WHAT_IT_MAY: Final = (
    "<p>Call the tools and read the data of these servers.</p>"
    '<p class="quiet">It sees its own calls alone, nothing of other people, and changes nothing of the hub.</p>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentView:
    """What the page shows that asks a person whether to let a program in.

    `client_name` is the name that the program gives itself; `client_host` publishes its description, if it has one.
    `redirect_host` is where the browser is sent with the answer, `redirect_origin` its origin. `others` are
    servers of the endpoint that the person may not call. `hidden` are the fields that go back with the decision.
    `ends_at` is when the person's own credential expires, in seconds since the epoch.
    """

    client_name: str
    client_id: str
    client_host: str | None
    redirect_host: str
    redirect_is_loopback: bool
    redirect_origin: str
    endpoint: str
    servers: tuple[str, ...]
    person: str
    hidden_fields: Mapping[str, str]
    denied_servers: tuple[str, ...] = ()
    day_choices: tuple[int, ...] = (1, 30, 90)
    days_chosen: int = 30
    ends_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterView:
    """What the page shows on which a person types a code.

    `next` is where the browser goes afterwards, `code` is filled in, `problem` is why the last code was refused.
    """

    next: str = ""
    code: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProblemView:
    """What a page shows where the log-in ends: a title, why, and what to do next, as plain text.

    `is_good` is True where nothing is wrong.
    """

    title: str
    explanation: str
    next_step: str
    is_good: bool = field(default=False, kw_only=True)


REQUEST_EXPIRED: Final = ProblemView(
    "This request has expired",
    "The program's request has waited here for too long, so nobody was let in.",
    "Close this page and start the log-in again in the program.",
)
CHANGED: Final = ProblemView(
    "The request has changed",
    "What the program is, or where the answer goes, has changed since the question was shown, so nobody was let in.",
    "Start the log-in again in the program, and look at what it asks for then.",
)
ENDPOINT_GONE: Final = ProblemView(
    "This address is not there any more",
    "The profile or server that the program asked for was removed meanwhile, so nobody was let in.",
    "Give the program another address of the hub; hubbub mcp login shows one.",
)
RIGHTS_GONE: Final = ProblemView(
    "You may not let programs in any more",
    "What you may do at this hub has ended or changed since the question was shown, so nobody was let in.",
    "Ask the hub's administrator, then start the log-in again in the program.",
)
REFUSED_BEFORE: Final = ProblemView(
    "You have refused already",
    "On this page you have pressed Refuse before. That counts, so nobody was let in.",
    "Start the log-in again in the program if you want to let it in.",
)
ALLOWED_BEFORE: Final = ProblemView(
    "You have let this program in already",
    "On this page you have pressed Allow before. That counts, so Refuse has changed nothing.",
    "To end the log-in: hubbub tokens list shows its name, hubbub tokens revoke NAME ends it.",
)
LOGIN_OFF: Final = ProblemView(
    "Programs cannot log in here",
    "This hub's own log-in is off.",
    "The operator of the hub can set mcp_login, or give the program a token: hubbub tokens create NAME --role caller.",
)
BUSY: Final = ProblemView(
    "The hub cannot do this now",
    "Its store cannot be written, or it is about to stop. Nothing was done.",
    "Wait a moment, then load this page again, or start the log-in again in the program.",
)
WRONG_FORM: Final = ProblemView(
    "The hub cannot read this",
    "What the browser sent is not what the hub's page sends.",
    "Start the log-in again in the program.",
)
FOREIGN_FORM: Final = ProblemView(
    "This does not come from the hub's page",
    "Another site has sent this, or the browser does not say which one. Nothing was done.",
    "Start the log-in again in the program, and press the buttons on the hub's own page.",
)
NOT_ENTERED: Final = ProblemView(
    "The hub does not know any more who you are",
    "You were not logged in at this page, or that has ended. Nothing was done.",
    "Start the log-in again in the program; the hub then asks for a code.",
)


def consent_page(view: ConsentView) -> bytes:
    """Return the page that asks whether a program is let in."""
    name = view.client_name.strip() or "(no name)"
    rows = [
        ("The answer goes to", _render_redirect(view)),
        *(
            [("Described at", f'<span class="place">{_escape_name(view.client_host)}</span>')]
            if view.client_host
            else []
        ),
        ("It gets", _render_servers(view)),
        ("It may", _WHAT_IT_MAY),
        ("You are", f'<span class="place"><bdi>{_escape_name(view.person)}</bdi></span>'),
    ]
    table = "".join(f"<div><dt>{label}</dt><dd>{content}</dd></div>" for label, content in rows)
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in view.hidden_fields.items()
    )
    # Enter in a field presses the first button of a form. That one closes a dialog, and there is none: it does nothing.
    content = f"""<h1>Let this program in?</h1>
<p>A program that calls itself <q><bdi>{_escape_name(name)}</bdi></q> asks to use this hub.</p>
<p class="note">Any program can take this name. Allow it only if you have just started this log-in yourself.</p>
<dl>{table}</dl>
<form method="post" action="/oauth/authorize">{hidden}
<button type="submit" formmethod="dialog" class="unseen" aria-hidden="true" tabindex="-1"></button>
<fieldset><legend>For how long?</legend><div class="choices">{_render_day_choices(view)}</div>
<p class="quiet">{_describe_end(view)}</p></fieldset>
<div class="buttons"><button type="submit" name="decision" value="deny">Refuse</button>
<button type="submit" name="decision" value="allow" class="primary">Allow</button></div></form>"""
    after = '<p>Not you? Refuse, then <a href="/oauth/enter">type a code of your own</a> and start again.</p>'
    return _render_page("Let this program in?", content, after)


def enter_page(view: EnterView) -> bytes:
    """Return the page with the form for a code."""
    introduction = (
        "You have opened the link of a code. Go on only if you have just asked for it yourself."
        if view.code and not view.problem
        else "A program wants to use this hub. Type a code, so that the hub knows who you are; then you decide."
        if view.next
        else "Type a code, so that the hub knows who you are. Then go back to the program that wants to log in."
    )
    problem = f'<p class="problem" id="problem" role="alert">{escape(view.problem)}</p>' if view.problem else ""
    aria = ' aria-invalid="true" aria-describedby="problem help"' if view.problem else ' aria-describedby="help"'
    # With the code in the form, the button is next; a code that was refused, or none yet, is typed.
    focus = "" if view.code and not view.problem else " autofocus"
    link = f'<a href="{escape(view.next)}">Go on</a>'
    other_tab = f"<p>Have you opened the link of a code in another tab? {link}.</p>" if view.next else ""
    content = f"""<h1>Who are you?</h1>
<p>{introduction}</p>{problem}
<form method="post" action="/oauth/enter"><input type="hidden" name="next" value="{escape(view.next)}">
<label class="field" for="code">Code</label>
<input class="code" id="code" name="code" value="{escape(view.code)}" required maxlength="40" autocomplete="off"
 autocapitalize="characters" autocorrect="off" spellcheck="false"{aria}{focus}>
<p class="quiet" id="help">Eight letters and digits, good for ten minutes, once.</p>
<div class="buttons"><button type="submit" class="primary">Continue</button></div></form>"""
    after = f"<p>No code yet? {CODE_HELP_HTML} Tell a code to nobody: who has it acts in your name.</p>{other_tab}"
    return _render_page("Who are you?", content, after)


def problem_page(view: ProblemView) -> bytes:
    """Return the page that says what went wrong, or well, and what to do next."""
    kind = "quiet" if view.is_good else "problem"
    explanation, next_step = _escape_sentence(view.explanation), _escape_sentence(view.next_step)
    content = f'<h1>{escape(view.title)}</h1>\n<p class="{kind}">{explanation}</p>\n<p>{next_step}</p>'
    return _render_page(view.title, content)


def entered_view(person: str) -> ProblemView:
    """Return the view after a code was accepted while no program waits yet; `person` is the name of its owner."""
    return ProblemView(
        f"You are {_cut_legibly(person)} here",
        "The hub now knows who sits at this browser.",
        "Go back to the program and start its log-in, in this browser. The hub then asks whether to let it in.",
        is_good=True,
    )


def too_often_view(why: str) -> ProblemView:
    """Return the view for a person who has exceeded a rate limit; `why` is the sentence of the refusal."""
    return ProblemView(
        "That was too often",
        f"{why[:1].upper()}{why[1:]}. Nothing was done.",
        "If it was not you, ask the administrator of the hub to end your access.",
    )


def security_policy(form_to: str = "") -> str:
    """Return the Content-Security-Policy of a page; its form may also lead to `form_to`, an origin or a scheme."""
    # Chromium applies form-action to redirects of the response, too. A policy cannot name an address of IPv6.
    form_target = _IPV6.sub(r"\1", form_to)
    form_target = f" {form_target}" if _ORIGIN.fullmatch(form_target) else ""
    return (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'{form_target}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


def read_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form, as browsers send it. Raises ValueError for what is no form of these pages."""
    pairs = parse_qsl(
        body.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=MAX_FIELDS
    )
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    return fields


def _render_page(title: str, content: str, after: str = "") -> bytes:
    """Return a whole HTML page with its content on a card, and what comes after the card."""
    below = f'\n<div class="quiet">{after}</div>' if after else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} - Hubbub</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex"><style>{_STYLE}</style></head>
<body><main><p class="brand">{_BRAND}Hubbub</p>
<div class="card">
{content}
</div>{below}
</main></body></html>
""".encode("utf-8", "replace")


def _render_redirect(view: ConsentView) -> str:
    """Return where the browser is sent with the answer, as HTML."""
    if view.redirect_is_loopback:
        return '<span class="place">A program on this computer</span>'
    return f'<span class="place"><bdi>{_escape_name(view.redirect_host)}</bdi></span>'


def _render_servers(view: ConsentView) -> str:
    """Return the servers that the program gets, and those that the person may not call, as HTML."""
    match view.endpoint.strip("/").split("/"):
        case ["mcp", "p", profile]:
            endpoint = f"The profile <q><bdi>{_escape_name(profile)}</bdi></q>"
        case ["mcp", "s", _]:
            endpoint = "One server"
        case _:
            endpoint = "The hub's default profile"
    content = f"<p>{endpoint}:</p>{_render_names(view.servers, f'{len(view.servers)} servers')}"
    if view.denied_servers:
        content += _render_names(
            view.denied_servers, f"{len(view.denied_servers)} more are there that you may not call", always=True
        )
    return content


def _render_names(names: Sequence[str], summary: str, *, always: bool = False) -> str:
    """Return names as an HTML list, folded if it is long or `always`."""
    more = f"<li>and {len(names) - MAX_LISTED_SERVERS} more</li>" if len(names) > MAX_LISTED_SERVERS else ""
    items = "".join(f"<li><bdi>{_escape_name(name)}</bdi></li>" for name in names[:MAX_LISTED_SERVERS])
    listed = f"<ul>{items}{more}</ul>"
    if len(names) <= MAX_UNFOLDED_SERVERS and not always:
        return listed
    return f"<details><summary>{summary}</summary>{listed}</details>"


def _render_day_choices(view: ConsentView) -> str:
    """Return the choice of days for which the program is let in, as HTML."""
    return "".join(
        f'<label><input type="radio" name="days" value="{days}"{" checked" if days == view.days_chosen else ""}>'
        f"{days} {'day' if days == 1 else 'days'}</label>"
        for days in view.day_choices
    )


def _describe_end(view: ConsentView) -> str:
    """Return the sentence that says when the log-in ends at the latest."""
    how_to_end = "You can end it at any time: <code>hubbub tokens list</code> shows it."
    if view.ends_at is None:
        return how_to_end
    day = datetime.fromtimestamp(view.ends_at, UTC)
    return f"It ends with your own access at the latest, {day:%Y-%m-%d %H:%M} UTC. {how_to_end}"


def _cut_legibly(text: str) -> str:
    """Return text in one line, cut, with a code point in place of each character that cannot be seen."""
    line = " ".join(text[: MAX_NAME_CHARS * 4].split())
    legible = NOT_LEGIBLE.sub(lambda found: f"[U+{ord(found.group()):04X}]", line)
    return legible if len(legible) <= MAX_NAME_CHARS else f"{legible[: MAX_NAME_CHARS - 1]}…"


def _escape_name(text: str) -> str:
    """Return a name that others have chosen, as HTML."""
    return escape(_cut_legibly(text))


def _escape_sentence(text: str) -> str:
    """Return a sentence of the hub, which may contain text of others, as HTML."""
    return escape(NOT_LEGIBLE.sub(lambda found: f"[U+{ord(found.group()):04X}]", text[:1000]))
