"""Approvals with a hub, a server and the command line, each a process: what scripts and people type."""

import sys
from pathlib import Path
from typing import Any

import pytest

from .terminals import terminal

RULES = [
    {
        "name": "echoes",
        "servers": ["plain"],
        "tools": ["echo"],
        "when": "args.text != 'free'",
        "remember": ["1h"],
        "message": "Every echo is heard.",
    },
]


@pytest.fixture
async def hub(start_hub: Any, peer_scripts: Path) -> Any:
    """A hub with a rule, and a server that echoes."""
    server = {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}
    return await start_hub({"plain": server}, approvals={"rules": RULES}, connected=True)


async def call(hub: Any, text: str) -> tuple[str, Any]:
    """The id of a call that waits for approval, and its pending request."""
    started = (await hub.hubbub("call", "plain", "echo", f"text={text}", "--detach")).record
    (asked,) = await hub.asked(call_id=started["id"], kinds=["approval"])
    return started["id"], asked


async def said(hub: Any, call_id: str) -> str:
    return (await hub.call(call_id)).result["content"][0]["text"]


async def test_a_script_approves_remembers_revokes_changes_and_denies(hub: Any, tmp_path: Path) -> None:
    call_id, asked = await call(hub, "one")
    (listed,) = (await hub.hubbub("inbox", "list", "--kind", "approval", "--state", "open")).lines
    assert (listed["id"], listed["request"]["tool"]["name"]) == (asked.id, "echo")
    digest = listed["arguments_digest"]
    done = await hub.answer(asked, "--approve", "--remember", "1h", "--same-arguments", "--digest", digest)
    assert (done["state"], done["answer"]["remember_s"]) == ("answered", 3600)
    assert "one" in await said(hub, call_id)
    assert (await hub.hubbub("calls", "get", call_id)).record["approval"]["granted"] is True

    (remembered,) = (await hub.hubbub("approvals", "list")).lines
    assert (remembered["tool"], remembered["arguments"]) == ("echo", {"text": "one"})
    assert (await hub.hubbub("call", "plain", "echo", "text=one")).status == 0
    checked = (await hub.hubbub("approvals", "check", "plain", "echo", "text=one")).record
    assert (checked["action"], checked["remembered_id"]) == ("allow", remembered["id"])
    assert (await hub.hubbub("approvals", "revoke", remembered["id"])).record == remembered
    assert (await hub.hubbub("approvals", "check", "plain", "echo", "text=one")).record["action"] == "ask"

    call_id, asked = await call(hub, "two")
    (tmp_path / "changed.json").write_text('{"text": "three"}')
    await hub.answer(asked, "--change", f"@{tmp_path / 'changed.json'}")
    assert "three" in await said(hub, call_id)

    call_id, asked = await call(hub, "four")
    assert (await hub.answer(asked, "--deny", "not today"))["answer"] == {"action": "deny", "reason": "not today"}
    refused = await hub.call(call_id)
    assert (refused.state, refused.error.code) == ("failed", "APPROVAL_DENIED")
    assert "not today" in refused.error.message


async def test_rules_are_shown_checked_and_tried_on_the_history(hub: Any, tmp_path: Path) -> None:
    assert (await hub.hubbub("call", "plain", "echo", "text=free")).status == 0
    rules = (await hub.hubbub("approvals", "rules")).record
    assert [(rule["name"], rule["action"]) for rule in rules["rules"]] == [("echoes", "ask")]
    assert rules["warnings"] == []
    checked = (
        await hub.hubbub("approvals", "check", "plain", "echo", "text=x", "--as", "bot", "--role", "caller")
    ).record
    assert (checked["action"], checked["rule"]["message"]) == ("ask", "Every echo is heard.")
    assert (await hub.hubbub("approvals", "check", "plain", "echo", "text=free")).record["action"] == "allow"
    assert (await hub.hubbub("approvals", "replay", "--since", "7d")).record["asked"] == 0
    file = tmp_path / "rules.toml"
    file.write_text('[approvals]\ndefault = "deny"\n')
    tried = (await hub.hubbub("approvals", "replay", "--rules", str(file), "--server", "plain")).record
    assert (tried["calls"], tried["denied"], tried["rows"][0]["tool"]) == (1, 1, "echo")


async def test_a_person_approves_at_a_terminal_what_it_shows(hub: Any) -> None:
    call_id, asked = await call(hub, "hello")
    async with terminal(hub, "inbox", "answer") as person:
        await person.sees("wants to run echo on plain")
        await person.sees("hello")
        await person.sees("Every echo is heard.")
        await person.answers("[l]ater? ", "")
        await person.sees("type a, r, c, d or l")
        await person.answers("[l]ater? ", "a")
        await person.sees(f"{asked.id} is approved")
        await person.sees("echo on plain: completed after ")
        assert await person.ends() == 0
    assert "hello" in await said(hub, call_id)
