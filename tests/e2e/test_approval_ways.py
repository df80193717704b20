"""The same approvals by each way for programs: as they are, with other arguments, remembered, and denied."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .conftest import RunningHub

RULES = [{"name": "echoes", "tools": ["echo"], "remember": ["1h"]}]
OTHER = {"text": "changed"}

Answer = Callable[[RunningHub, Any, str], Awaitable[None]]
"""Gives one of the answers to a pending request: approve, change, remember or deny."""


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path) -> RunningHub:
    """A hub with a rule, a server that echoes, and Connect."""
    plain = {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}
    return await start_shared_hub(
        {"plain": plain}, hub={"connect_listen": "127.0.0.1:0"}, approvals={"rules": RULES}, connected=True
    )


async def by_library(hub: RunningHub, request: Any, answer: str) -> None:
    match answer:
        case "approve":
            await request.approve()
        case "change":
            await request.approve(OTHER)
        case "remember":
            await request.approve(remember_s=3600)
        case _:
            await request.deny("not today")


async def by_connect(hub: RunningHub, request: Any, answer: str) -> None:
    """As JSON over HTTP, with what the record says of itself."""
    async with httpx2.AsyncClient(base_url=hub.ready["connect"], trust_env=False) as http:

        async def post(method: str, body: dict[str, Any]) -> Any:
            headers = {"authorization": f"Bearer {hub.token}"}
            response = await http.post(f"/hubbub.v1.InboxService/{method}", json=body, headers=headers)
            assert response.status_code == 200, response.text
            return response.json()["pendingRequest"]

        asked = await post("GetPendingRequest", {"id": request.id})
        assert asked["kind"] == "PENDING_REQUEST_KIND_APPROVAL"
        assert asked["request"]["tool"]["name"] == "echo"
        digest = asked["argumentsDigest"]
        answers: dict[str, Any] = {
            "approve": {"approve": {"digest": digest}},
            "change": {"approve": {"arguments": OTHER, "digest": digest}},
            "remember": {"approve": {"remember": "3600s", "digest": digest}},
            "deny": {"deny": {"reason": "not today"}},
        }
        answered = await post("AnswerPendingRequest", {"id": request.id, **answers[answer]})
        assert answered["state"] == "PENDING_REQUEST_STATE_ANSWERED"


@pytest.mark.parametrize("way", [by_library, by_connect])
async def test_a_program_approves_changes_remembers_and_denies(hub: RunningHub, way: Answer) -> None:
    async def call(answer: str) -> Any:
        started = await hub.client.calls.start("plain", "tools/call", {"name": "echo", "arguments": {"text": answer}})
        (asked,) = await hub.asked(call_id=started.id)
        await way(hub, asked, answer)
        return await hub.call(started.id)

    def said(ended: Any) -> str:
        return ended.result["content"][0]["text"]

    approved = await call("approve")
    assert (said(approved), approved.approval.approved_by, approved.approval.changed_arguments) == (
        "approve",
        ("local",),
        None,
    )
    changed = await call("change")
    assert (said(changed), changed.params["arguments"], changed.approval.changed_arguments) == (
        "changed",
        {"text": "change"},
        OTHER,
    )
    denied = await call("deny")
    assert (denied.state, denied.error.code) == ("failed", "APPROVAL_DENIED")
    assert "not today" in denied.error.message
    assert said(await call("remember")) == "remember"
    (remembered,) = await hub.client.approvals.list()
    again = await hub.client.call_tool("plain", "echo", {"text": "again"})
    assert again.text == "again"
    await hub.client.approvals.revoke(remembered.id)
    assert (await hub.client.approvals.check("plain", "echo", {"text": "again"})).action == "ask"
