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

MAX_SAID = 20
"""Texts of an agent about what it would do."""

NOT_TEXT = ("\0", "[U+0000]")
"""The character by which a file that is no text is known: as it came, and as the page replaces it. Such a file is shown
nevertheless."""

CHANGES = {"add": "New file", "delete": "Deleted", "update": "Changed", "unknown": "A change that is not known"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """What an agent asks to do, as plain data: `rows` to read, the `folder` of a command, and what else was sent."""

    rows: tuple[ArgumentRow, ...]
    folder: str
    more: tuple[ArgumentRow, ...]
    decisions: tuple[AgentDecision, ...]


def agent_view(request: PendingRequest) -> AgentView:
    """Return what an agent asks to do, and what else its server sent with the question; parts may be empty."""
    asked = request.agent
    return AgentView(
        rows=_question_rows(asked) if asked is not None else (),
        folder=line(asked.folder) if asked is not None else "",
        more=_more_rows(request.more),
        decisions=decision_choices(request),
    )


def agent_line(request: PendingRequest) -> str:
    """Return in one line what a coding agent would run or change, or else its title; empty if no agent asks."""
    asked = request.agent
    if asked is None:
        return ""
    if asked.command:
        folder = f" in {asked.folder}" if asked.folder else ""
        return line(f"{first_line(asked.command_line)}{folder}")
    if not asked.changes:
        return line(asked.title)
    named = ", ".join(_name_change(each) for each in asked.changes[:MAX_NAMED])
    hidden = len(asked.changes) - MAX_NAMED
    return line(f"{named} and {hidden} more" if hidden > 0 else named)


def render_agent(page: DetailText, request: PendingRequest) -> None:
    """Render what an agent asks to do, for a terminal."""
    view = agent_view(request)
    if view.rows:
        page.heading("What it would do")
        render_rows(page, view.rows)
    page.fact("in the folder", view.folder)


def render_more(page: DetailText, request: PendingRequest) -> None:
    """Render what else the server has sent, for a terminal."""
    if rows := agent_view(request).more:
        page.heading(MORE)
        render_rows(page, rows)


def _question_rows(asked: AgentQuestion) -> tuple[ArgumentRow, ...]:
    """Return what an agent asks to do as rows: the command, the changed files, what it says."""
    rows: list[ArgumentRow] = []
    if asked.command:
        title = f"Command, run by {line(asked.shell, 100)}" if asked.shell else "Command"
        rows.append(ArgumentRow(path="", title=title, kind="code", text=clean(asked.command_line)))
    if asked.title and asked.title.strip("`") != asked.command_line:  # else the title only repeats the command
        rows.append(ArgumentRow(path="", title="The agent calls it", kind="text", text=line(asked.title)))
    rows += [_change_row(each) for each in islice(asked.changes, MAX_FILES)]
    if len(asked.changes) > MAX_FILES:
        text = f"{len(asked.changes) - MAX_FILES} files more, which are in the JSON"
        rows.append(ArgumentRow(path="", title="Too many to show", kind="text", text=text))
    if asked.omitted_bytes is not None:
        text = f"{asked.omitted_bytes:,} bytes are left out: the question was too big"
        rows.append(ArgumentRow(path="", title="Not all of it is here", kind="text", text=text))
    if not (asked.command or asked.changes):
        rows += [_shorten_texts(each) for each in argument_rows(asked.input, {})]
        rows += [ArgumentRow(path="", title="File", kind="text", text=line(each)) for each in asked.files[:MAX_SAID]]
    for said in asked.says[:MAX_SAID]:
        text = clean(_shorten(said))
        kind = "code" if "\n" in text.strip() else "text"
        rows.append(ArgumentRow(path="", title="The agent says", kind=kind, text=text))
    if asked.grant:
        title = "Asks to write below this folder from now on"
        rows.append(ArgumentRow(path="", title=title, kind="code", text=clean(asked.grant)))
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
    shown = dict(islice(members.items(), MAX_MORE))
    rows = [_shorten_texts(each) for each in argument_rows(shown, {})]
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
