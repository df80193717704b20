"""What an agent asks to do, and what else its server sends, as rows to read; frontends draw them as those of a call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from hubbub_client.data.agent_questions import AgentQuestion, FileChange
from hubbub_client.data.records import PendingRequest
from hubbub_frontend.display.approvals import render_rows
from hubbub_frontend.display.argument_rows import ArgumentRow, argument_rows
from hubbub_frontend.display.code_spans import first_line
from hubbub_frontend.display.decisions import decision_choices
from hubbub_frontend.display.text import DetailText, line
from hubbub_shared.agent_decisions import AgentDecision
from hubbub_shared.legible import clean

MORE = "More from the server"
MAX_FILES = 500
MAX_MORE = 100
MAX_MORE_CHARS = 20_000
"""How many other members are shown, and how many characters of each; a longer one is in the JSON."""

MAX_NAMED = 3
"""Files that one line names."""

MAX_STATEMENTS = 20
"""The most statements of an agent about what it would do, and the most names of files."""

NOT_TEXT = ("\0", "[U+0000]")
"""The character by which a file that is no text is known: as it came, and as the page replaces it. Such a file is shown
nevertheless."""

CHANGES = {"add": "New file", "delete": "Deleted", "update": "Changed", "unknown": "A change that is not known"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """An agent's question as plain data: `rows` to read, the `folder` of a command, `more` members, and `decisions`."""

    rows: tuple[ArgumentRow, ...]
    folder: str
    more: tuple[ArgumentRow, ...]
    decisions: tuple[AgentDecision, ...]


def agent_view(request: PendingRequest) -> AgentView:
    """Return an agent's question, and the other members that its server sent with it; parts may be empty."""
    question = request.agent
    return AgentView(
        rows=_question_rows(question) if question is not None else (),
        folder=line(question.folder) if question is not None else "",
        more=_more_rows(request.more),
        decisions=decision_choices(request),
    )


def agent_line(request: PendingRequest) -> str:
    """Return in one line the command or the files of an agent's question, else its title; empty if no agent asks."""
    question = request.agent
    if question is None:
        return ""
    if question.command:
        folder = f" in {question.folder}" if question.folder else ""
        return line(f"{first_line(question.command_line)}{folder}")
    if not question.changes:
        return line(question.title)
    paths = ", ".join(_name_change(each) for each in question.changes[:MAX_NAMED])
    hidden = len(question.changes) - MAX_NAMED
    return line(f"{paths} and {hidden} more" if hidden > 0 else paths)


def render_agent(page: DetailText, request: PendingRequest) -> None:
    """Render an agent's question, for a terminal."""
    view = agent_view(request)
    if view.rows:
        page.heading("What it would do")
        render_rows(page, view.rows)
    page.fact("in the folder", view.folder)


def render_more(page: DetailText, request: PendingRequest) -> None:
    """Render the other members that the server sent with its question, for a terminal."""
    if rows := agent_view(request).more:
        page.heading(MORE)
        render_rows(page, rows)


def _question_rows(question: AgentQuestion) -> tuple[ArgumentRow, ...]:
    """Return an agent's question as rows: command, changed files, the agent's statements, and its wanted grant."""
    rows: list[ArgumentRow] = []
    if question.command:
        title = f"Command, run by {line(question.shell, 100)}" if question.shell else "Command"
        rows.append(ArgumentRow(path="", title=title, kind="code", text=clean(question.command_line)))
    if question.title and question.title.strip("`") != question.command_line:  # else the title only repeats the command
        rows.append(ArgumentRow(path="", title="The agent calls it", kind="text", text=line(question.title)))
    rows += [_change_row(each) for each in islice(question.changes, MAX_FILES)]
    if len(question.changes) > MAX_FILES:
        text = f"{len(question.changes) - MAX_FILES} files more, which are in the JSON"
        rows.append(ArgumentRow(path="", title="Too many to show", kind="text", text=text))
    if question.omitted_bytes is not None:
        text = f"{question.omitted_bytes:,} bytes are left out: the question was too big"
        rows.append(ArgumentRow(path="", title="Not all of it is here", kind="text", text=text))
    if not (question.command or question.changes):
        rows += [_shorten_texts(each) for each in argument_rows(question.input, {})]
        rows += [
            ArgumentRow(path="", title="File", kind="text", text=line(each)) for each in question.files[:MAX_STATEMENTS]
        ]
    for statement in question.says[:MAX_STATEMENTS]:
        text = clean(_shorten(statement))
        kind = "code" if "\n" in text.strip() else "text"
        rows.append(ArgumentRow(path="", title="The agent says", kind=kind, text=text))
    if question.grant:
        title = "Asks to write below this folder from now on"
        rows.append(ArgumentRow(path="", title=title, kind="code", text=clean(question.grant)))
    return tuple(rows)


def _change_row(change: FileChange) -> ArgumentRow:
    """Return the change of a file as a row: old and new text, a patch, or the content."""
    row = ArgumentRow(path="", title=f"{CHANGES[change.kind]}: {_name_change(change)}", kind="code")
    old, new = change.texts or ("", "")
    if any(mark in each for each in (old, new, change.content) for mark in NOT_TEXT):
        row = replace(row, title=f"{row.title} (not only text)")
    match change.kind:
        case "update" if change.texts is not None:
            return replace(row, kind="change", old=clean(old), new=clean(new))
        case "update":
            return replace(row, kind="patch", text=clean(change.diff).rstrip("\n"))
        case "add":
            return replace(row, kind="change", new=clean(change.content).removesuffix("\n"))
        case "delete":
            return replace(row, kind="change", old=clean(change.content).removesuffix("\n"))
        case _:
            return replace(row, text=clean(change.content))


def _name_change(change: FileChange) -> str:
    """Return the path of a changed file, and where it is moved to."""
    return line(f"{change.path} → {change.moved_to}" if change.moved_to else change.path)


def _more_rows(members: Mapping[str, object]) -> tuple[ArgumentRow, ...]:
    """Return the members of a question that have no known meaning, as rows."""
    visible = dict(islice(members.items(), MAX_MORE))
    rows = [_shorten_texts(each) for each in argument_rows(visible, {})]
    if len(members) > MAX_MORE:
        text = f"{len(members) - MAX_MORE} members more, which are in the JSON"
        rows.append(ArgumentRow(path="", title="Too many to show", kind="text", text=text))
    return tuple(rows)


def _shorten_texts(row: ArgumentRow) -> ArgumentRow:
    """Return a row with at most MAX_MORE_CHARS of each of its texts."""
    return replace(row, text=_shorten(row.text), old=_shorten(row.old), new=_shorten(row.new))


def _shorten(text: str) -> str:
    """Return a text of at most MAX_MORE_CHARS, and how many are left out."""
    omitted = len(text) - MAX_MORE_CHARS
    return f"{text[:MAX_MORE_CHARS]}… ({omitted} characters more)" if omitted > 0 else text
