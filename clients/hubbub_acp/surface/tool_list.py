"""The tools of the server, as they are listed, and their arguments, as they come."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import Tool, ToolAnnotations, ToolExecution

from hubbub_acp.faults import AgentFault

PLAN: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"content": {"type": "string"}, "status": {"type": "string"}, "priority": {"type": "string"}},
    },
}

RESULT: Final = {
    "type": "object",
    "properties": {
        "session": {"type": "string", "description": "for `continue`, `cancel` and the resource acp://session/ID"},
        "stopReason": {"type": "string", "description": "end_turn, cancelled, refusal, max_tokens, ..."},
        "text": {"type": "string", "description": "what the agent said"},
        "changed": {"type": "array", "items": {"type": "string"}, "description": "paths of files it changed"},
        "plan": PLAN,
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["stopReason"],
}

SESSION: Final = {"type": "string", "description": "The session's id, as `start` and `sessions` say it."}
PROMPT: Final = {"type": "string", "description": "What the agent is to do."}


def list_tools(agent: str) -> list[Tool]:
    """Return the tools; `agent` is the agent's name for people."""
    return [
        Tool(
            name="start",
            title=f"Start {agent}",
            description=f"Has the coding agent {agent} work on a prompt in a folder, in a new session, until its turn "
            "ends. It may take long: call it as a task where you can. What the agent wants to do is asked meanwhile.",
            input_schema=_object_schema(
                {
                    "prompt": PROMPT,
                    "cwd": {"type": "string", "description": "The folder to work in, an absolute path."},
                    "mode": {"type": "string", "description": "The id of one of the agent's modes."},
                    "model": {"type": "string", "description": "The id of one of the agent's models."},
                },
                "prompt",
                "cwd",
            ),
            output_schema=RESULT,
            execution=ToolExecution(task_support="optional"),
            annotations=ToolAnnotations(destructive_hint=True, open_world_hint=True),
        ),
        Tool(
            name="continue",
            title=f"Continue with {agent}",
            description=f"Goes on in a session of {agent} with a further prompt, until its turn ends.",
            input_schema=_object_schema({"session": SESSION, "prompt": PROMPT}, "session", "prompt"),
            output_schema=RESULT,
            execution=ToolExecution(task_support="optional"),
            annotations=ToolAnnotations(destructive_hint=True, open_world_hint=True),
        ),
        Tool(
            name="sessions",
            title=f"Sessions of {agent}",
            description="Lists the sessions with their state: working, waiting for an answer, idle, or lost.",
            input_schema=_object_schema({}),
            annotations=ToolAnnotations(read_only_hint=True),
        ),
        Tool(
            name="cancel",
            title=f"Cancel {agent}",
            description="Cancels the turn of a session. The session stays.",
            input_schema=_object_schema({"session": SESSION}, "session"),
            annotations=ToolAnnotations(destructive_hint=False, idempotent_hint=True),
        ),
    ]


def read_text(arguments: Mapping[str, Any], name: str, *, optional: bool = False) -> str:
    """Return an argument that is a text; "" for an optional one that is not there. Raises AgentFault."""
    value = arguments.get(name)
    if value is None and optional:
        return ""
    if not isinstance(value, str):
        kind = "is missing" if value is None else "is no text"
        raise AgentFault("ARGUMENT_INVALID", f"the argument {name!r} {kind}: it is a text")
    return value


def _object_schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}
