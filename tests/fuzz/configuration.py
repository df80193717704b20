"""Configuration files, environments and command lines."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import toml

from hubbubd.config import HubSettings, ServerConfig, load_settings
from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.errors import ConfigError

from .chance import Chance
from .subject import Finding, Tally, drive

SERVERS: dict[str, Any] = {
    "a": {"command": "python3", "args": ["-m", "x"], "env": {"A": "${HOME}"}, "retries": 1, "backoff_s": [1, 2]},
    "b": {"url": "https://example.com/mcp", "headers": {"authorization": "Bearer ${HOME}"}, "roots": "ask"},
    "c": {"url": "http://h/x", "transport": "sse", "oauth": {"client_id": "x", "client_secret": "y"}},
}
HUB: dict[str, Any] = {
    "listen": "127.0.0.1:0",
    "allow_commands": ["/bin/true", {"command": "python3", "args": ["x*", "**"], "env": ["A*"], "cwd": ["/tmp"]}],
    "allow_hosts": ["public", "10.0.0.0/8", "*.example.com"],
    "grants": [{"who": "cert:ada", "roles": ["viewer"], "servers": ["a*"]}],
    "oidc_issuer": "https://login.example.com",
    "oidc_audience": "hub",
}
PROFILES: dict[str, Any] = {
    "default": {"max_tool_name": 40, "alias": {"a": "al"}, "questions": {"form": "host"}, "hold_s": 5},
    "x": {"servers": ["b*"], "tools": "search", "always": ["b__*"], "hold_s": "auto"},
}
OF_PROFILE = sorted(ProfileSettings.model_fields)
OF_HUB, OF_SERVER = sorted(HubSettings.model_fields), sorted(ServerConfig.model_fields)
LINES = ("[", "[hub", "[[hub]]", "a = ", '"', "'''", "a.b.c = 1", "[servers.a]", "x = 1979-05-27", "\x00", "= 1", "{")


async def configuration(tally: Tally, seed: int, directory: Path) -> None:
    """Tries to start from any configuration. Nothing but settings or a ConfigError may come of it."""
    directory.mkdir(parents=True, exist_ok=True)

    async def one(number: int) -> str:
        chance = Chance(seed, "configuration", number)
        path = directory / chance.of(("a.toml", "a.json", "a.TOML", "a.txt" if chance.one_in(20) else "a.toml"))
        path.write_bytes(_file(chance, path.suffix.lower()))
        environ, argv = {"HOME": "/root"}, ["--config", str(path)]
        while chance.one_in(5):
            environ[f"HUBBUBD_{chance.of(OF_HUB)}".upper()] = _variable(chance)
        if chance.one_in(10):
            argv += [chance.of(("--listen", "--data-dir", "--config", "--x", "x")), chance.text()]
        try:
            load_settings(argv, environ)
        except ConfigError:
            return "refused"
        except Exception as exc:  # whatever else it is, is what is looked for
            raise Finding(f"{exc!r} for {path.read_bytes()!r} {environ} {argv}") from exc
        return "taken"

    await drive(tally, one, width=1, halfway=None)


def _file(chance: Chance, suffix: str) -> bytes:
    hub = {name: HUB[name] for name in HUB if chance.one_in(2)}
    if chance.one_in(3):
        hub |= {chance.of(OF_HUB): chance.value(2) for _ in range(chance.upto(2))}
    servers = {name: SERVERS[name] for name in SERVERS if chance.one_in(2)}
    for options in list(servers.values()):
        if chance.one_in(6):
            servers[chance.text()] = {**options, chance.of(OF_SERVER): chance.value(2)}
    profiles = {name: PROFILES[name] for name in PROFILES if chance.one_in(2)}
    for options in list(profiles.values()):
        if chance.one_in(4):
            profiles[chance.text()] = {**options, chance.of(OF_PROFILE): chance.value(2)}
    content = chance.maybe_changed({"hub": hub, "servers": servers, "mcp": {"profiles": profiles}})
    if suffix != ".toml":
        if isinstance(content, dict) and chance.one_in(2):
            content["mcpServers"] = content.pop("servers", {})
        return chance.document(content)
    try:
        text = toml(content) if isinstance(content, dict) else chance.text()
    except (TypeError, AttributeError):
        text = ""
    for _ in range(max(0, chance.upto(3) - 2)):
        text += f"\n{chance.of(LINES)}" + (chance.text() if chance.one_in(3) else "")
    if chance.one_in(40):
        text += "\na = " + "[" * 3000
    raw = text.encode(errors="replace")
    return chance.broken(raw) if chance.one_in(8) else raw


def _variable(chance: Chance) -> str:
    if chance.one_in(2):
        return chance.text().replace("\x00", "")
    return json.dumps(chance.value(2))
