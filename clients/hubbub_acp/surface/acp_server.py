"""The MCP server that stands for an agent."""

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    InputRequiredResult,
    ListToolsResult,
    SetLevelRequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from hubbub_acp.agent.agent_process import ProcessStarter
from hubbub_acp.faults import AgentFault
from hubbub_acp.options import AcpOptions
from hubbub_acp.sessions.agent_sessions import AgentSessions
from hubbub_acp.sessions.session import AgentSession
from hubbub_acp.sessions.turn import Turn
from hubbub_acp.surface.resources import SessionResources
from hubbub_acp.surface.tool_list import list_tools, read_text
from hubbub_acp.surface.turn_calls import Context, follow_turn, make_fault_result, wait_for_round
from hubbub_acp.surface.turn_tasks import TurnTasks

INSTRUCTIONS = (
    "A coding agent. `start` gives it a prompt and a folder, `continue` goes on in a session. What it wants to do is "
    "asked as a form. The resource acp://sessions has the state of all sessions, acp://session/ID a transcript."
)


class AcpServer:
    """The server: `server` is the SDK's, `sessions` what it serves."""

    def __init__(self, options: AcpOptions, start_agent: ProcessStarter) -> None:
        self._options = options
        self.sessions = AgentSessions(options, start_agent, self._on_change)
        self.resources = SessionResources(self.sessions)
        self.tasks = TurnTasks(self.sessions, self._begin_turn)
        self.server: Server[Any] = Server(
            "hubbub-acp",
            version=options.version,
            title=options.name,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        self.resources.register(self.server)
        self.tasks.register(self.server)

    def make_introduction(self) -> InitializationOptions:
        """Return the server's name, version and capabilities for the handshake."""
        options = self.server.create_initialization_options(NotificationOptions(resources_changed=True))
        self.tasks.declare(options.capabilities)
        return options

    def _on_change(self, session: AgentSession | None) -> None:
        """Notify the subscribers of resources of a changed session, or of the changed list of sessions (None)."""
        self.resources.note_change(session)

    async def _set_level(self, context: Context, params: SetLevelRequestParams) -> EmptyResult:
        """Accept any level: all lines of the log have the same one."""
        return EmptyResult()

    async def _list_tools(self, context: Context, params: Any) -> ListToolsResult:
        """Return the tools of the agent."""
        return ListToolsResult(tools=list_tools(self._options.name))

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> Any:
        """Call a tool; a fault is the result of a call that failed."""
        try:
            return await self._serve_call(context, params)
        except AgentFault as fault:
            return make_fault_result(fault)

    async def _serve_call(self, context: Context, params: CallToolRequestParams) -> Any:
        """Call a tool by its name. Raises AgentFault."""
        arguments = params.arguments or {}
        if params.name == "sessions":
            states = self.sessions.list_states()
            lines = [f"{each['id']}  {each['state']}  {each['cwd']}  {each['title']}" for each in states]
            return _make_text_result("\n".join(lines) or "There are no sessions.", {"sessions": states})
        if params.name == "cancel":
            session_id = read_text(arguments, "session")
            was_working = await self.sessions.cancel(session_id)
            text = "The turn is cancelled." if was_working else "The session has no turn under way."
            return _make_text_result(text, {"session": session_id, "cancelled": was_working})
        if params.name not in ("start", "continue"):
            raise AgentFault(
                "TOOL_UNKNOWN", f"there is no tool {params.name[:100]!r}: start, continue, sessions, cancel"
            )
        return await self._serve_turn(context, params)

    async def _serve_turn(self, context: Context, params: CallToolRequestParams) -> Any:
        """Begin a turn, and return its result, its task, or its questions, as the host's revision of MCP has them."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            turn = await self._begin_turn(params.name, params.arguments or {})
            return await follow_turn(turn, context, lambda: self.tasks.cancel_later(turn))
        if self.tasks.has_extension(context):
            return self.tasks.make_task_result(await self._begin_turn(params.name, params.arguments or {}))
        return await self._serve_round(context, params)

    async def _serve_round(
        self, context: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Begin a turn, or answer its questions, and return its result or its next questions; from 2026-07-28 on."""
        if params.request_state is None:
            turn = await self._begin_turn(params.name, params.arguments or {})
        else:
            turn = self.tasks.find(params.request_state)
            for key, answer in (params.input_responses or {}).items():
                turn.answer(key, answer.model_dump(mode="json", by_alias=True, exclude_none=True))
            await asyncio.sleep(0)  # lets `Turn.ask` take what was answered off the open questions
        try:
            return await wait_for_round(turn, context)
        except asyncio.CancelledError:
            self.tasks.cancel_later(turn)
            raise

    async def _begin_turn(self, tool: str, arguments: Mapping[str, Any]) -> Turn:
        """Begin the turn of a call of `start` or `continue`, and return it. Raises AgentFault."""
        prompt = read_text(arguments, "prompt")
        if tool == "continue":
            return await self.sessions.continue_(read_text(arguments, "session"), prompt)
        mode, model = (read_text(arguments, name, optional=True) or None for name in ("mode", "model"))
        return await self.sessions.start(prompt, read_text(arguments, "cwd"), mode, model)


def _make_text_result(text: str, structured: dict[str, Any]) -> CallToolResult:
    """Return the result of a tool: text, and the same as an object."""
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)
