"""Capabilities: what the hub declares to a server, and which part of that it declares for a call."""

from typing import Any, Final, cast

from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from hubbubd.config import ServerConfig

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

UI_EXTENSION: Final = "io.modelcontextprotocol/ui"
"""MCP Apps (SEP-1865): a server may offer tools with pages, as hosts of the hub may show them."""

APP_MIME_TYPES: Final = ("text/html;profile=mcp-app",)

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
"""Skills (SEP-2640): some servers serve no skills to a client that does not declare it."""

_SHARED_METHODS: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "skills/list",
        "subscriptions/listen",
    }
)
"""Methods of requests that the hub makes for all hosts together, whether or not they show pages of apps."""

_CALLER_CAPABILITIES: Final = frozenset({"elicitation", "sampling", "roots", "extensions"})
"""Capabilities that say which requests a client answers."""


def declare_capabilities(config: ServerConfig, version: str) -> dict[str, Any]:
    """Return the capabilities that the hub declares to this server in this revision."""
    declared: dict[str, Any] = {"roots": {} if version == LATEST_MODERN_VERSION else {"listChanged": True}}
    task_requests: dict[str, Any] = {}
    if config.elicitation:
        declared["elicitation"] = {"form": {}, "url": {}}
        task_requests["elicitation"] = {"create": {}}
    if config.sampling:
        declared["sampling"] = {"tools": {}}
        task_requests["sampling"] = {"createMessage": {}}
    if config.receiver_tasks and task_requests and version == LATEST_HANDSHAKE_VERSION:
        declared["tasks"] = {"list": {}, "cancel": {}, "requests": task_requests}
    extensions: dict[str, Any] = {SKILLS_EXTENSION: {}}
    if version == LATEST_MODERN_VERSION:
        extensions[TASKS_EXTENSION] = {}
    if config.apps:
        extensions[UI_EXTENSION] = {"mimeTypes": [*APP_MIME_TYPES]}
    declared["extensions"] = extensions
    return declared


def is_shared_method(method: str) -> bool:
    """Return whether the hub makes requests of this method for all hosts, and not as the call of one."""
    return method in _SHARED_METHODS


def remove_apps(hub_capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the hub's capabilities without pages of apps, for a call whose caller shows none."""
    extensions = as_object(hub_capabilities.get("extensions"))
    if UI_EXTENSION not in extensions:
        return hub_capabilities
    return {
        **hub_capabilities,
        "extensions": {name: entry for name, entry in extensions.items() if name != UI_EXTENSION},
    }


def narrow_capabilities(hub_capabilities: dict[str, Any], caller_capabilities: object) -> dict[str, Any]:
    """Return the capabilities that both the hub and the caller of a call declare.

    If the caller sent none, return all of the hub's. Only _CALLER_CAPABILITIES depend on the caller. The UI extension
    has the caller's settings. The skills extension always stays, since it asks nothing of a client.
    """
    if not isinstance(caller_capabilities, dict):
        return hub_capabilities
    declared = cast("dict[str, Any]", caller_capabilities)
    common = {
        name: value for name, value in hub_capabilities.items() if name not in _CALLER_CAPABILITIES or name in declared
    }
    for name in ("elicitation", "sampling", "extensions"):
        if name in common:
            parts: dict[str, Any] = as_object(declared[name])
            if name == "elicitation" and not parts:
                parts = {"form": {}}  # 2025-11-25, elicitation: an empty object means forms alone
            common[name] = {
                part: as_object(parts[part]) if part == UI_EXTENSION else value
                for part, value in as_object(common[name]).items()
                if part in parts
            }
    if SKILLS_EXTENSION in as_object(hub_capabilities.get("extensions")):
        common["extensions"] = {**as_object(common.get("extensions")), SKILLS_EXTENSION: {}}
    return common


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
