"""Who is asked, what a waiting person holds up (nothing), and how many answers there are (one)."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub_client import FailedPrecondition

RIVALS = 50


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(request: pytest.FixtureRequest, start_shared_hub: Any, peer_scripts: Path, reached: Any) -> Any:
    """A hub with a server that asks in the middle of a call; it has one slot."""
    server = reached(request.param, sys.executable, str(peer_scripts / "asking_server.py"))
    return await start_shared_hub({"asking": server | {"protocol": "2025-11-25", "max_in_flight": 1}}, connected=True)


async def ask(hub: Any) -> tuple[Any, Any]:
    """A call and what it asks."""
    call = await hub.client.start_tool("asking", "ask")
    (asked,) = await hub.asked(call_id=call.id)
    return call, asked


async def said(hub: Any, call_id: str) -> str:
    return (await hub.call(call_id)).result["content"][0]["text"]


async def test_of_many_answers_at_once_one_is_accepted_and_reaches_the_server(hub: Any) -> None:
    call, asked = await ask(hub)
    accepted: list[str] = []
    refused: list[FailedPrecondition] = []
    start = anyio.Event()

    async def rival(name: str, client: Any) -> None:
        await start.wait()
        try:
            record = await client.inbox.answer(asked.id, accept={"name": name})
        except FailedPrecondition as exc:
            refused.append(exc)
        else:
            assert record.answered_by == name
            accepted.append(name)

    with anyio.fail_after(60):
        async with AsyncExitStack() as clients, anyio.create_task_group() as rivals:
            for number in range(RIVALS):
                name = f"rival-{number}"
                client = await clients.enter_async_context(hubbub_client.connect(data_dir=hub.data_dir, name=name))
                rivals.start_soon(rival, name, client)
            start.set()
    (winner,) = accepted
    assert len(refused) == RIVALS - 1
    assert {exc.reason for exc in refused} == {"ALREADY_ANSWERED"}
    assert all(winner in exc.metadata.values() for exc in refused)
    assert await said(hub, call.id) == f"accept {winner}"
    record = await hub.request(asked.id, delivery="delivered")
    assert (record.answered_by, record.answer["content"]) == (winner, {"name": winner})


async def test_a_question_names_its_call_by_the_wire_or_by_inference(hub: Any, request: pytest.FixtureRequest) -> None:
    call, asked = await ask(hub)
    over_http = (await hub.client.servers.get("asking")).transport == "http"
    assert (asked.call_id, asked.cause_source) == (call.id, "wire" if over_http else "inferred")
    await hub.answer(asked, "--cancel")
    assert await said(hub, call.id) == "cancel"


async def test_a_call_that_waits_for_a_person_lets_the_next_one_through(hub: Any) -> None:
    call, asked = await ask(hub)
    assert (await hub.call(call.id, "waiting_input")).pending_ids == (asked.id,)
    for _ in range(3):
        counted = await hub.client.call_tool("asking", "count", {"steps": 2})
        assert counted.text == "done"
    counts = await hub.client.calls.queue("asking")
    assert (counts.queued, counts.in_progress, counts.waiting_input) == (0, 0, 1)
    await hub.answer(asked, "--accept", '{"name": "Ada"}')
    assert await said(hub, call.id) == "accept Ada"


async def test_who_has_claimed_a_question_is_told_how_to_answer_it_and_may_take_the_claim_over(hub: Any) -> None:
    call, asked = await ask(hub)
    first = (await hub.hubbub("inbox", "claim", asked.id, "--claim", "a-claim-of-my-own")).record["claim"]
    assert first["id"] == "a-claim-of-my-own"
    again = (await hub.hubbub("inbox", "claim", asked.id, "--claim", "a-claim-of-my-own")).record["claim"]
    assert (again["id"], again["expires_at"] >= first["expires_at"]) == (first["id"], True)
    refused = await hub.hubbub("inbox", "answer", asked.id, "--decline")
    assert f"--claim), or take the claim over (hubbub inbox claim {asked.id} --take-over)" in refused.error["message"]
    other = await hub.hubbub("--as", "ada", "inbox", "claim", asked.id, "--take-over")
    assert (other.status, other.error["reason"]) == (1, "ALREADY_CLAIMED")
    taken = (await hub.hubbub("inbox", "claim", asked.id, "--take-over")).record["claim"]
    lost = await hub.hubbub("inbox", "answer", asked.id, "--decline", "--claim", first["id"])
    assert lost.error["reason"] == "CLAIM_LOST"
    await hub.answer(asked, "--decline", "--claim", taken["id"])
    assert await said(hub, call.id) == "decline"
