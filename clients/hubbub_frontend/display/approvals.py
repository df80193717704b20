"""A call to approve, in words: who wants to run what where, and what the rule, the server and the model say of it.

What a server or a model wrote is apart from the words of the hub and of its rules, and is named as theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from hubbub_client.data.approvals import ApprovalRequest, ApprovalTerms
from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_list, as_object
from hubbub_frontend.display.argument_rows import MAX_DIFF_COST, ArgumentRow, argument_rows, change_lines, line_numbers
from hubbub_frontend.display.code_spans import first_line
from hubbub_frontend.display.records import describe_wanted_call, local_datetime
from hubbub_frontend.display.text import LABEL_WIDTH, DetailText, line, safe_text
from hubbub_shared.legible import clean

if TYPE_CHECKING:  # words need no gRPC
    from hubbub_client.services.approvals import RememberedApproval

Tone = Literal["bad", "waits", "good", ""]

MAX_ROWS = 60
MAX_LINES = 200
"""How many arguments, and how many lines of each, are drawn in a terminal."""

MAX_DESCRIPTION_CHARS = 2000
MAX_SUGGESTION_CHARS = 1000
"""A longer suggestion is not offered: it would be cut, and nobody allows what they have not read."""

HOST = "host"
"""The name of the hub's own server, whose tools are those that hosts bring along; nothing says what these do."""

STYLES: Mapping[Tone, str] = {"bad": "bold red", "waits": "yellow", "good": "green", "": "dim"}
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
NUMBERS = ("nobody", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Hint:
    """A property that a tool claims to have, in words."""

    text: str
    tone: Tone = ""


UNKNOWN_HINT = Hint("does not say whether it writes", "waits")


@dataclass(frozen=True, slots=True)
class RememberChoice:
    """For how long an approval may be remembered."""

    seconds: int
    label: str


@dataclass(frozen=True, slots=True)
class SuggestionChoice:
    """A further permission that an approval may grant, by its index; `lasting` if it outlasts the host's session."""

    index: int
    label: str
    lasting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    """A call to approve as plain data; every text is safe for a screen.

    The hub and its rules wrote `headline`, `rule`, `message`, `reason`, `progress`, `changed`, `who` and `remember`. A
    server wrote `title`, `description`, `hints` and the titles of the arguments. The model wrote the values of the
    arguments and the `folder` of a host's own tool. `suggestions` are words of the hub with rules of the host in them.
    `arguments` are those to approve now, `original` those before a person changed them, if one did. `before` are the
    ids of the caller's latest calls of this server, newest first.
    """

    headline: str
    caller: str
    host: str
    tool: str
    server: str
    title: str
    description: str
    hints: tuple[Hint, ...]
    rule: str
    message: str
    reason: str
    progress: str
    changed: str
    who: str
    may_change: bool
    remember: tuple[RememberChoice, ...]
    arguments: tuple[ArgumentRow, ...]
    original: tuple[ArgumentRow, ...]
    folder: str
    suggestions: tuple[SuggestionChoice, ...]
    before: tuple[str, ...]


def approval_view(request: PendingRequest) -> ApprovalView | None:
    """Return a pending request as a call to approve; None if it is no approval, or cannot be read."""
    approval = request.approval
    if approval is None:
        return None
    schema = approval.tool.input_schema
    has_changes = approval.changed_arguments is not None
    return ApprovalView(
        headline=describe_wanted_call(approval, request.server),
        caller=line(approval.caller.name, 100),
        host=line(approval.caller.host, 60),
        tool=line(approval.tool.name, 100),
        server=line(request.server, 100),
        title=line(approval.tool.title or approval.tool.annotations.get("title") or "", 200),
        description=safe_text(approval.tool.description, MAX_DESCRIPTION_CHARS),
        # Nothing describes the tools of HOST, so a tool of it without annotations has no hints.
        hints=describe_hints(approval.tool.annotations) if approval.tool.annotations or request.server != HOST else (),
        rule=line(approval.rule.name, 100),
        message=safe_text(approval.message, MAX_DESCRIPTION_CHARS),
        reason=safe_text(approval.reason, MAX_DESCRIPTION_CHARS),
        progress=describe_progress(request, approval.rule),
        changed=_describe_changes(request) if has_changes else "",
        who=describe_approvers(approval),
        may_change=approval.rule.edit,
        remember=tuple(RememberChoice(each, describe_span(each)) for each in approval.rule.remember_s),
        arguments=argument_rows(approval.current_arguments, schema),
        original=argument_rows(approval.arguments, schema) if has_changes else (),
        folder=line(approval.cwd),
        suggestions=tuple(
            SuggestionChoice(index, line(each.words, MAX_SUGGESTION_CHARS), each.lasting)
            for index, each in enumerate(approval.suggestions)
            if 0 < len(each.words) <= MAX_SUGGESTION_CHARS
        ),
        before=tuple(line(each, 100) for each in approval.before),
    )


def arguments_line(rows: Sequence[ArgumentRow], limit: int = 300) -> str:
    """Return arguments in one line: `Repository: shop, Branch: release/1.4`."""
    parts = (f"{row.title}: {_value_line(row)}" for row in rows)
    return line(", ".join(each[:limit] for each in islice(parts, limit)), limit) or "no arguments"


def _value_line(row: ArgumentRow) -> str:
    """Return the value of a row for a place within one line: only the first line of code, of a change or of a patch."""
    text = (row.new or "nothing") if row.kind == "change" else row.text
    return first_line(text) if row.kind in ("code", "change", "patch") else text


def describe_hints(annotations: Mapping[str, Any]) -> tuple[Hint, ...]:
    """Return what a server claims of its tool (MCP, tools: ToolAnnotations), the gravest first."""
    hints: list[Hint] = []
    read_only, destructive = annotations.get("readOnlyHint"), annotations.get("destructiveHint")
    if destructive is True:
        hints.append(Hint("destructive", "bad"))
    elif read_only is True:
        hints.append(Hint("reads only", "good"))
    elif read_only is False or destructive is False:
        hints.append(Hint("writes, destroys nothing" if destructive is False else "writes", "waits"))
    else:
        hints.append(UNKNOWN_HINT)
    if annotations.get("openWorldHint") is True:
        hints.append(Hint("open world"))
    if annotations.get("idempotentHint") is True and read_only is not True:
        hints.append(Hint("safe to repeat"))
    return tuple(hints)


def describe_progress(request: PendingRequest, rule: ApprovalTerms) -> str:
    """Return who has approved a call, and how many more people have to.

    Empty if the rule needs one approval and has none yet, if no more are needed, or if the request is not open.
    """
    names = list(dict.fromkeys(line(each.by, 60) for each in request.approvals))
    missing = rule.needed - len(names)
    if request.state != "open" or missing < 1 or (not names and rule.needed == 1):
        return ""
    if not names:
        return f"{_number_word(rule.needed).capitalize()} people have to say yes."
    verb, are = ("has", "is") if len(names) == 1 else ("have", "are")
    are = "is" if missing == 1 else "are"
    return f"{_join_names(names)} {verb} said yes; {_number_word(missing)} more {are} needed."


def describe_approvers(approval: ApprovalRequest) -> str:
    """Return in words who may approve."""
    rule, names = approval.rule, [_describe_approver(each) for each in approval.rule.approvers]
    approvers = _join_names(names, "or") if names else "everyone with the permission to approve"
    return approvers + (
        f", but not {line(approval.caller.name, 60)}" if rule.not_by_caller and approval.caller.name else ""
    )


def _describe_approver(name: str) -> str:
    """Return in words which callers an entry of a rule's approvers names."""
    kind, _, value = name.partition(":")
    match kind:
        case "oidc-role" if value:
            return f"those with the role {line(value, 60)}"
        case "cert" if value:
            return f"the certificate {line(value, 60)}"
        case _:
            return line(name, 60)


def _describe_changes(request: PendingRequest) -> str:
    """Return in words who last changed the arguments."""
    by = line(request.approvals[-1].by, 60) if request.approvals else "somebody"
    return f"{by} has changed the arguments"


def describe_span(seconds: int) -> str:
    """Return a length of time in one unit: `1 hour`, `90 minutes`."""
    unit_s, unit = next((each for each in UNITS if seconds % each[0] == 0), UNITS[-1])
    count = seconds // unit_s
    return f"{count} {unit}{'' if count == 1 else 's'}"


def accepted_suggestions(request: PendingRequest, answer: Mapping[str, Any]) -> Sequence[str]:
    """Return in words the suggestions of the host that the answer to an approval accepted."""
    accepted, approval = as_list(answer.get("suggestions")), request.approval
    suggestions = approval.suggestions if approval is not None else ()
    return [each.words for index, each in enumerate(suggestions) if index in accepted]


def _number_word(count: int) -> str:
    """Return a number in words up to ten, in digits beyond."""
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def _join_names(names: Sequence[str], word: str = "and") -> str:
    """Return names as people list them: `ada, ben and cleo`; of more than six, the first five and how many more."""
    listed = [*names[:5], f"{len(names) - 5} more"] if len(names) > 6 else names
    return f"{', '.join(listed[:-1])} {word} {listed[-1]}" if len(listed) > 1 else "".join(listed)


def describe_remembered(approval: "RememberedApproval") -> str:
    """Return a remembered approval in one line: who may call what until when, and who granted it."""
    permission = f"{line(approval.caller, 60)} may call {line(approval.tool, 100)} on {line(approval.server, 60)}"
    arguments_note = f" with {arguments_text(approval.arguments)}" if approval.arguments is not None else ""
    by = _join_names([line(each, 60) for each in approval.approved_by])
    return f"{permission}{arguments_note} until {local_datetime(approval.expires_at)}; {by} said so"


def arguments_text(arguments: object) -> str:
    """Return arguments in one line without a schema."""
    return arguments_line(argument_rows(as_object(arguments), {}))


def render_approval(page: DetailText, request: PendingRequest) -> None:
    """Render a call to approve below its headline, for a terminal."""
    view = approval_view(request)
    if view is None:
        page.paragraph("This approval cannot be read; deny it, or look at it as JSON.", "red")
        return
    label = "its server" if UNKNOWN_HINT in view.hints else "its server says"
    page.fact(label, _render_hints(view.hints) if view.hints else "")
    page.paragraph(view.changed and f"{view.changed}; what was asked for is below.", "bold yellow")
    render_rows(page, view.arguments)
    page.fact("in the folder", view.folder)
    page.heading("The rule")
    page.fact("rule", view.rule).fact("it says", view.message).fact("why", view.reason)
    page.fact("so far", view.progress, "yellow").fact("who may", view.who)
    labels = _join_names([each.label for each in view.remember], "or")
    page.fact("remember", labels and f"for {labels}, if you like")
    page.fact("change", "the arguments may be changed" if view.may_change else "")
    if view.suggestions:
        page.heading("What the host suggests to allow as well")
        for each in view.suggestions:
            page.fact(f"suggestion {each.index}", each.label, "yellow" if each.lasting else "")
    if view.original:
        page.heading("What was asked for")
        render_rows(page, view.original)
    if view.title or view.description:
        page.heading(f"What {view.server} says of this tool")
        page.paragraph(view.title if view.title != view.tool else "").paragraph(view.description, "italic")


def _render_hints(hints: Sequence[Hint]) -> Text:
    """Render hints in a line, each in the style of its tone."""
    text = Text()
    for number, hint in enumerate(hints):
        text.append(", " if number else "").append(hint.text, STYLES[hint.tone])
    return text


def render_rows(page: DetailText, rows: Sequence[ArgumentRow]) -> None:
    """Render arguments: short ones beside their title, others below it, changes as a diff.

    At most MAX_ROWS of them, with about MAX_LINES lines in all; the rest is counted.
    """
    if not rows:
        page.paragraph("without arguments", "dim")
    visible = rows[:MAX_ROWS]
    change_count = sum(row.kind == "change" for row in visible)
    lines_left = MAX_LINES
    for row in visible:
        if row.kind == "text" and len(row.title) < LABEL_WIDTH:
            page.fact(row.title or '""', row.text)
            continue
        if row.kind == "text":
            page.paragraph(Text.assemble((row.title, "dim"), f"  {row.text}"))
            continue
        page.paragraph(row.title, "dim")
        lines = _row_lines(row, MAX_DIFF_COST // max(change_count, 1))
        # A later argument is shown with some lines, even if an argument before it has taken all MAX_LINES.
        count = max(lines_left, 10)
        lines_left -= min(len(lines), count)
        for each, number in zip(lines[:count], _line_labels(row, lines[:count]), strict=True):
            style = DIFF_STYLES.get(each[:1], "") if row.kind in ("change", "patch") else ""
            page.paragraph(Text.assemble((number, "dim"), (f"  {line_of_code(each)}", style)))
        if len(lines) > count:
            page.paragraph(f"  … {len(lines) - count} lines more", "yellow")
    if len(rows) > MAX_ROWS:
        page.paragraph(f"… {len(rows) - MAX_ROWS} more", "yellow")


def _line_labels(row: ArgumentRow, lines: Sequence[str]) -> Sequence[str]:
    """Return the label before each line: its line number in a change or a patch, empty in other rows."""
    if row.kind not in ("change", "patch"):
        return [""] * len(lines)
    numbers = [*line_numbers(lines)]
    width = max((len(str(each)) for each in numbers if each is not None), default=0)
    return [str("" if each is None else each).rjust(width) for each in numbers]


def _row_lines(row: ArgumentRow, max_cost: int) -> Sequence[str]:
    """Return the lines of a row; for a change, a diff that takes at most `max_cost` steps to make."""
    if row.kind == "change":
        return change_lines(row.old, row.new, max_cost) or ("no difference",)
    return row.text.splitlines() or ("",)


def line_of_code(text: str) -> str:
    """Return a line of code that is safe for a screen, with its indentation, cut at 2,000 characters."""
    return clean(text[:2000]) + (f"… ({len(text) - 2000} characters more)" if len(text) > 2000 else "")
