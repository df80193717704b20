"""Tries the hub's entry of a host's file: starts the bridge as it says, or sends a request to its address."""

import asyncio
import http.client
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from hubbub_client.payload import as_list
from hubbub_local.hosts.kinds import NAME

LIMIT_S: Final = 15.0
"""Seconds for a response of the hub's address."""

LOGIN_LIMIT_S: Final = 5.0
"""Seconds for what an endpoint says of its log-in."""

MAX_URL_CHARS: Final = 2048

MAX_RESPONSE_BYTES: Final = 1024 * 1024
MAX_REASON_CHARS: Final = 300
REVISION: Final = "2026-07-28"
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
URL_KEYS: Final = ("url", "httpUrl", "serverUrl", "uri")
ENV_KEYS: Final = ("env", "envs", "environment")
HEADER_KEYS: Final = ("headers", "http_headers")
VARIABLE_KEYS: Final = ("bearer_token_env_var", "env_http_headers")
VARIABLE: Final = re.compile(r"\$\{?\w|\{(?:env|file):")
UNAUTHORIZED, NOT_FOUND = 401, 404
RESOURCE: Final = "/.well-known/oauth-protected-resource"
"""Where an endpoint says who lets hosts log in (RFC 9728); its own path follows."""


@dataclass(frozen=True, slots=True)
class EntryTrial:
    """What came of an entry: why the hub cannot be reached as it says, or that the host has to log in first."""

    fault: str = ""
    needs_log_in: bool = False
    is_log_in_off: bool = False
    """Whether it has no token, at a hub where no host can log in."""


def find_url(entry: Mapping[str, Any]) -> str | None:
    """Return the address of an entry; None if it starts a command."""
    return next((entry[key] for key in URL_KEYS if isinstance(entry.get(key), str)), None)


def find_headers(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that an entry has."""
    return _find_table(entry, HEADER_KEYS)


def has_variables(entry: Mapping[str, Any]) -> bool:
    """Return whether the URL or a header of an entry has variables, which only the host can replace by their values."""
    url = find_url(entry)
    texts = [url, *find_headers(entry).values()] if url is not None else []
    return any(entry.get(key) for key in VARIABLE_KEYS) or any(map(VARIABLE.search, texts))


def find_command(entry: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the command of an entry with its arguments, and the variables that it is given. Raises ValueError."""
    command: Any = entry.get("command", entry.get("cmd"))
    args: Any = entry.get("args") or []
    if not isinstance(args, list):
        raise ValueError("its arguments are no list")
    words: list[object] = as_list(command) or [command, *args]
    if not all(isinstance(word, str) for word in words):
        raise ValueError("a command is a text, or a list of texts")
    return [str(word) for word in words], _find_table(entry, ENV_KEYS)


def _find_table(entry: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    """Return the first member of an entry, among `keys`, that is a table, with its values as texts; {} for none."""
    for key in keys:
        if isinstance(table := entry.get(key), dict):
            return {str(name): str(value) for name, value in cast("dict[object, object]", table).items()}
    return {}


async def try_entry(entry: Mapping[str, Any]) -> EntryTrial:
    """Connect to the hub as an entry of a host says, over HTTP or by the bridge, and return what came of that."""
    url = find_url(entry)
    return await asyncio.to_thread(_try_url, url, find_headers(entry)) if url else EntryTrial(await _try_bridge(entry))


async def _try_bridge(entry: Mapping[str, Any]) -> str:
    """Start the command of an entry, which is the bridge to the hub, and return what is wrong; empty if nothing is.

    A command that is not called `hubbub` is not started; empty for such a command, too, if it exists.
    """
    try:
        command, variables = find_command(entry)
    except ValueError:
        return "its command is written in a form that cannot be read"
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not there, or cannot be started"
    if Path(command[0]).stem != NAME:
        return ""  # what it does is not known here
    from hubbub_bridge import trial

    (tried,) = await trial.try_revisions(command, os.environ | variables, (trial.HANDSHAKE,))
    return tried.failure


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token of an entry is for its own address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow no redirect."""


def _try_url(url: str, headers: Mapping[str, str]) -> EntryTrial:
    """Send `server/discover` to a URL with these headers, and return what came of that; no session is opened there."""
    prefix = "io.modelcontextprotocol/"
    client = {f"{prefix}clientInfo": {"name": "hubbub-mcp-check", "version": "1"}, f"{prefix}clientCapabilities": {}}
    meta = {f"{prefix}protocolVersion": REVISION, **client}
    message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    protocol_headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    protocol_headers |= {"MCP-Protocol-Version": REVISION, "Mcp-Method": "server/discover"}
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            return EntryTrial(f"{url} is no address that begins with http:// or https://")
        request = urllib.request.Request(url, json.dumps(message).encode(), {**protocol_headers, **headers})  # noqa: S310 - checked above
        _fetch(request, LIMIT_S, _NoRedirects())
    except urllib.error.HTTPError as error:
        return _describe_refusal(error, has_token=any(name.lower() == "authorization" for name in headers))
    except http.client.InvalidURL as error:
        return EntryTrial(f"{url} is no address: {error}")
    except http.client.HTTPException:
        return EntryTrial(f"what answers at {url} does not speak HTTP: is this the hub's address for hosts?")
    except OSError as error:
        reason = getattr(error, "reason", error)
        return EntryTrial(f"{url} does not answer: {getattr(reason, 'strerror', None) or reason}")
    except ValueError:  # its text has the header, which may be secret, so it is not shown
        return EntryTrial("its address or a header of it has characters that HTTP does not allow")
    return EntryTrial()


def find_login_url(url: str) -> str | None:
    """Return the URL at which hosts log in at the endpoint `url`; None if the hub lets no host log in.

    The endpoint is asked for this URL, since a proxy may show the endpoint under another one. Without a usable answer
    the result is `url`.
    """
    parts = urlsplit(url)
    try:
        body = _fetch(urllib.request.Request(f"{parts.scheme}://{parts.netloc}{RESOURCE}{parts.path}"), LOGIN_LIMIT_S)  # noqa: S310 - the hub's own
        resource_url = json.loads(body)["resource"]
    except urllib.error.HTTPError as error:
        return None if error.code == NOT_FOUND else url
    except (OSError, ValueError, KeyError, TypeError):
        return url
    return resource_url if _is_endpoint_url(resource_url, parts.path) else url


def _is_endpoint_url(value: object, path: str) -> bool:
    """Return whether a value that an endpoint has sent is an http or https URL with the path `path`."""
    if not isinstance(value, str) or len(value) > MAX_URL_CHARS or not value.isascii() or not value.isprintable():
        return False
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.path == path


def _fetch(request: urllib.request.Request, limit_s: float, *handlers: urllib.request.BaseHandler) -> bytes:
    """Send a request, and return the response up to MAX_RESPONSE_BYTES. Raises HTTPError, OSError, ValueError."""
    # A proxy of the environment could not reach this machine's loopback.
    proxies = [urllib.request.ProxyHandler({})] if urlsplit(request.full_url).hostname in LOOPBACK else []
    with urllib.request.build_opener(*handlers, *proxies).open(request, timeout=limit_s) as response:
        return response.read(MAX_RESPONSE_BYTES)


def _describe_refusal(error: urllib.error.HTTPError, *, has_token: bool) -> EntryTrial:
    """Return what an HTTP error means for an entry: that the host has to log in, or why the hub refuses it."""
    if error.code == UNAUTHORIZED and not has_token:
        if "resource_metadata" in error.headers.get("WWW-Authenticate", ""):
            return EntryTrial(needs_log_in=True)
        return EntryTrial("it has no token, and this hub lets no host log in", is_log_in_off=True)
    try:
        body: Any = json.loads(error.read(MAX_RESPONSE_BYTES))
        message = str(body["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        message = str(error.reason)
    return EntryTrial(f"the hub refuses it with HTTP {error.code}: {message[:MAX_REASON_CHARS]}")
