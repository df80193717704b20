"""A session of a coding agent in words: for lists, and in full for a terminal."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.text import Text

from hubbub_client.data.coding_sessions import CodingSession
from hubbub_client.payload import as_list, as_object
from hubbub_frontend.display.records import local_datetime, relative_time
from hubbub_frontend.display.text import DetailText, line, styled_state
from hubbub_frontend.shell_commands import with_hub_options

NO_AGENTS: Final = "No coding agent is behind the hub. To add one:"
ADD: Final = "hubbub servers add coder --agent opencode"
MAX_STEPS: Final = 50
MARKS: Final[Mapping[str, str]] = {"completed": "✓", "in_progress": "▸", "failed": "✗"}
ORDER: Final[Mapping[str, int]] = {"waiting": 0, "working": 1}
"""Which sessions come first: those that wait for a person, then those that work, then the newest."""


def sort_sessions(sessions: Iterable[CodingSession]) -> list[CodingSession]:
    """Return sessions sorted: those that wait for a person, then those that work, then the others; the newest first."""

    def sort_key(session: CodingSession) -> tuple[int, float]:
        """Return the place of a session: by its state, then the newest first."""
        changed_at = session.updated_at or session.started_at
        return ORDER.get(session.state, 2), -changed_at.timestamp() if changed_at is not None else 0.0

    return sorted(sessions, key=sort_key)


def session_title(session: CodingSession) -> str:
    """Return the title of a session in one line."""
    return line(session.title) or "a session without a prompt"


def describe_end(session: CodingSession) -> str:
    """Return in words how the last turn ended, if it failed or ended early; else empty, also while a turn goes on."""
    if session.error:
        return line(session.error)
    if session.state in ("working", "waiting") or session.stop_reason in ("", "end_turn"):
        return ""
    return f"the turn ended: {line(session.stop_reason).replace('_', ' ')}"


def read_tool_failure(result: object) -> str:
    """Return the text of a failed result of an agent's tool; empty if the tool did not fail."""
    tool_result = as_object(result)
    if not tool_result.get("isError"):
        return ""
    texts = (as_object(each).get("text") for each in as_list(tool_result.get("content")))
    return line(next((each for each in texts if isinstance(each, str)), "it failed"), 1000)


def render_session(session: CodingSession, question: str = "") -> Text:
    """Render a session in full, for a terminal; `question` is the open request that it waits for, in a line."""
    page = DetailText().fact("state", styled_state(session.state)).fact("about", session_title(session))
    page.paragraph(describe_end(session), "red" if session.error else "yellow")
    if session.state == "waiting":
        page.heading("It waits for an answer").paragraph(question or line(session.waiting_for), "yellow")
        page.paragraph("press a to answer" if question else "", "dim")
    page.fact("agent", line(session.agent)).fact("server", line(session.server)).fact("folder", line(session.cwd))
    page.fact("started", local_datetime(session.started_at)).fact("changed", relative_time(session.updated_at))
    page.fact("turns", session.turns)
    if session.plan:
        page.heading("Plan")
    for entry in session.plan:
        style = {"completed": "dim", "in_progress": "bold"}.get(entry.status, "")
        page.paragraph(Text(f"{MARKS.get(entry.status, '·')} {line(entry.content)}", style=style))
    if session.text:
        page.heading("What it says").paragraph(session.text)
    if session.changed:
        page.heading("Files changed")
    for path in session.changed[:MAX_STEPS]:
        page.paragraph(line(path))
    _render_steps(page, session)
    return page.fact("\nid", line(session.id)).text


def _render_steps(page: DetailText, session: CodingSession) -> None:
    """Render what the agent did, the last first."""
    if session.tools:
        page.heading("What it did")
    for step in reversed(session.tools[-MAX_STEPS:]):
        mark = MARKS.get(step.status, "·")
        page.paragraph(Text(f"{mark} {line(step.title)}", style="red" if step.status == "failed" else ""))


def render_no_agents() -> Text:
    """Render how to add an agent, for a hub without agents."""
    return DetailText().paragraph(NO_AGENTS).paragraph(f"\n{with_hub_options(ADD)}\n", "bold").text


def session_json(session: CodingSession) -> dict[str, Any]:
    """Return a session as JSON for the web page, with its title and its end in words."""
    steps = [
        {"title": step.title, "kind": step.kind, "status": step.status, "paths": step.paths} for step in session.tools
    ]
    plan = [{"content": entry.content, "status": entry.status} for entry in session.plan]
    fields = {name: value for name, value in session.to_json().items() if name not in ("tools", "plan")}
    return fields | {"title": session_title(session), "end": describe_end(session), "tools": steps, "plan": plan}
