"""`hubbub servers add NAME --agent AGENT`: a coding agent behind the hub, as a server over stdio."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub.v1 import server_pb2
from hubbub_cli.machine.agent_server import AgentWish, make_command
from hubbub_cli.run.session import Settings
from hubbub_local.coding_agents import AGENTS

OWN = str(Path(sys.executable).with_name("hubbub"))


@pytest.fixture
def added(hub: Any, hubbub: Any) -> Callable[..., Any]:
    """A function that adds a server and returns its spec."""
    hub.replies["AddServer"] = lambda request: server_pb2.AddServerResponse(
        server=server_pb2.Server(name=request.spec.name)
    )

    async def add(*words: str) -> Any:
        ran = await hubbub("servers", "add", "coder", *words)
        assert ran.status == 0, ran.err
        return hub.requests("AddServer")[0].spec, ran.err

    return add


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the PATH, with a program for each known agent."""
    for each in AGENTS.values():
        (tmp_path / each.command[0]).write_text("#!/bin/sh\n")
        (tmp_path / each.command[0]).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", AGENTS)
async def test_a_known_agent_is_started_by_its_file_through_the_bridge(added: Any, programs: Path, name: str) -> None:
    spec, said = await added("--agent", name)
    known = AGENTS[name]
    program, *rest = known.command
    mode = ["--mode", known.mode] if known.mode else []
    assert (spec.stdio.command, list(spec.stdio.args)) == (OWN, ["acp", *mode, "--", str(programs / program), *rest])
    assert dict(spec.stdio.env) == known.env
    assert AGENTS[name].log_in in said
    assert "call coder start" in said


async def test_an_agent_has_hours_for_a_turn_and_room_for_several_unless_options_say_otherwise(
    added: Any, programs: Path
) -> None:
    spec, _ = await added(
        "--agent", "codex", "--env", "OPENAI_API_KEY=1", "--set", "call_max_s=60", "--set", "confirm=writes"
    )
    assert (spec.timeouts.call.seconds, spec.timeouts.call_max.seconds) == (3600, 60)
    assert (spec.pending_requests.timeout.seconds, spec.queue.max_in_flight) == (86400, 16)
    assert list(spec.tools.confirm) == ["writes"]


async def test_profile_and_folder_are_passed_on_and_any_other_agent_has_its_own_command(
    added: Any, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(programs)
    words = ("--agent", "acp", "--mcp", "coding", "--fs", "shop", "--env", "KEY=1", "--", "goose", "other", "-v")
    spec, said = await added(*words)
    _, _, given = " ".join(spec.stdio.args).partition("acp ")
    assert given == f"--mcp coding --fs {programs / 'shop'} -- {programs / 'goose'} other -v"
    assert dict(spec.stdio.env) == {"KEY": "1"}
    assert "logged in" not in said


def test_a_hub_elsewhere_has_programs_of_its_own() -> None:
    given: Any = {"address": "https://hub.example.org:7878", "token": "t"}
    options: Any = {name: given.get(name) for name in ("address", "token", "data_dir", "ca", "cert", "key", "name")}
    settings = Settings(**options, json=False, connect_timeout_s=None)
    assert make_command(settings, AgentWish("gemini", (), None, None, "/srv/shop")) == (
        ["hubbub", "acp", "--fs", "/srv/shop", "--mode", "default", "--", "gemini", "--acp"],
        {},
    )


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--agent", "nosuch"), 2, "'nosuch' is not one of opencode, gemini, qwen, claude, codex, goose, copilot, acp"),
        (("--agent", "acp"), 2, "give the agent's command as well"),
        (("--agent", "codex", "--url", "http://x"), 2, "leave --url out"),
        (("--mcp", "coding", "--", "x"), 2, "name one with --agent"),
        (("--fs", "/srv", "--url", "http://x"), 2, "name one with --agent"),
        (("--agent", "codex"), 1, "no program codex-acp on this machine; install it: npm install -g @agent"),
        (("--agent", "acp", "--", "nosuch"), 1, "no program nosuch on this machine"),
    ],
)
async def test_what_cannot_be_added_is_said_with_what_to_do(
    hub: Any,
    hubbub: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    says: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = await hubbub("servers", "add", "coder", *words)
    assert (ran.status, hub.requests("AddServer")) == (status, [])
    assert says in ran.err
