"""Calls that ask: made and answered by the command line in a container, or by a host on this machine."""

import time
from collections.abc import Sequence
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent

from .compose import POLL_S, Compose
from .report import StepFailed, expect

ANSWER_S = 60
DISH = ("--accept", '{"dish": "soup", "portions": 2}')
"""In a form that earlier versions know, too."""
ORDERED = "Ordered: 2 x soup"


def start_call(compose: Compose, service: str, server: str) -> str:
    """Make a call that asks; its id."""
    return compose.hubbub(service, "call", server, "order_lunch", "--detach")[0]["id"]


def find_question(compose: Compose, service: str, call: str) -> str:
    """Wait for the question of a call; its id."""
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        for each in compose.hubbub(service, "inbox", "list"):
            if each["call_id"] == call and each["state"] == "open":
                return each["id"]
        time.sleep(POLL_S)
    raise StepFailed(f"{service}: no question of the call {call} after {ANSWER_S} s")


def wait_result(compose: Compose, service: str, call: str) -> str:
    """Wait for a call's result; its text."""
    deadline = time.monotonic() + ANSWER_S
    state = "unknown"
    while time.monotonic() < deadline:
        found = {each["id"]: each for each in compose.hubbub(service, "calls", "list")}
        state = found[call]["state"] if call in found else "not found"
        if state == "completed":
            return found[call]["result"]["content"][0]["text"]
        time.sleep(POLL_S)
    raise StepFailed(f"{service}: the call {call} is {state} after {ANSWER_S} s")


def ask_and_answer(compose: Compose, service: str, server: str, answered_at: str = "") -> str:
    """Make a call, answer its question at this or another service, and check its result; the call's id."""
    call = start_call(compose, service, server)
    there = answered_at or service
    compose.hubbub(there, "inbox", "answer", find_question(compose, there, call), *DISH)
    text = wait_result(compose, service, call)
    expect(text == ORDERED, f"the call returned {text!r}")
    return call


def answer_as_host(command: Sequence[str]) -> str:
    """Be a host over stdio: list the tools, call one, answer its question; what is said of it."""

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"dish": "soup", "portions": 2})

    async def talk() -> str:
        transport = stdio_client(StdioServerParameters(command=command[0], args=list(command[1:])))
        with anyio.fail_after(ANSWER_S):
            async with Client(transport, elicitation_callback=answer) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                (name,) = (each for each in names if each.endswith("order_lunch"))
                (block,) = (await client.call_tool(name, {})).content
                expect(isinstance(block, TextContent) and block.text == ORDERED, f"the tool returned {block}")
                return f"{len(names)} tools, {client.protocol_version}"

    return anyio.run(talk)
