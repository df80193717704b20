"""The examples of docs/examples, each as its README says, with a real hub."""

import json
import re
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import nbformat
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from nbclient import NotebookClient
from playwright.async_api import Browser, expect

from hubbub_client import PendingRequest, Upsert

from ..web.conftest import browser
from .chat import TOKEN, chatting
from .conftest import LIMIT_S, RunningHub, child, environment

__all__ = ["browser"]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
NOTEBOOK = EXAMPLES / "notebook/hub.ipynb"
GATE = {"command": sys.executable, "args": [str(EXAMPLES / "deploy_gate/server.py")]}
FRAMEWORK_S = 300
"""The framework alone takes ten seconds of processor time to be imported."""
DEPLOY = {"service": "shop", "version": "1.4.2"}


@pytest.fixture
async def hub(start_hub: Callable[..., Any], mcp1_python: str) -> RunningHub:
    """A hub with the server of the first example and that of the demo, reachable in every way."""
    demo = {"command": mcp1_python, "args": [str(ROOT / "docs/demo/server.py")]}
    listening = {"connect_listen": "127.0.0.1:0", "mcp_listen": "127.0.0.1:0"}
    return await start_hub({"gate": GATE, "demo": demo}, hub=listening, connected=True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (("--accept", '{"approve": true, "reason": "Tested"}'), "shop 1.4.2 is deployed (Tested)"),
        (("--accept", '{"reason": "Tested"}'), "shop 1.4.2 is deployed (Tested)"),
        (
            ("--accept", '{"approve": false, "reason": "Too late today"}'),
            "shop stays as it is: not approved (Too late today)",
        ),
        (("--decline",), "shop stays as it is: nobody has approved (decline)"),
        (("--cancel",), "shop stays as it is: nobody has approved (cancel)"),
    ],
)
async def test_the_gate_deploys_only_what_a_person_approves(
    hub: RunningHub, answer: tuple[str, ...], said: str
) -> None:
    handle = await hub.client.start_tool("gate", "deploy", DEPLOY)
    (request,) = await hub.asked()
    assert request.request["message"] == "Deploy shop 1.4.2?"
    refused = await hub.hubbub("inbox", "answer", request.id, "--accept", '{"approve": true}')
    assert "reason: is required" in refused.error["message"]
    await hub.answer(request, *answer)
    assert (await handle.result()).text == said


@asynccontextmanager
async def bot(hub: RunningHub, chat_url: str) -> AsyncGenerator[Process]:
    """The bot at work, with a credential of its own."""
    made = (await hub.hubbub("tokens", "create", "chat-bot", "--role", "responder")).record
    reached = {"HUBBUB_ADDRESS": hub.ready["grpc"], "HUBBUB_TOKEN": made["secret"]}
    chat = {"CHAT_URL": chat_url, "CHAT_TOKEN": TOKEN, "CHAT_POLL_S": "0.05"}
    command = [sys.executable, str(EXAMPLES / "chat_bot/bot.py"), "C1"]
    async with child(command, env=environment() | reached | chat) as process:
        yield process


async def test_the_bot_takes_the_first_reply_that_is_an_answer(hub: RunningHub) -> None:
    with anyio.fail_after(LIMIT_S):
        async with chatting() as chat, bot(hub, chat.url):
            handle = await hub.client.start_tool("gate", "deploy", DEPLOY)
            asked = await chat.said("Deploy shop 1.4.2?")
            assert "JSON: `approve`, `reason`" in asked["text"]
            chat.write("sure, why not", asked["ts"])
            await chat.said("That is no answer")
            chat.away = 2
            chat.write('{"approve": true}', asked["ts"])
            await chat.said("reason")
            chat.write('{"approve": true, "reason": "Agreed in the chat"}', asked["ts"], user="bob")
            assert (await handle.result()).text == "shop 1.4.2 is deployed (Agreed in the chat)"
            await chat.said("Thank you, <@bob>.")
            haiku = await hub.client.start_tool("demo", "write_haiku")
            asked = await chat.said("wants a text")
            chat.write("An old silent pond", asked["ts"])
            assert (await haiku.result()).text.startswith("An old silent pond")
            lunch = await hub.client.start_tool("demo", "order_lunch")
            asked = await chat.said("What would you like for lunch?")
            chat.write("Decline", asked["ts"])
            assert (await lunch.result()).text == "No lunch: decline"
    answered = await hub.client.inbox.list(states=["answered"])
    assert {request.answered_by for request in answered} == {"chat-bot"}


@pytest.mark.parametrize(("reply", "said"), [("Yes ", "sure: True"), ("no", "sure: False")])
async def test_the_bot_takes_yes_or_no_and_shows_text_of_servers_as_it_is(
    start_hub: Callable[..., Any], peer_scripts: Path, reply: str, said: str
) -> None:
    hub = await start_hub(
        {"sure": {"command": sys.executable, "args": [str(peer_scripts / "choices_server.py")]}}, connected=True
    )
    with anyio.fail_after(LIMIT_S):
        async with chatting() as chat, bot(hub, chat.url):
            handle = await hub.client.start_tool("sure", "sure")
            asked = await chat.said("`yes` or `no`")
            assert "&lt;!channel&gt; Sure &amp; certain?" in asked["text"]
            chat.write("perhaps", asked["ts"])
            await chat.said("please write yes or no")
            chat.write(reply, asked["ts"])
            assert (await handle.result()).text == said


async def first_question(hub: RunningHub) -> PendingRequest:
    """Waits until a question is open, however long that takes."""
    async with aclosing(hub.client.inbox.watch(states=["open"])) as events:
        async for event in events:
            if isinstance(event, Upsert):
                return event.record
    raise AssertionError("the watch has ended")


async def test_an_agent_goes_on_once_a_person_has_answered(hub: RunningHub, hosts_python: str) -> None:
    made = (await hub.hubbub("tokens", "create", "my-agent", "--role", "caller")).record
    env = environment() | {"HUBBUB_MCP": hub.ready["mcp"], "TOKEN": made["secret"]}
    command = [hosts_python, str(EXAMPLES / "agent/agent.py"), "Deploy shop 1.4.2"]
    async with child(command, env=env, stdout=PIPE) as process:
        assert process.stdout is not None
        with anyio.fail_after(FRAMEWORK_S):
            request = await first_question(hub)
            await hub.answer(request, "--accept", '{"approve": true, "reason": "Tested"}')
            said = b"".join([piece async for piece in process.stdout])
            assert await process.wait() == 0
    assert said.decode().strip() == "The hub says: shop 1.4.2 is deployed (Tested)"


@pytest.fixture
async def page(installed_typescript: Path, free_port: int) -> AsyncIterator[str]:
    """The address of the page, as its own server prints it."""
    command = [str(installed_typescript / "node"), str(EXAMPLES / "page/serve.mjs"), str(free_port)]
    async with child([*command, str(installed_typescript)], stdout=PIPE) as process:
        assert process.stdout is not None
        with anyio.fail_after(LIMIT_S):
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1000)
        yield line.decode().strip()
        process.send_signal(signal.SIGTERM)


async def test_the_page_shows_what_waits_and_sends_the_answer(
    start_hub: Callable[..., Any], page: str, browser: Browser, peer_scripts: Path
) -> None:
    choices = {"command": sys.executable, "args": [str(peer_scripts / "choices_server.py")]}
    listening = {"connect_listen": "127.0.0.1:0", "connect_origins": [page]}
    hub = await start_hub({"gate": GATE, "choices": choices}, hub=listening, connected=True)
    handle = await hub.client.start_tool("gate", "deploy", DEPLOY)
    tab = await browser.new_page()
    try:
        await tab.goto(page)
        await tab.get_by_label("Address of the hub").fill(hub.ready["connect"])
        await tab.get_by_label("Token").fill("hbt_wrong")
        await tab.get_by_role("button", name="Connect").click()
        await expect(tab.get_by_role("status")).to_contain_text("unauthenticated")
        assert (await tab.request.get(f"{page}/%zz")).status == 404
        await tab.get_by_label("Token").fill(hub.token)
        await tab.get_by_role("button", name="Connect").click()
        await expect(tab.get_by_role("heading", name="Deploy shop 1.4.2?")).to_be_visible()
        await tab.get_by_label("Approve").check()
        await tab.get_by_label("Reason").fill("ok")
        await tab.get_by_role("button", name="Send").click()
        await expect(tab.get_by_role("alert")).to_contain_text("reason")
        await tab.get_by_label("Reason").fill("Seen on the page")
        await tab.get_by_role("button", name="Send").click()
        await expect(tab.get_by_role("status")).to_have_text("Nothing waits.")
        chosen = await hub.client.start_tool("choices", "size")
        await tab.get_by_role("button", name="Send").click()
        await expect(tab.get_by_role("alert")).to_contain_text("size")  # nothing is chosen for a person
        await tab.get_by_role("combobox").select_option("large")
        await tab.get_by_role("button", name="Send").click()
        assert (await chosen.result()).text == "size: large"
    finally:
        await tab.close()
    assert (await handle.result()).text == "shop 1.4.2 is deployed (Seen on the page)"


async def test_the_notebook_runs_from_its_first_cell_to_its_last(
    hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel is this Python."""
    monkeypatch.setenv("HUBBUB_DATA_DIR", str(hub.data_dir))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    await NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3").async_execute()
    shown = json.dumps([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    for text in ("What would you like for lunch?", "dish", "Ordered: 3 x spicy curry", "completed"):
        assert text in shown


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) > 4
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []


def test_each_example_is_in_the_list_and_has_a_test() -> None:
    listed = re.findall(r"\]\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    text = Path(__file__).read_text()
    assert [name for name in listed if f"{name}/" not in text] == []


async def test_two_agents_work_at_the_same_time_and_a_person_answers_both(
    start_hub: Callable[..., Any], tmp_path: Path
) -> None:
    agent = {
        "command": str(Path(sys.executable).with_name("hubbub")),
        "args": ["acp", "--", sys.executable, "-I", "-S", str(ROOT / "tests/peers/acp_agent.py")],
        "env": {"LANG": "C.UTF-8"},
    }
    hub: RunningHub = await start_hub({"writer": agent, "tester": agent}, connected=True)
    prompts = ("writer=edit notes.txt Rounded.\nsay Written.", "tester=run echo tested\nsay Tested.")
    reached = environment() | {"HUBBUB_DATA_DIR": str(hub.data_dir)}
    command = [sys.executable, str(EXAMPLES / "two_agents/agents.py"), str(tmp_path), *prompts]
    async with child(command, env=reached, stdout=PIPE) as process:
        with anyio.fail_after(LIMIT_S):
            for request in await hub.asked(2):
                await hub.answer(request, "decision=once")
            assert process.stdout is not None
            said = b"".join([part async for part in process.stdout]).decode()
    assert "writer: Written." in said
    assert f"writer changed {tmp_path / 'notes.txt'}" in said
    assert "tester: tested" in said
    assert "Tested." in said
    assert (tmp_path / "notes.txt").read_text().startswith("Rounded.")
