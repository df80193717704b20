"""What opens a session: its folder, the MCP servers for the agent, its mode and model."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

from hubbub_acp.faults import AgentFault
from hubbub_acp.plain_text import make_line
from hubbub_acp.sessions.permissions import ID_CHARACTERS
from hubbub_acp.sessions.session import AgentInfo

MAX_SHOWN: Final = 50
"""The most modes or models that an error lists."""


class Requester(Protocol):
    """An agent that can be asked."""

    @property
    def info(self) -> AgentInfo:
        """How it introduces itself."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the result of a request. Raises AgentFault."""
        ...


def find_folder(given: str, root: Path | None) -> str:
    """Return the folder of a session without links. Raises AgentFault: FOLDER_INVALID. Blocks."""
    shown = make_line(given, 500)
    if not given.startswith("/") and not Path(given).is_absolute():
        raise AgentFault("FOLDER_INVALID", f"{shown!r} is no absolute path: name the agent's folder from the root on")
    try:
        folder = Path(given).resolve(strict=True)
        is_folder = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise AgentFault("FOLDER_INVALID", f"{shown!r} cannot be the agent's folder: {problem}") from None
    if not is_folder:
        raise AgentFault("FOLDER_INVALID", f"{shown!r} is no folder")
    if root is not None and not folder.is_relative_to(root):
        raise AgentFault("FOLDER_INVALID", f"{shown!r} is not below {root}, where --fs allows this agent to work")
    return str(folder)


def make_tools(command: Sequence[str]) -> list[dict[str, Any]]:
    """Return the MCP servers for the agent: the hub, started over stdio, which every agent takes."""
    if not command:
        return []
    return [{"name": "hubbub", "command": command[0], "args": list(command[1:]), "env": []}]


async def open_session(client: Requester, cwd: str, tools: list[dict[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """Open a new session; return its id and the agent's answer. Raises AgentFault."""
    answer = await client.request("session/new", {"cwd": cwd, "mcpServers": tools})
    found = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    session_id = found.get("sessionId")
    if not isinstance(session_id, str) or not 0 < len(session_id) <= ID_CHARACTERS or not session_id.isprintable():
        raise AgentFault("AGENT_REFUSED", f"{client.info.title} answered session/new without the id of a session")
    return session_id, found


async def select_choices(
    client: Requester, session_id: str, answer: Mapping[str, Any], mode: str | None, model: str | None
) -> None:
    """Set the mode and the model of a new session. Raises AgentFault: MODE_UNKNOWN, MODEL_UNKNOWN."""
    for what, wanted, key, list_key, id_key, method in (
        ("mode", mode, "modes", "availableModes", "id", "session/set_mode"),
        ("model", model, "models", "availableModels", "modelId", "session/set_model"),
    ):
        if wanted is None:
            continue
        config = _find_config(answer, what)
        if config is not None:
            known = _ids(_flatten(config.get("options")), "value")
            _check(what, wanted, known, client.info.title)
            params = {"sessionId": session_id, "configId": config["id"], "value": wanted}
            await client.request("session/set_config_option", params)
            continue
        state = answer.get(key)
        listed = cast("dict[str, Any]", state).get(list_key) if isinstance(state, dict) else None
        _check(what, wanted, _ids(listed, id_key), client.info.title)
        await client.request(method, {"sessionId": session_id, f"{what}Id": wanted})


def _find_config(answer: Mapping[str, Any], category: str) -> dict[str, Any] | None:
    """Return the option of the session's configuration by which a mode or a model is chosen."""
    given = answer.get("configOptions")
    for each in cast("list[Any]", given) if isinstance(given, list) else []:
        option = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        if isinstance(option.get("id"), str) and category in (option.get("category"), option["id"]):
            return option
    return None


def _flatten(given: object) -> list[Any]:
    """Return the values of a selection, which may be in groups."""
    entries = cast("list[Any]", given) if isinstance(given, list) else []
    groups = [
        cast("dict[str, Any]", each)["options"] for each in entries if isinstance(each, dict) and "options" in each
    ]
    return [each for group in groups if isinstance(group, list) for each in cast("list[Any]", group)] or entries


def _ids(given: object, key: str) -> list[str]:
    entries = cast("list[Any]", given) if isinstance(given, list) else []
    found = [cast("dict[str, Any]", each).get(key) for each in entries if isinstance(each, dict)]
    return [each for each in found if isinstance(each, str)]


def _check(what: str, wanted: str, known: Sequence[str], agent: str) -> None:
    if wanted not in known:
        has = shlex.join(make_line(each, 100) for each in known[:MAX_SHOWN]) or "none to choose from"
        code = f"{what.upper()}_UNKNOWN"
        raise AgentFault(
            code, f"{agent} has no {what} {make_line(wanted, 100)!r}; it has: {has}", known=known[:MAX_SHOWN]
        )
