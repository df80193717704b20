"""A coding agent that does what its prompt says. ACP version 1 over stdio, standard library only.

    acp_agent.py [--login] [--store DIR] [--modes] [--models] [--http] [--name NAME]
                 [--ends TEXT | --silent | --babbles]

Each line of a prompt is a step:

    say | think | title TEXT            plan A; B; C (the first is done, the second under way)
    edit PATH TEXT     asks, with a diff, and then writes the file (`\\n` ends a line); `quietly edit` asks nobody
    run COMMAND        asks, and then runs it           twice          asks two questions at once, says both outcomes
    ask JSON           asks with these options; then says which outcome came back
    raw JSON           sends this message as it is      line TEXT      writes this line as it is
    broken TEXT        writes this line, and says what comes back for its id, which is 1
    flood N            N chunks of text                 babble N       N updates of a tool call
    huge BYTES         asks with a diff of so many bytes               escapes        escape sequences in text and title
    foreign            sends an update, and asks, for a session that does not exist
    read PATH | write PATH TEXT | terminal COMMAND      asks its client to do it, and says what came back
    after PATH METHOD JSON   asks its client once the file exists, turn or no turn; what came back is in PATH.reply
    wait PATH          until the file exists            hang           until it is cancelled
    deaf               for ever, and does not heed being cancelled     die CODE       ends, with a last word on stderr
    spawn PATH         starts a child that goes on, and writes its process id to the file
    show               says which MCP servers, mode and model the session has, and what its client offers
    fail TEXT          ends the turn with an error      stop REASON    ends the turn with this reason

`--store` keeps sessions, so that another process can load them; without it the agent cannot load any. `--login` asks
for a log-in until `authenticate` names the method `key`. The last three say how it begins instead of answering.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

POLL_S = 0.01
OPTIONS = [
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
MODES = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]
MODELS = [{"modelId": "small", "name": "Small"}, {"modelId": "large", "name": "Large"}]


class Reply:
    """The response to a request of this agent."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.message: dict[str, Any] = {}


class Wire:
    """Lines for the client, whole whichever thread writes them; and requests that wait for its responses."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._lock = threading.Lock()
        self.waiting: dict[int, Reply] = {}
        self._last_id = 0

    def ask(self, method: str, params: dict[str, Any]) -> Reply:
        reply = Reply()
        with self._lock:
            self._last_id += 1
            request_id = self._last_id
            self.waiting[request_id] = reply
        self.send({"id": request_id, "method": method, "params": params})
        return reply

    def take_response(self, message: dict[str, Any]) -> None:
        reply = self.waiting.pop(message.get("id", 0), None)
        if reply is not None:
            reply.message = message
            reply.came.set()

    def notify(self, session_id: str, update: dict[str, Any]) -> None:
        self.send({"method": "session/update", "params": {"sessionId": session_id, "update": update}})

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}))

    def write(self, line: str) -> None:
        with self._lock:
            self._output.write(f"{line}\n")
            self._output.flush()


class Session:
    """A session; `history` has the updates that are sent again when it is loaded."""

    def __init__(self, session_id: str, cwd: str, servers: list[Any]) -> None:
        self.id = session_id
        self.cwd = cwd
        self.servers = servers
        self.mode = "ask"
        self.model = "small"
        self.cancelled = threading.Event()
        self.history: list[dict[str, Any]] = []
        self.calls = 0


class Cancelled(Exception): ...


class Failed(Exception): ...


class Agent:
    """The agent: `serve` reads; each turn has a thread of its own."""

    def __init__(self, options: argparse.Namespace, wire: Wire) -> None:
        self.options = options
        self.wire = wire
        self.sessions: dict[str, Session] = {}
        self.logged_in = not options.login
        self.offers: dict[str, Any] = {}

    def serve(self, message: dict[str, Any]) -> None:
        """React to a message."""
        if "method" not in message:
            self.wire.take_response(message)
            return
        params = message.get("params") or {}
        if message["method"] == "session/cancel":
            session = self.sessions.get(params["sessionId"])
            if session is not None:
                session.cancelled.set()
            return
        try:
            result = self.answer(message, params)
        except Failed as exc:
            self.wire.send({"id": message["id"], "error": exc.args[0]})
            return
        if result is not None:
            self.wire.send({"id": message["id"], "result": result})

    def answer(self, message: dict[str, Any], params: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a request; None if it comes later."""
        match message["method"]:
            case "initialize":
                self.offers = params["clientCapabilities"]
                return self.introduce()
            case "authenticate":
                if params["methodId"] != "key":
                    raise Failed({"code": -32602, "message": "no such method"})
                self.logged_in = True
                return {}
            case "session/new" | "session/load" if not self.logged_in:
                raise Failed({"code": -32000, "message": "Authentication required"})
            case "session/new":
                session = Session(f"s-{os.getpid()}-{len(self.sessions) + 1}", params["cwd"], params["mcpServers"])
                self.sessions[session.id] = session
                return {"sessionId": session.id, **self.choices(session)}
            case "session/load":
                return self.load(params)
            case "session/set_mode" | "session/set_model":
                what = message["method"].removeprefix("session/set_")
                setattr(self.sessions[params["sessionId"]], what, params[f"{what}Id"])
                return {}
            case "session/prompt":
                session = self.sessions[params["sessionId"]]
                session.cancelled.clear()
                threading.Thread(target=self.turn, args=(message["id"], session, params), daemon=True).start()
                return None
            case _:
                raise Failed({"code": -32601, "message": "Method not found"})

    def introduce(self) -> dict[str, Any]:
        methods = [
            {"id": "key", "name": "API key", "description": "Set TEST_AGENT_KEY"},
            {"id": "browser", "name": "Browser"},
        ]
        name = self.options.name
        can = {"loadSession": bool(self.options.store), "mcpCapabilities": {"http": self.options.http}}
        return {
            "protocolVersion": 1,
            "agentInfo": {"name": name, "title": name.title(), "version": "1.0"},
            "agentCapabilities": can,
            "authMethods": methods if self.options.login else [],
        }

    def choices(self, session: Session) -> dict[str, Any]:
        modes = {"modes": {"currentModeId": session.mode, "availableModes": MODES}}
        models = {"models": {"currentModelId": session.model, "availableModels": MODELS}}
        return (modes if self.options.modes else {}) | (models if self.options.models else {})

    def load(self, params: dict[str, Any]) -> dict[str, Any]:
        file = Path(self.options.store or "/nonexistent") / f"{params['sessionId']}.json"
        if not file.is_file():
            raise Failed({"code": -32002, "message": "Resource not found"})
        session = Session(params["sessionId"], params["cwd"], params["mcpServers"])
        session.history = json.loads(file.read_text())
        self.sessions[session.id] = session
        for update in session.history:
            self.wire.notify(session.id, update)
        return self.choices(session)

    def turn(self, request_id: Any, session: Session, params: dict[str, Any]) -> None:
        """Take the steps of a prompt, and respond."""
        text = "".join(block.get("text", "") for block in params["prompt"])
        session.history.append({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}})
        result: dict[str, Any] = {"result": {"stopReason": "end_turn"}}
        try:
            for line in text.splitlines():
                word, _, rest = line.strip().partition(" ")
                if word == "stop":
                    result = {"result": {"stopReason": rest}}
                elif word:
                    Steps(self, session).take(word, rest)
        except Cancelled:
            result = {"result": {"stopReason": "cancelled"}}
        except Failed as exc:
            result = {"error": {"code": -32603, "message": str(exc)}}
        if self.options.store:
            (Path(self.options.store) / f"{session.id}.json").write_text(json.dumps(session.history))
        self.wire.send({"id": request_id, **result})


class Steps:
    """The steps that a prompt can have."""

    def __init__(self, agent: Agent, session: Session) -> None:
        self.agent = agent
        self.session = session
        self.wire = agent.wire

    def take(self, word: str, rest: str) -> None:
        getattr(self, f"do_{word}", self.do_say)(rest)

    def update(self, **update: Any) -> None:
        self.session.history.append(update)
        self.wire.notify(self.session.id, update)

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request of this session, and return the response. Raises Cancelled."""
        reply = self.wire.ask(method, {"sessionId": self.session.id, **params})
        return self.await_reply(reply)

    def await_reply(self, reply: Reply) -> dict[str, Any]:
        while not reply.came.wait(POLL_S) and not self.session.cancelled.is_set():
            pass
        if self.session.cancelled.is_set():
            raise Cancelled
        return reply.message

    def begin_call(self, **more: Any) -> str:
        self.session.calls += 1
        call_id = f"call-{self.session.calls}"
        self.update(sessionUpdate="tool_call", toolCallId=call_id, status="pending", **more)
        return call_id

    def end_call(self, call_id: str, status: str) -> None:
        self.update(sessionUpdate="tool_call_update", toolCallId=call_id, status=status)

    def permitted(self, call_id: str, tool_call: dict[str, Any], options: list[Any] = OPTIONS) -> dict[str, Any]:
        asked = {"toolCall": {"toolCallId": call_id, **tool_call}, "options": options}
        message = self.request("session/request_permission", asked)
        return message["result"]["outcome"] if "result" in message else message["error"]

    def allowed(self, call_id: str, **tool_call: Any) -> bool:
        allowed = self.permitted(call_id, tool_call).get("optionId") in ("once", "always")
        if not allowed:
            self.end_call(call_id, "failed")
        return allowed

    def do_say(self, text: str) -> None:
        self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def do_think(self, text: str) -> None:
        self.update(sessionUpdate="agent_thought_chunk", content={"type": "text", "text": text})

    def do_title(self, text: str) -> None:
        self.update(sessionUpdate="session_info_update", title=text)

    def do_plan(self, rest: str) -> None:
        statuses = ["completed", "in_progress"]
        entries = [
            {"content": part.strip(), "priority": "medium", "status": (statuses[at:] or ["pending"])[0]}
            for at, part in enumerate(rest.split(";"))
        ]
        self.update(sessionUpdate="plan", entries=entries)

    def do_edit(self, rest: str, *, quietly: bool = False) -> None:
        name, _, text = rest.replace("\\n", "\n").partition(" ")
        path = Path(self.session.cwd) / name
        old = path.read_text() if path.is_file() else None
        content = [{"type": "diff", "path": str(path), "oldText": old, "newText": text}]
        call: dict[str, Any] = {
            "title": f"Edit {name}",
            "kind": "edit",
            "content": content,
            "locations": [{"path": str(path)}],
            "rawInput": {"path": str(path)},
        }
        call_id = self.begin_call(**call)
        if quietly or self.allowed(call_id, **call):
            path.write_text(text)
            self.end_call(call_id, "completed")

    def do_quietly(self, rest: str) -> None:
        self.do_edit(rest.partition(" ")[2], quietly=True)

    def do_run(self, command: str) -> None:
        call: dict[str, Any] = {"title": f"`{command}`", "kind": "execute", "rawInput": {"command": command}}
        call_id = self.begin_call(**call)
        if self.allowed(call_id, **call):
            done = subprocess.run(command, shell=True, cwd=self.session.cwd, capture_output=True, text=True)
            self.do_say(done.stdout)
            self.end_call(call_id, "completed" if done.returncode == 0 else "failed")

    def do_ask(self, options: str) -> None:
        call_id = self.begin_call(title="Something", kind="other")
        self.do_say(json.dumps(self.permitted(call_id, {"title": "Something"}, json.loads(options or "[]"))))

    def do_twice(self, _: str) -> None:
        params = {"sessionId": self.session.id, "options": OPTIONS}
        replies = [
            self.wire.ask(
                "session/request_permission", {**params, "toolCall": {"toolCallId": f"both-{name}", "title": name}}
            )
            for name in ("one", "two")
        ]
        self.do_say(json.dumps([self.await_reply(reply)["result"]["outcome"] for reply in replies]))

    def do_raw(self, message: str) -> None:
        self.wire.send(json.loads(message.replace("SESSION", self.session.id)))

    def do_line(self, text: str) -> None:
        self.wire.write(text)

    def do_broken(self, text: str) -> None:
        reply = self.wire.waiting.setdefault(1, Reply())
        self.wire.write(text)
        self.tell(self.await_reply(reply))

    def do_flood(self, count: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * 50}}
        params = {"sessionId": self.session.id, "update": update}
        line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params})
        for _ in range(int(count) // 100):
            self.wire.write("\n".join([line] * 100))

    def do_babble(self, count: str) -> None:
        for number in range(int(count)):
            self.update(sessionUpdate="tool_call_update", toolCallId=f"b-{number}", title="t" * 1000)

    def do_huge(self, count: str) -> None:
        content = [{"type": "diff", "path": "/huge", "oldText": None, "newText": "y" * int(count)}]
        call_id = self.begin_call(title="Huge", kind="edit")
        self.do_say(json.dumps(self.permitted(call_id, {"title": "Huge", "kind": "edit", "content": content})))

    def do_foreign(self, _: str) -> None:
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "foreign"}}
        self.wire.notify("nobody", chunk)
        asked = {"sessionId": "nobody", "toolCall": {"toolCallId": "f", "title": "Foreign"}, "options": OPTIONS}
        self.tell(self.await_reply(self.wire.ask("session/request_permission", asked)))

    def do_escapes(self, _: str) -> None:
        self.begin_call(title="\x1b]0;owned\x07title\x1b[2J", kind="other")
        self.do_say("\x1b[31mred\x1b[0m \x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\ \x9b2Jend\x1b")

    def do_read(self, path: str) -> None:
        self.tell(self.request("fs/read_text_file", {"path": self.whole(path)}))

    def do_write(self, rest: str) -> None:
        path, _, text = rest.partition(" ")
        self.tell(self.request("fs/write_text_file", {"path": self.whole(path), "content": text}))

    def do_terminal(self, command: str) -> None:
        created = self.request("terminal/create", {"command": "/bin/sh", "args": ["-c", command]})
        if "error" in created:
            self.tell(created)
            return
        terminal = {"terminalId": created["result"]["terminalId"]}
        ended = self.request("terminal/wait_for_exit", terminal)
        output = self.request("terminal/output", terminal)
        self.request("terminal/release", terminal)
        self.do_say(json.dumps([ended.get("result", ended), output.get("result", output)]))

    def whole(self, path: str) -> str:
        return path if path.startswith("/") else str(Path(self.session.cwd) / path)

    def tell(self, message: dict[str, Any]) -> None:
        self.do_say(json.dumps(message.get("result", message.get("error"))))

    def do_wait(self, path: str) -> None:
        while not (Path(self.session.cwd) / path).exists():
            if self.session.cancelled.wait(POLL_S):
                raise Cancelled

    def do_after(self, rest: str) -> None:
        path, method, params = rest.split(" ", 2)

        def ask() -> None:
            self.do_wait(path)
            reply = self.request(method, json.loads(params))
            (Path(self.session.cwd) / f"{path}.reply").write_text(json.dumps(reply.get("result", reply.get("error"))))

        threading.Thread(target=ask, daemon=True).start()

    def do_hang(self, _: str) -> None:
        self.session.cancelled.wait()
        raise Cancelled

    def do_deaf(self, _: str) -> None:
        threading.Event().wait()

    def do_die(self, code: str) -> None:
        print("the last word", file=sys.stderr, flush=True)
        os._exit(int(code or "0"))

    def do_spawn(self, path: str) -> None:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
        (Path(self.session.cwd) / path).write_text(str(child.pid))

    def do_show(self, _: str) -> None:
        session = self.session
        shown = {"servers": session.servers, "mode": session.mode, "model": session.model, "client": self.agent.offers}
        self.do_say(json.dumps(shown))

    def do_fail(self, text: str) -> None:
        raise Failed(text)


def serve(words: list[str], source: TextIO, output: TextIO) -> None:
    """Be the agent that these arguments say, until the source ends."""
    parser = argparse.ArgumentParser()
    for flag in ("--login", "--modes", "--models", "--http", "--silent", "--babbles"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--store")
    parser.add_argument("--name", default="scripted")
    parser.add_argument("--ends")
    options = parser.parse_args(words)
    if options.ends is not None:
        sys.stderr.write(f"{options.ends}\n")
        return
    agent = Agent(options, Wire(output))
    if options.babbles:
        agent.wire.write("this is no JSON\n[1, 2]\n\x00\x01")
    for line in source:
        if not (options.silent or options.babbles):
            agent.serve(json.loads(line))


if __name__ == "__main__":
    serve(sys.argv[1:], sys.stdin, sys.stdout)
