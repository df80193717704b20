"""Steps that open a session: check its prompt and folder, open it with MCP servers, set its mode and model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from hubbub_acp.agent.agent_client import AgentClient
from hubbub_acp.faults import AgentFault
from hubbub_acp.plain_text import make_line
from hubbub_acp.sessions.permissions import ID_CHARACTERS
from hubbub_acp.values import as_list, as_object

PROMPT_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of a prompt."""

MAX_CHOICES: Final = 1000
"""The most modes or models that are looked at."""

MAX_SHOWN: Final = 50
"""The most modes or models that an error lists."""


def check_prompt(prompt: str) -> None:
    """Raise AgentFault (PROMPT_INVALID) for a prompt that is empty, too long, or not expressible in UTF-8."""
    if not prompt.strip():
        raise AgentFault("PROMPT_INVALID", "the prompt is empty: say what the agent is to do")
    try:
        size = len(prompt.encode())
    except UnicodeEncodeError:
        raise AgentFault("PROMPT_INVALID", "the prompt has half a character, which UTF-8 does not have") from None
    if size > PROMPT_BYTES:
        raise AgentFault(
            "PROMPT_INVALID",
            f"the prompt has {size} bytes, and at most {PROMPT_BYTES} are taken: put the text into a file of the "
            "folder, and name it in the prompt",
        )


def find_folder(path: str, root: Path | None) -> str:
    """Return the path of a session's folder with its links resolved.

    Raises AgentFault (FOLDER_INVALID) if it is relative, is no folder, or is not below `root`. Blocks.
    """
    short_path = make_line(path, 500)
    # On Windows, a path from `/` on is not absolute; it is taken all the same.
    if not path.startswith("/") and not Path(path).is_absolute():
        raise AgentFault(
            "FOLDER_INVALID", f"{short_path!r} is no absolute path: name the agent's folder from the root on"
        )
    try:
        folder = Path(path).resolve(strict=True)
        is_folder = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise AgentFault("FOLDER_INVALID", f"{short_path!r} cannot be the agent's folder: {problem}") from None
    if not is_folder:
        raise AgentFault("FOLDER_INVALID", f"{short_path!r} is no folder")
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise AgentFault(
            "FOLDER_INVALID", f"{short_path!r} leads to a folder whose name is no UTF-8: rename it"
        ) from None
    if root is not None and not folder.is_relative_to(root):
        raise AgentFault("FOLDER_INVALID", f"{short_path!r} is not below {root}, where --fs allows this agent to work")
    return str(folder)


def make_mcp_servers(command: Sequence[str]) -> list[dict[str, Any]]:
    """Return the MCP servers for the agent: the hub, started over stdio, which every agent takes."""
    if not command:
        return []
    return [{"name": "hubbub", "command": command[0], "args": list(command[1:]), "env": []}]


async def open_session(client: AgentClient, cwd: str, servers: list[dict[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """Open a session with these MCP servers; return its id and the agent's answer. Raises AgentFault."""
    answer = await client.request("session/new", {"cwd": cwd, "mcpServers": servers})
    found = as_object(answer)
    session_id = found.get("sessionId")
    if not isinstance(session_id, str) or not 0 < len(session_id) <= ID_CHARACTERS or not session_id.isprintable():
        raise AgentFault("AGENT_REFUSED", f"{client.info.title} answered session/new without the id of a session")
    return session_id, found


async def select_choices(
    client: AgentClient, session_id: str, answer: Mapping[str, Any], mode: str | None, model: str | None
) -> None:
    """Set the mode and the model of a session, by id or name. Raises AgentFault: MODE_UNKNOWN, MODEL_UNKNOWN.

    A configuration option is preferred: options are newer in ACP than `modes` and `models`, and some agents have both.
    """
    for what, wanted, key, list_key, id_key in (
        ("mode", mode, "modes", "availableModes", "id"),
        ("model", model, "models", "availableModels", "modelId"),
    ):
        if wanted is None:
            continue
        config = _find_config(answer, what)
        if config is not None:
            value = _find_choice(what, wanted, _list_config_values(config.get("options")), "value", client.info.title)
            params = {"sessionId": session_id, "configId": config["id"], "value": value}
            await client.request("session/set_config_option", params)
        else:
            listed = as_list(as_object(answer.get(key)).get(list_key))
            value = _find_choice(what, wanted, listed, id_key, client.info.title)
            await client.request(f"session/set_{what}", {"sessionId": session_id, f"{what}Id": value})


def _find_config(answer: Mapping[str, Any], category: str) -> dict[str, Any] | None:
    """Return the option of the session's configuration that chooses the mode or the model; None if there is none."""
    options = answer.get("configOptions")
    for each in as_list(options):
        option = as_object(each)
        if isinstance(option.get("id"), str) and category in (option.get("category"), option["id"]):
            return option
    return None


def _list_config_values(raw_values: object) -> list[Any]:
    """Return the values that an option offers; if they are in groups, those of all groups."""
    entries = as_list(raw_values)
    groups = [
        cast("dict[str, Any]", each)["options"] for each in entries if isinstance(each, dict) and "options" in each
    ]
    return [each for group in groups if isinstance(group, list) for each in cast("list[Any]", group)] or entries


def _find_choice(kind: str, wanted: str, listed: Sequence[Any], id_key: str, agent: str) -> str:
    """Return the id of the mode or model that has the wanted id or name. Raises AgentFault: KIND_UNKNOWN."""
    choices = [choice for each in listed[:MAX_CHOICES] if isinstance((choice := as_object(each)).get(id_key), str)]
    for key in (id_key, "name"):
        for choice in choices:
            if choice.get(key) == wanted:
                return choice[id_key]
    available = [make_line(choice[id_key], 100) for choice in choices[:MAX_SHOWN]]
    has = f"it has {', '.join(available)}" if available else "it has none to choose from"
    message = f"{agent} has no {kind} {make_line(wanted, 100)!r}: {has}"
    raise AgentFault(f"{kind.upper()}_UNKNOWN", message, known=available)
