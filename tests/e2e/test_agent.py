"""`hubbub agent` beside a real hub: rules, programs, a model behind HTTP; and what it leaves to people."""

import json
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from .conftest import BIN, LIMIT_S, POLL_S, RunningHub, child, environment

ROOT = Path(__file__).parents[2]


class Model(ThreadingHTTPServer):
    """Answers chat completions, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Completions)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.status = 200
        self.message: dict[str, Any] = {"role": "assistant", "content": "An old silent pond"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Completions(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.keys.append(self.headers["authorization"])
        choice = {"message": self.server.message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 30, "completion_tokens": 12}
        body = json.dumps({"choices": [choice], "model": "small-1", "usage": usage}).encode()
        self.send_response(self.server.status if self.path == "/v1/chat/completions" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        thread = threading.Thread(target=model.serve_forever, args=(0.02,))
        thread.start()
        yield model
        model.shutdown()
        thread.join()


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path, mcp1_python: str) -> RunningHub:
    crowd = [str(peer_scripts / "crowd_server.py"), "crowd"]
    return await start_shared_hub(
        {
            "crowd": {"command": sys.executable, "args": ["-S", *crowd], "max_in_flight": 8},
            "demo": {"command": mcp1_python, "args": [str(ROOT / "docs/demo/server.py")], "max_in_flight": 8},
        },
        approvals={"rules": [{"name": "tips", "tools": ["tip_*"], "action": "ask"}]},
        connected=True,
    )


class RunningAgent:
    """A process of `hubbub agent`, with its audit."""

    def __init__(self, hub: RunningHub, directory: Path, stack: AsyncExitStack) -> None:
        self._hub = hub
        self._stack = stack
        self._audit = directory / "audit"
        self.rules = directory / "rules.toml"
        self.process: Process

    async def start(self, rules: str, *words: str, **variables: str) -> None:
        self.rules.write_text(rules)
        options = ["--rules", str(self.rules), "--audit", str(self._audit), *words]
        command = [str(BIN / "hubbub"), "--data-dir", str(self._hub.data_dir), "--as", "robot", "agent", *options]
        env = environment() | variables
        self.process = await self._stack.enter_async_context(child(command, stderr=PIPE, env=env, cwd=ROOT))

    async def outcome(self, request_id: str) -> Any:
        """The audit's line about a request, once it is there."""
        with anyio.fail_after(LIMIT_S):
            while True:
                for line in self.audit():
                    if line["request"] == request_id:
                        return line
                await anyio.sleep(POLL_S)

    def audit(self) -> list[Any]:
        return [json.loads(line) for line in self._audit.read_text().splitlines()] if self._audit.exists() else []

    async def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Tells it to end; its exit status and all that it said on stderr."""
        self.process.send_signal(number)
        return await self.end_of_itself()

    async def end_of_itself(self) -> tuple[int, str]:
        """As `end`, without telling it."""
        assert self.process.stderr is not None
        said = b""
        with anyio.fail_after(LIMIT_S):
            async for chunk in self.process.stderr:
                said += chunk
            return await self.process.wait(), said.decode()


@pytest.fixture
async def agent(hub: RunningHub, tmp_path: Path) -> AsyncIterator[RunningAgent]:
    async with AsyncExitStack() as stack:
        yield RunningAgent(hub, tmp_path, stack)
    for request in await hub.client.inbox.list(states=["open"]):  # what the test has left belongs to nobody else
        with anyio.fail_after(LIMIT_S):
            await hub.request(request.id, claim=None)
        match request.kind:
            case "sampling":
                await request.reject("no")
            case "approval":
                await request.deny()
            case _:
                await request.decline()


async def ask(hub: RunningHub, count: int = 1) -> list[Any]:
    """Has the crowd ask; the requests by their number. The third is a sampling."""
    await hub.client.start_tool("crowd", "ask", {"count": count})
    asked = await hub.asked(count, server="crowd")
    return sorted(asked, key=lambda r: re.findall(r"question \d+", json.dumps(r.request)))


def tool_text(call: Any) -> str:
    return str(call.result["content"][0]["text"])


async def test_the_rules_of_the_documentation_answer_the_demo(
    hub: RunningHub, agent: RunningAgent, model: Model
) -> None:
    blocks = re.findall(r"^```toml agent\n(.*?)^```$", (ROOT / "docs/agents.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    rules = (
        "\n".join(blocks).replace("http://127.0.0.1:11434/v1", model.url).replace('"python3"', f'"{sys.executable}"')
    )
    await agent.start(rules)
    said = {}
    for tool in ("order_lunch", "plan_trip", "write_haiku"):
        call = await hub.client.start_tool("demo", tool)
        said[tool] = tool_text(await hub.call(call.id, "completed"))
    assert said["order_lunch"] == "Ordered: 1 x soup"
    assert said["plan_trip"] == "2 nights in Graz"
    assert said["write_haiku"] == "An old silent pond\n-- small-1"
    assert model.asked[0]["model"] == "small"
    assert model.asked[0]["messages"][-1] == {"role": "user", "content": "Write a haiku about waiting."}
    await hub.client.start_tool("demo", "sign_up")
    (page,) = await hub.asked(1, server="demo")
    assert page.claim is None
    status, _ = await agent.end()
    assert status == 0
    by_rule = {line["rule"]: line for line in agent.audit()}
    assert {line["outcome"] for line in by_rule.values()} == {"answered"}
    haiku = by_rule["haiku"]
    assert haiku["tokens"] == {"input": 30, "output": 12}
    assert haiku["cost"] == pytest.approx(33e-6)
    assert all(line["answer_id"].startswith("agent_") for line in by_rule.values())


async def test_a_dry_run_says_what_it_would_do_and_touches_nothing(hub: RunningHub, agent: RunningAgent) -> None:
    asked = await ask(hub, 3)
    rules = '[[rule]]\nsays = "question [01]"\naccept = {answer = "x"}\n[[rule]]\nkind = "sampling"\nleave = true\n'
    await agent.start(rules, "--dry-run", "--once")
    assert (await agent.end_of_itself())[0] == 0
    outcomes = {line["request"]: (line["outcome"], line.get("action")) for line in agent.audit()}
    would = ("would", {"accept": {"answer": "x"}})
    assert outcomes == {asked[0].id: would, asked[1].id: would}
    for request in asked:
        now = await hub.client.inbox.get(request.id)
        assert (now.state, now.claim) == ("open", None)


async def test_one_round_by_options_answers_what_is_open_and_ends(hub: RunningHub) -> None:
    asked = await ask(hub, 2)
    ran = await hub.hubbub("--as", "robot", "agent", "--decline", "--server", "cr*", "--once")
    assert ran.status == 0
    assert [json.loads(line)["outcome"] for line in ran.err.splitlines()] == ["answered"] * 2
    for request in asked:
        assert (await hub.client.inbox.get(request.id)).answered_by == "robot"


PROGRAMS = [
    ("exit 3", "status 3"),
    ("echo maybe", "no JSON"),
    ("echo '{\"perhaps\": 1}'", "exactly one"),
    ('echo \'{"accept": {"answer": 7}}\'', "INVALID"),
    ("head -c 5000000 /dev/zero", "more than"),
    ("sleep 100 & sleep 100", "longer than"),
]


TIPS = """
[[rule]]
kind = "approval"
tool = "tip_*"
values = { amount = { max = 10 } }
approve = true

[[rule]]
tool = "tip_*"
values = { amount = { min = 100 } }
deny = "That is too much"
"""


async def test_calls_are_approved_and_denied_by_rules_and_others_left_to_people(
    hub: RunningHub, agent: RunningAgent
) -> None:
    await agent.start(TIPS)
    small, large, other = [await hub.client.start_tool("demo", "tip_kitchen", {"amount": n}) for n in (5, 500, 50)]
    ended = await hub.call(small.id)
    assert (tool_text(ended), ended.approval.approved_by) == ("Tipped 5", ("robot",))
    error = (await hub.call(large.id)).error
    assert (error.code, "That is too much" in error.message) == ("APPROVAL_DENIED", True)
    (request,) = await hub.client.inbox.list(call_id=other.id)
    assert (await agent.outcome(request.id))["outcome"] == "left"
    assert (await hub.client.inbox.get(request.id)).state == "open"


async def test_a_program_that_gives_no_answer_leaves_the_request_to_people(
    hub: RunningHub, agent: RunningAgent
) -> None:
    asked = await ask(hub, len(PROGRAMS))
    rules = [
        f'[[rule]]\nsays = "question {number}"\ncommand = {json.dumps(["sh", "-c", program])}\n'
        + ("timeout_s = 0.5\n" if program.startswith("sleep") else "")
        for number, (program, _) in enumerate(PROGRAMS)
    ]
    await agent.start("\n".join(rules))
    for request, (program, why) in zip(asked, PROGRAMS, strict=True):
        line = await agent.outcome(request.id)
        assert line["outcome"] == "failed", program
        assert why in line["why"]
        await hub.request(request.id, state="open", claim=None)
    assert (await agent.end())[0] == 0


async def test_a_model_that_fails_leaves_or_rejects_as_its_rule_says(
    hub: RunningHub, agent: RunningAgent, model: Model
) -> None:
    model.status = 500
    *_, sampling = await ask(hub, 3)
    chat = f'[chat.m]\nbase_url = "{model.url}"\nmodel = "small"\napi_key_env = "MODEL_KEY"\n'
    await agent.start(f'[[rule]]\nchat = "m"\non_error = "reject"\n{chat}', MODEL_KEY="secret")
    line = await agent.outcome(sampling.id)
    assert (line["outcome"], line["answer"]) == ("answered", "reject")
    assert "error" in (await hub.request(sampling.id, state="answered")).answer
    status, said = await agent.end()
    assert status == 0
    assert model.keys == ["Bearer secret"] * 3
    assert "500" in said
    assert "secret" not in said + json.dumps(agent.audit())


async def test_over_a_limit_requests_are_left_to_people_and_it_says_so_once(
    hub: RunningHub, agent: RunningAgent
) -> None:
    asked = await ask(hub, 5)
    rules = '[limits]\nanswers_per_minute = 1\n[[rule]]\naccept = {answer = "x"}\n[[rule]]\ntext = "x"\n'
    await agent.start(rules)
    lines = [await agent.outcome(request.id) for request in asked]
    assert sorted(line["outcome"] for line in lines) == ["answered", *["left"] * 4]
    assert {line.get("why") for line in lines if line["outcome"] == "left"} == {"answers_per_minute"}
    status, said = await agent.end(signal.SIGINT)
    assert status == 0
    assert said.count("answers_per_minute is reached") == 1


async def test_an_agent_that_is_told_to_end_finishes_what_it_is_at(
    hub: RunningHub, agent: RunningAgent, tmp_path: Path
) -> None:
    (request,) = await ask(hub)
    begun, go = tmp_path / "begun", tmp_path / "go"
    wait = f"touch {begun}; until [ -e {go} ]; do sleep 0.02; done; echo '{{\"decline\": true}}'"
    # With room for one, it is given no other one before it has heard that it is to end.
    await agent.start(f"capacity = 1\n[[rule]]\ncommand = {json.dumps(['sh', '-c', wait])}\n")
    with anyio.fail_after(LIMIT_S):
        while not begun.exists():
            await anyio.sleep(POLL_S)
    agent.process.send_signal(signal.SIGTERM)
    await hub.client.start_tool("crowd", "ask", {"count": 1})
    watch = hub.client.inbox.watch(server="crowd", states=["open"])
    (later,) = await hub.watched(watch, lambda r: r.id != request.id and r.claim is None)
    go.touch()
    assert (await agent.end_of_itself())[0] == 0
    assert (await agent.outcome(request.id))["outcome"] == "answered"
    assert (await hub.client.inbox.get(later.id)).state == "open"


async def test_a_model_fills_in_a_form_and_what_it_used_counts_after_a_kill(
    hub: RunningHub, agent: RunningAgent, model: Model, tmp_path: Path
) -> None:
    first, second, *_ = await ask(hub, 3)
    reply = {"action": "accept", "content": {"answer": "x"}, "why": "it is asked often"}
    model.message = {"role": "assistant", "content": json.dumps(reply)}
    # One request takes 42 tokens, and reserves more than a thousand: a second one of that size does not fit any more.
    rules = (
        "[limits]\ntokens_per_day = 2000\nrequests_per_day = 1\n"
        '[[rule]]\nname = "forms"\nkind = "elicitation_form"\nsays = "question 0"\nchat = "m"\n'
        '[[rule]]\nsays = "question 1"\nescalate = "only people know"\n'
        f'[chat.m]\nbase_url = "{model.url}"\nmodel = "small"\nmax_tokens = 100\ninput_price = 1000\n'
    )
    usage = tmp_path / "usage.json"
    await agent.start(rules, "--usage", str(usage))
    line = await agent.outcome(first.id)
    assert (line["outcome"], line["rule"], line["answer"]) == ("answered", "forms", "accept")
    assert (line["why"], line["tokens"], line["model"]) == ("it is asked often", {"input": 30, "output": 12}, "small-1")
    assert line["cost"] == pytest.approx(0.03)
    assert (await hub.request(first.id, state="answered")).answer["content"] == {"answer": "x"}
    note = await agent.outcome(second.id)
    assert (note["outcome"], note["why"]) == ("left", "only people know")
    _, said = await agent.end(signal.SIGKILL)
    assert f"{second.id} of crowd is for people: only people know" in said
    assert usage.stat().st_mode & 0o777 == 0o600
    await hub.client.start_tool("crowd", "ask", {"count": 1})
    asked = await hub.asked(3, server="crowd")  # the two that were left, and this one
    (again,) = [each for each in asked if "question 0" in json.dumps(each.request)]
    await agent.start(rules, "--usage", str(usage))
    line = await agent.outcome(again.id)
    assert (line["outcome"], line["why"]) == ("left", "requests_per_day")
    status, said = await agent.end()
    assert status == 0
    assert "requests_per_day is reached (1 of 1 used): for at most a day, people answer" in said
    assert len(model.asked) == 1
