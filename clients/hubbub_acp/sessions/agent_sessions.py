"""All sessions of the agent: begins, continues, cancels and finds them, and applies the agent's updates to them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from hubbub_acp.agent.agent_client import AgentClient
from hubbub_acp.agent.agent_process import ProcessStarter
from hubbub_acp.agent.agent_requests import AgentRequests
from hubbub_acp.faults import AgentFault
from hubbub_acp.log import log
from hubbub_acp.options import AcpOptions
from hubbub_acp.plain_text import make_line
from hubbub_acp.sessions.opening import check_prompt, find_folder, make_mcp_servers, open_session, select_choices
from hubbub_acp.sessions.permissions import CANCELLED, make_form, name_decision, read_options
from hubbub_acp.sessions.session import AgentInfo, AgentSession
from hubbub_acp.sessions.session_file import SessionFile
from hubbub_acp.sessions.times import now
from hubbub_acp.sessions.tool_calls import RETAINED_CHARACTERS, estimate_size
from hubbub_acp.sessions.turn import Turn, TurnQuestion
from hubbub_acp.values import as_object

MAX_TURNS: Final = 50
"""The most turns at one time."""

MAX_SESSIONS: Final = 200
"""The most sessions without a turn that are remembered; the ones that changed longest ago are forgotten."""

MAX_ENDED_TURNS: Final = 200
"""The most ended turns that are remembered, so that a caller can still look one up."""

CANCEL_LIMIT_S: Final = 10.0
"""Seconds for an agent to end a turn that was cancelled; then its process is ended."""

MAX_EARLY: Final = 200
"""The most updates that are kept for sessions whose ids the agent has not returned yet."""

SessionOpener = Callable[[AgentClient], Awaitable[AgentSession]]


class AgentSessions:
    """The sessions. `on_change` is called with a session that changed; None: the list of sessions."""

    def __init__(
        self, options: AcpOptions, start_agent: ProcessStarter, on_change: Callable[[AgentSession | None], None]
    ) -> None:
        """Know of no sessions yet; the agent is started with the first turn."""
        self._options = options
        self._start_agent = start_agent
        self._on_change = on_change
        self._file = SessionFile(options.records, options.name, options.command)
        self._sessions: dict[str, AgentSession] = {}
        self.turns: dict[str, Turn] = {}
        self.interrupted: dict[str, str] = {}  # session ids by the turns that an earlier process did not end
        self._client: AgentClient | None = None  # gets the new turns
        self._clients: set[AgentClient] = set()  # all that have not ended
        self._requests = AgentRequests(self, options.root)
        self._launch_task: asyncio.Task[AgentClient] | None = None
        self._launch_waiters = 0
        self._opening = 0  # new sessions whose ids the agent has not returned yet
        self._early_updates: list[tuple[str, Mapping[str, Any]]] = []  # their updates, each with its session's id
        self._unknown_updates = 0  # updates of unknown sessions: only the first is logged
        self._tasks: set[asyncio.Task[Any]] = set()  # run in the background; `close` waits for them
        self._is_closing = False

    async def load_records(self) -> None:
        """Add the sessions that earlier processes stored: `idle`, and loaded by the agent when they are continued."""
        agent = AgentInfo(self._options.name, self._options.name, "")
        for stored in await asyncio.to_thread(self._file.read):
            session = AgentSession(stored.id, stored.cwd, agent, stored.started_at)
            session.title, session.turns, session.updated_at = stored.title, stored.turns, stored.updated_at
            if stored.turn:
                self.interrupted[stored.turn] = stored.id
                session.interrupted = stored.turn
                session.error = "the turn was interrupted: its process ended"
            self._sessions[stored.id] = session

    def list_sessions(self) -> list[AgentSession]:
        """Return the sessions, the one that changed last first."""
        return sorted(self._sessions.values(), key=lambda each: each.updated_at, reverse=True)

    def list_states(self) -> list[dict[str, Any]]:
        """Return the states of the sessions as they are listed, in the same order."""
        return [session.to_wire(is_listed=True) for session in self.list_sessions()]

    def get(self, session_id: str) -> AgentSession:
        """Return a session. Raises AgentFault: SESSION_UNKNOWN."""
        session = self._sessions.get(session_id)
        if session is None:
            short_id = make_line(session_id, 100)
            raise AgentFault("SESSION_UNKNOWN", f"there is no session {short_id!r}: `sessions` lists those there are")
        return session

    async def start(self, prompt: str, cwd: str, mode: str | None, model: str | None) -> Turn:
        """Begin a session with a turn; return the turn. Raises AgentFault, such as PROMPT_INVALID, FOLDER_INVALID."""
        check_prompt(prompt)
        self._check_capacity()
        folder = await asyncio.to_thread(find_folder, cwd, self._options.root)

        async def open_new(client: AgentClient) -> AgentSession:
            """Open the session at the agent, add it, and set its mode and model; if that fails, remove it again."""
            self._opening += 1
            try:
                session_id, answer = await open_session(client, folder, self._mcp_servers)
                if session_id in self._sessions and self._sessions[session_id].turn is not None:
                    raise AgentFault("AGENT_REFUSED", f"{client.info.title} gave out the id of a session under way")
                session = AgentSession(session_id, folder, client.info, now())
                session.home = client
                self._add_session(session)
            finally:
                self._opening -= 1
                if not self._opening:
                    self._early_updates.clear()
            try:
                await self._select_choices(client, session, answer, mode, model)
            except BaseException:  # no caller is to continue a session in a mode that nobody requested
                del self._sessions[session.id]
                self._on_change(session)
                raise
            return session

        return self._begin_turn(open_new, prompt)

    async def continue_(self, session_id: str, prompt: str) -> Turn:
        """Begin a turn in a session; return the turn. Raises AgentFault, for example SESSION_UNKNOWN, SESSION_BUSY."""
        check_prompt(prompt)
        self._check_capacity()
        session = self.get(session_id)
        if session.turn is not None:
            doing = "waits for an answer" if session.turn.questions else "is working"
            raise AgentFault(
                "SESSION_BUSY", f"session {session_id} {doing}: wait for the end of its turn, or `cancel` it first"
            )
        await asyncio.to_thread(find_folder, session.cwd, self._options.root)
        if session.turn is not None:  # another call was first
            raise AgentFault("SESSION_BUSY", f"session {session_id} is working: wait for the end of its turn")

        async def open_existing(client: AgentClient) -> AgentSession:
            """Return the session; have this process of the agent load it first if another one had it."""
            if session.home is not client:
                await self._load_session(client, session)
            return session

        return self._begin_turn(open_existing, prompt, session)

    async def cancel(self, session_id: str) -> bool:
        """Cancel the turn of a session; return whether there was one. Raises AgentFault: SESSION_UNKNOWN."""
        turn = self.get(session_id).turn
        if turn is None:
            return False
        await self.cancel_turn(turn)
        return True

    async def cancel_turn(self, turn: Turn) -> None:
        """Cancel a turn and wait for its end. An agent that goes on after CANCEL_LIMIT_S gets no more turns."""
        if turn.has_ended:
            return
        is_first = not turn.is_cancelled
        turn.is_cancelled = True
        session = self._sessions.get(turn.session_id)
        client = session.home if session is not None else None
        if not turn.is_prompted or session is None or not isinstance(client, AgentClient):
            if turn.task is not None:
                turn.task.cancel()
            await turn.wait_for_end()
            return
        if is_first:  # the agent gets this before the outcomes of its questions, so that it does not go on
            await client.notify("session/cancel", {"sessionId": session.id})
            turn.drop_questions()
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_LIMIT_S):
                await turn.wait_for_end()
        if not turn.has_ended and turn.task is not None:
            client.is_retiring = True
            session.warn(
                f"{client.info.title} did not end the turn within {CANCEL_LIMIT_S:g} s of its being cancelled, "
                "so its process is ended once its other turns have ended"
            )
            turn.task.cancel()
            await turn.wait_for_end()

    async def close(self) -> None:
        """End all turns and all processes of the agent; wait until the sessions are saved. Bounded."""
        self._is_closing = True
        for turn in list(self.turns.values()):
            if turn.task is not None:
                turn.task.cancel()
        closing = (*(client.close() for client in self._clients), self._requests.close())
        await asyncio.gather(*closing, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._file.wait_until_saved()

    def apply_update(self, session_id: str, update: Mapping[str, Any]) -> None:
        """Apply an update to its session. One of an unknown session is kept while a session is opened, else dropped."""
        session = self._sessions.get(session_id)
        if session is None or session.home is None:
            if self._opening and len(self._early_updates) < MAX_EARLY and estimate_size(update) <= RETAINED_CHARACTERS:
                self._early_updates.append((session_id, update))
                return
            self._unknown_updates += 1
            if self._unknown_updates == 1:
                log(f"hubbub acp: the agent sent an update of an unknown session: {make_line(session_id, 100)}")
            return
        line = session.apply_update(update, now())
        if line is not None and session.turn is not None and not session.is_loading:
            session.turn.report(line)
        self._on_change(session)

    def _warn_of_loss(self, is_refused: bool) -> None:
        """Warn in each turn under way of a message that was not read; `is_refused` says that it was a request."""
        text = "A message of the agent was too long to be read. If it waits for an answer now, cancel the turn"
        if is_refused:
            text = "A request of the agent was too long, or no JSON, so it was refused"
        for session in self._sessions.values():
            if session.turn is not None:
                session.warn(text)
                session.turn.report(text)
                self._on_change(session)

    async def ask_permission(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask people for a permission; return the outcome: CANCELLED outside of a turn, and without options."""
        session = self._sessions.get(str(params.get("sessionId")))
        if session is None or session.turn is None:
            log(f"hubbub acp: the agent asked outside of a turn: {make_line(params.get('sessionId'), 100)}")
            return CANCELLED
        options = read_options(params.get("options"))
        tool_call = session.calls.complete_request(as_object(params.get("toolCall")))
        if not options:
            title = make_line(tool_call.get("title"), 200) or "a tool call"
            session.warn(f"{session.agent.title} asked about {title} and offered no choice, so it was cancelled")
            return CANCELLED
        form = make_form(session.id, session.cwd, session.agent.title, tool_call, options)
        question = TurnQuestion(form, now())
        asking = asyncio.ensure_future(session.turn.ask(question))
        self._on_change(session)
        decision = "no longer asked by the agent"
        try:
            outcome = await asking
            decision = name_decision(options, outcome)
            return outcome
        finally:
            if question.problem:
                session.warn(f"Nobody could be asked about {form.title}: {question.problem}")
            session.add_event(f"- Asked: {form.title}. Decided: {decision}")
            self._on_change(session)

    def get_active_folder(self, session_id: str) -> str:
        """Return the folder of a session that has a turn under way. Raises AgentFault for another session."""
        session = self._sessions.get(session_id)
        if session is None or session.turn is None:
            raise AgentFault("NOT_FOUND", "the session has no turn under way")
        return session.cwd

    def add_written_file(self, session_id: str, path: str) -> None:
        """Add a file that the agent has written to the changed files of its session."""
        self._sessions[session_id].calls.add_changed(path)

    def _check_capacity(self) -> None:
        """Raise AgentFault if no further turn can begin."""
        if self._is_closing:
            raise AgentFault("AGENT_ENDED", "the connection ends: call again")
        if sum(not turn.has_ended for turn in self.turns.values()) >= MAX_TURNS:
            raise AgentFault("TOO_MANY_TURNS", f"{MAX_TURNS} turns are under way: wait until one has ended")

    def remember_turn(self, turn: Turn) -> None:
        """Keep a turn, to be found by its id; of the ended turns, forget the oldest beyond MAX_ENDED_TURNS."""
        self.turns[turn.id] = turn
        ended = [each.id for each in self.turns.values() if each.has_ended]
        for turn_id in ended[: max(0, len(ended) - MAX_ENDED_TURNS)]:
            del self.turns[turn_id]

    def _begin_turn(self, opener: SessionOpener, prompt: str, session: AgentSession | None = None) -> Turn:
        """Begin a turn in the background, in `session` or a new one; `opener` opens it. Raises AgentFault."""
        self._check_capacity()  # again: others may have begun turns while the folder was looked for
        turn = Turn()
        if session is not None:
            turn.session_id, session.turn = session.id, turn
        self.remember_turn(turn)
        turn.task = asyncio.create_task(self._run_turn(turn, opener, prompt))
        self._tasks.add(turn.task)
        turn.task.add_done_callback(self._tasks.discard)
        return turn

    async def _run_turn(self, turn: Turn, opener: SessionOpener, prompt: str) -> None:
        """Open the session, send the prompt, wait for the response, and end the turn with its reason or its fault."""
        client: AgentClient | None = None
        reason, fault = None, None
        try:
            client = await self._find_client(self._sessions.get(turn.session_id))
            client.turns += 1
            session = await opener(client)
            turn.session_id, session.turn = session.id, turn
            session.begin_turn(prompt, now())
            self._report_change(session)
            turn.is_prompted = True
            blocks = [{"type": "text", "text": prompt}]
            answer = await client.request("session/prompt", {"sessionId": session.id, "prompt": blocks}, None)
            reason = make_line(as_object(answer).get("stopReason"), 50) or "unknown"
        except AgentFault as exc:
            fault = exc
        except asyncio.CancelledError:
            if turn.is_cancelled:
                reason = "cancelled"
            else:
                fault = AgentFault("AGENT_ENDED", "the connection ended in the middle of the turn")
        except Exception as exc:  # noqa: BLE001 - a waiting caller is to learn that the turn has ended
            fault = AgentFault("INTERNAL", f"the bridge failed, please report it: {exc!r}")
        self._finish_turn(turn, client, reason, fault)

    def _finish_turn(
        self, turn: Turn, client: AgentClient | None, reason: str | None, fault: AgentFault | None
    ) -> None:
        """End a turn, and its session's turn, with a stop reason or a fault; end an agent that gets no more turns."""
        session = self._sessions.get(turn.session_id)
        if session is not None:
            session.turn = None
            self._requests.end_turn(session.id)
            # A signal that ends this program may end the agent first: such a turn was interrupted as well.
            was_cut_off = self._is_closing or (fault is not None and fault.code == "AGENT_ENDED")
            session.interrupted = turn.id if was_cut_off else ""
            if turn.is_prompted or fault is not None:
                session.end_turn(now(), stop_reason=reason, error=fault.message if fault else None)
            if fault is not None:
                fault.details.setdefault("session", session.id)
            if turn.is_cancelled and client is not None and client.is_retiring:
                session.home = None  # the agent may go on: another process is to load the session
        result = None if fault else session.make_result() if session is not None else {"stopReason": reason}
        turn.end(result=result, fault=fault)
        if client is not None:
            client.turns -= 1
            self._end_unused_client(client)
        if session is not None:
            self._report_change(session)

    def _end_unused_client(self, client: AgentClient) -> None:
        """End an agent that has no turns and is to get no more; its sessions are lost if it cannot load sessions."""
        if client.turns or not (client.is_retiring or not client.is_alive):
            return
        for session in self._sessions.values():
            if session.home is client:
                session.home = None
                session.is_lost = session.is_lost or not client.can_load
                self._on_change(session)
        ending = asyncio.create_task(client.close())
        self._tasks.add(ending)
        ending.add_done_callback(self._tasks.discard)
        ending.add_done_callback(lambda _: self._clients.discard(client))

    async def _find_client(self, session: AgentSession | None) -> AgentClient:
        """Return the client whose process has the session, else the one for new turns; start one if there is none."""
        home = session.home if session is not None else None
        if isinstance(home, AgentClient) and home.is_alive and not home.is_retiring:
            return home
        if self._client is None or not self._client.is_alive or self._client.is_retiring:
            if self._client is not None:
                self._end_unused_client(self._client)
            return await self._join_launch()
        return self._client

    async def _join_launch(self) -> AgentClient:
        """Start the agent once for all turns that wait; return its client. Cancel the start once no turn waits."""
        if self._launch_task is None or self._launch_task.done():
            self._launch_task = asyncio.create_task(self._launch_client())
            self._tasks.add(self._launch_task)
            self._launch_task.add_done_callback(self._tasks.discard)
        launch = self._launch_task
        self._launch_waiters += 1
        try:
            return await asyncio.shield(launch)
        finally:
            self._launch_waiters -= 1
            if not self._launch_waiters:
                launch.cancel()
                self._launch_task = None  # a cancelled launch may take long to end: a further turn starts another

    async def _launch_client(self) -> AgentClient:
        """Start the agent, and make it the one for new turns. Raises AgentFault."""
        client = await AgentClient.launch(
            self._options, self._start_agent, self._requests.handle, self.apply_update, self._warn_of_loss
        )
        self._clients.add(client)
        self._client = client
        return client

    async def _load_session(self, client: AgentClient, session: AgentSession) -> None:
        """Have the agent load a session that another process had, and set its mode. Raises AgentFault: SESSION_LOST."""
        method = "session/load" if client.has_capability("loadSession") else "session/resume"
        params = {"sessionId": session.id, "cwd": session.cwd, "mcpServers": self._mcp_servers}
        previous_home, session.home = session.home, client
        history = session.forget_history() if method == "session/load" else None
        session.agent = client.info
        session.is_loading = True
        try:
            if not client.can_load:
                raise AgentFault("AGENT_REFUSED", f"{client.info.title} cannot load sessions")
            answer = as_object(await client.request(method, params))
        except BaseException as exc:
            session.home = previous_home
            if history is not None:
                session.restore_history(history)
            if not isinstance(exc, AgentFault) or exc.code != "AGENT_REFUSED":
                raise
            session.is_lost = True
            raise AgentFault(
                "SESSION_LOST",
                f"session {session.id} was in a process of the agent that has ended, and {exc.message}: begin another "
                "one with `start`, and say in its prompt what is done",
            ) from None
        finally:
            session.is_loading = False
        session.is_lost = False
        try:
            await self._select_choices(client, session, answer)
        except BaseException:  # the next turn loads it again, since its mode may not be the one asked for
            session.home = None
            raise

    async def _select_choices(
        self,
        client: AgentClient,
        session: AgentSession,
        answer: Mapping[str, Any],
        mode: str | None = None,
        model: str | None = None,
    ) -> None:
        """Set a session to the mode and the model of the call, else to those of the command line."""
        await select_choices(client, session.id, answer, mode or self._options.mode, model or self._options.model)

    @property
    def _mcp_servers(self) -> list[dict[str, Any]]:
        """The MCP servers that each session of the agent gets: the hub, or none."""
        return make_mcp_servers(self._options.tools_command)

    def _add_session(self, session: AgentSession) -> None:
        """Add a session, apply the updates that came before its id was known, and forget the oldest idle ones."""
        self._sessions[session.id] = session
        for update in [update for session_id, update in self._early_updates if session_id == session.id]:
            self.apply_update(session.id, update)
        idle = [each for each in self.list_sessions() if each.turn is None and each is not session]
        for each in idle[MAX_SESSIONS:]:
            del self._sessions[each.id]

    def _report_change(self, session: AgentSession) -> None:
        """Report that a session has changed, and the list of sessions with it; save the sessions in the background."""
        self._on_change(session)
        self._on_change(None)
        self._file.write_soon(self._sessions)
