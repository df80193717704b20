"""A session of an agent: its updates applied, and its state as frontends get it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from hubbub_acp.plain_text import TextTail, make_line, shorten, strip_escapes
from hubbub_acp.sessions.tool_calls import ToolCalls, ToolCallView
from hubbub_acp.sessions.transcript import EVENT, PROMPT, SPEECH, THOUGHT, Transcript
from hubbub_acp.sessions.turn import Turn
from hubbub_acp.values import as_object

TEXT_BYTES: Final = 64 * 1024
"""The most bytes of the text of a turn; its end is kept."""

LISTED_CHARACTERS: Final = 500
"""The most characters of that text in a list of sessions."""

TITLE_CHARACTERS: Final = 200
MAX_PLAN: Final = 100
PLAN_CHARACTERS: Final = 500
MAX_WARNINGS: Final = 20
ERROR_CHARACTERS: Final = 4000


History = tuple[Transcript, ToolCalls, list[dict[str, str]], TextTail]
"""The history of a session: the transcript, the tool calls, the plan, and the text of the last turn."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """How an agent introduces itself; before it is started, as it was configured."""

    name: str
    title: str
    version: str

    def to_wire(self) -> dict[str, str]:
        """Return the agent as JSON, for the state of a session."""
        return {"name": self.name, "title": self.title, "version": self.version}


class AgentSession:
    """A session. `home` is the connection to the agent's process that has it; None if no process has.

    `interrupted` is the id of the turn that an earlier process did not end, "" if there is none. `is_lost`: the agent
    could not load it into another process. `is_loading`: the agent loads it, and sends its history again.
    """

    def __init__(self, session_id: str, cwd: str, agent: AgentInfo, started_at: str) -> None:
        """Make a session without a turn, which no process of the agent has yet."""
        self.id = session_id
        self.cwd = cwd
        self.agent = agent
        self.title = ""
        self.started_at = started_at
        self.updated_at = started_at
        self.turns = 0
        self.home: object | None = None
        self.turn: Turn | None = None
        self.interrupted = ""
        self.is_lost = False
        self.is_loading = False
        self.stop_reason: str | None = None
        self.error: str | None = None
        self.plan: list[dict[str, str]] = []
        self.calls = ToolCalls()
        self.text = TextTail(TEXT_BYTES)
        self.transcript = Transcript()
        self.warnings: list[str] = []
        self._is_amid_speech = False  # the last update was a piece of what the agent says

    def begin_turn(self, prompt: str, at: str) -> None:
        """Set the state to that of a new turn with this prompt."""
        self.turns += 1
        self.interrupted = ""
        self.updated_at = at
        self.title = self.title or make_line(prompt, TITLE_CHARACTERS)
        self.stop_reason = self.error = None
        self.plan = []
        self.text = TextTail(TEXT_BYTES)
        self.calls.forget_changed()
        self.warnings = []
        self._is_amid_speech = False
        self.transcript.add(PROMPT, prompt)

    def end_turn(self, at: str, *, stop_reason: str | None = None, error: str | None = None) -> None:
        """Set how the turn ended; add it to the transcript, unless it has the usual stop reason of ACP, `end_turn`."""
        self.updated_at = at
        self.stop_reason = stop_reason
        self.error = None if error is None else shorten(strip_escapes(error), ERROR_CHARACTERS)
        if self.error:
            self.transcript.add(EVENT, f"*The turn failed: {self.error}*")
        elif stop_reason != "end_turn":
            self.transcript.add(EVENT, f"*The turn ended: {stop_reason}*")

    def warn(self, text: str) -> None:
        """Add a warning to the result of the turn and to the transcript, unless there are MAX_WARNINGS already."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)
            self.transcript.add(EVENT, f"*{text}*")

    def add_event(self, text: str) -> None:
        """Add an event to the transcript."""
        self.transcript.add(EVENT, text)

    def forget_history(self) -> History:
        """Clear the history, since the agent is about to send it again; return it for `restore_history`."""
        history = (self.transcript, self.calls, self.plan, self.text)
        self.restore_history((Transcript(), ToolCalls(), [], TextTail(TEXT_BYTES)))
        return history

    def restore_history(self, history: History) -> None:
        """Set the history to what `forget_history` returned, when the agent did not send it again."""
        self.transcript, self.calls, self.plan, self.text = history

    def apply_update(self, update: Mapping[str, Any], at: str) -> str | None:
        """Apply an update of the agent; return a line to report as progress, None if there is none."""
        self.updated_at = at
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._add_speech(_block_text(update.get("content")))
            case "agent_thought_chunk":
                self.transcript.add(THOUGHT, _block_text(update.get("content")))
            case "user_message_chunk":  # only the history of a loaded session has these
                self.transcript.add(PROMPT, _block_text(update.get("content")))
            case "tool_call" | "tool_call_update":
                return self._apply_tool_call(update, at)
            case "plan":
                return self._apply_plan(update.get("entries"))
            case "session_info_update":
                self.title = make_line(update.get("title"), TITLE_CHARACTERS) or self.title
            case _:  # modes, commands, usage, and what later versions have
                pass
        return None

    def _add_speech(self, text: str) -> None:
        """Add what the agent says to the text of the turn and to the transcript."""
        if not text:
            return
        if not self._is_amid_speech and not self.text.is_empty:
            text = f"\n\n{text}"  # speech after a tool call is a paragraph of its own
        self._is_amid_speech = True
        self.text.append(text)
        self.transcript.add(SPEECH, text)

    def _apply_tool_call(self, update: Mapping[str, Any], at: str) -> str | None:
        """Apply an update of a tool call; return a line about it if its title or status has changed."""
        previous = None
        call = self.calls.find(update)
        if call is not None:
            previous = (call.title, call.status)
        call = self.calls.update(update, at)
        if call is None or previous == (call.title, call.status):
            return None
        self._is_amid_speech = False
        line = describe_call(call)
        self.transcript.add(EVENT, f"- {line}")
        return line

    def _apply_plan(self, raw_entries: object) -> str | None:
        """Set the plan; return a line about it if it has changed."""
        entries = cast("list[Any]", raw_entries)[:MAX_PLAN] if isinstance(raw_entries, list) else []
        plan = [
            {
                "content": make_line(entry.get("content"), PLAN_CHARACTERS),
                "status": make_line(entry.get("status"), 50) or "pending",
                "priority": make_line(entry.get("priority"), 50) or "medium",
            }
            for entry in (cast("dict[str, Any]", each) for each in entries if isinstance(each, dict))
        ]
        if plan == self.plan:
            return None
        self.plan = plan
        done = sum(entry["status"] == "completed" for entry in plan)
        current = next((entry["content"] for entry in plan if entry["status"] == "in_progress"), "")
        return f"Plan: {done} of {len(plan)} done{f'; now {current}' if current else ''}"

    @property
    def state(self) -> str:
        """`working`, `waiting` for people, `idle`, or `lost`: no process has it, and none can load it."""
        if self.turn is not None:
            return "waiting" if self.turn.questions else "working"
        return "lost" if self.is_lost else "idle"

    def to_wire(self, *, is_listed: bool = False) -> dict[str, Any]:
        """Return the state of the session as JSON; with `is_listed`, only the last LISTED_CHARACTERS of its text."""
        text = self.text.read()
        question = next(iter(self.turn.questions.values()), None) if self.turn is not None else None
        return {
            "id": self.id,
            "agent": self.agent.to_wire(),
            "cwd": self.cwd,
            "title": self.title,
            "state": self.state,
            "startedAt": self.started_at,
            "updatedAt": self.updated_at,
            "turns": self.turns,
            "plan": self.plan,
            "tools": self.calls.to_wire(),
            "waiting": question.to_wire() if question is not None else None,
            "text": text[-LISTED_CHARACTERS:] if is_listed else text,
            "changed": list(self.calls.changed),
            "stopReason": self.stop_reason,
            "error": self.error,
        }

    def make_result(self) -> dict[str, Any]:
        """Return the structured result of the session's last turn."""
        result: dict[str, Any] = {
            "session": self.id,
            "stopReason": self.stop_reason,
            "text": self.text.read(),
            "changed": list(self.calls.changed),
            "plan": self.plan,
        }
        return result | ({"warnings": self.warnings} if self.warnings else {})


def describe_call(call: ToolCallView) -> str:
    """Return the title and the status of a tool call, in a line."""
    return f"{call.title or call.kind}: {call.status.replace('_', ' ')}"


def _block_text(content: object) -> str:
    """Return the text of a content block; for a block without text, its type and its link in square brackets."""
    block = as_object(content)
    text = block.get("text")
    if isinstance(text, str):
        return text
    kind = make_line(block.get("type"), 50)
    link = make_line(block.get("uri"), 500)
    return f"[{kind}{f': {link}' if link else ''}]" if kind else ""
