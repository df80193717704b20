"""Every place where a server, a caller or an operator may give a number or a time, and what may stand there."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types._v2025_11_25 as v2025
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp_types.methods import SERVER_NOTIFICATIONS, SERVER_REQUESTS, SERVER_RESULTS
from pydantic import TypeAdapter
from tests.e2e.whole import METHODS

from hubbubd.config import HubSettings, ServerConfig

from .magnitudes import (
    FLOATS,
    HEADER_TEXTS,
    HOLE,
    NUMBERS,
    TIMES,
    WORST,
    document,
    holes,
    is_time,
    settings_with,
    within,
)

REVISIONS: Final = ("2025-11-25", "2026-07-28")
NOW: Final = "2025-11-25T10:00:00Z"


@dataclass(frozen=True)
class Place:
    """Where a number goes. `kind` says who tries it there, `template` has the hole, `about` what else it takes."""

    kind: str
    name: str
    values: Sequence[Any]
    template: Any = None
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def text(self, number: str) -> str:
        """The JSON text with a number in it."""
        return document(self.template, number)


@dataclass(frozen=True)
class Case:
    """A number in a place."""

    place: Place
    value: Any

    def __str__(self) -> str:
        value = str(self.value)
        return (
            f"{self.place.kind} {self.place.name} = {value if len(value) < 60 else f'{value[:20]}... ({len(value)})'}"
        )


def cases(seed: int, total: int) -> list[Case]:
    """So many of all cases: each place once, then each place with another of its values, and so on.

    What does most harm comes first, as there are more cases than a short run has inputs.
    """
    chance = random.Random(seed)
    found = list(places())
    chance.shuffle(found)
    columns = [[*_worst(place, chance), *chance.sample(list(place.values), len(place.values))] for place in found]
    made: list[Case] = []
    for turn in range(total):  # more turns than there ever are
        for place, column in zip(found, columns, strict=True):
            if turn < len(column) or turn % max(map(len, columns)) < len(column):
                made.append(Case(place, column[turn % len(column)]))
            if len(made) == total:
                return made
    return made


def _worst(place: Place, chance: random.Random) -> list[Any]:
    worst = [value for value in place.values if value in WORST]
    return chance.sample(worst, len(worst))


def places() -> Iterator[Place]:
    """All places there are."""
    for revision in REVISIONS:
        yield from _said(revision)
        yield from _results(revision)
        yield from _tasks(revision)
        yield from _headers(revision)
    yield from _oauth()
    yield from _rpcs()
    yield from _settings()


def _place(kind: str, name: str, where: str, template: Any, **about: Any) -> Place:
    return Place(kind, f"{name}{where}", TIMES if is_time(where) else NUMBERS, template, about)


def _schema(model: Any) -> Any:
    return TypeAdapter(model).json_schema(by_alias=True)


def _said(revision: str) -> Iterator[Place]:
    """Notifications and requests in the middle of a call."""
    models = {method: model for (method, of), model in SERVER_NOTIFICATIONS.items() if of == revision}
    models |= {method: model for (method, of), model in SERVER_REQUESTS.items() if of == revision}
    if revision == REVISIONS[0]:
        models["notifications/tasks/status"] = v2025.TaskStatusNotification
    for method, model in models.items():
        for path, made in holes(_schema(model)):
            if method == "notifications/progress" and "Token" not in path:
                made["params"]["progressToken"] = "@TOKEN@"  # the call's own
            yield _place("say", f"{revision} {method}", path, made, revision=revision)
    if revision != REVISIONS[0]:
        return
    for model in (v2025.NumberSchema, v2025.StringSchema, v2025.BooleanSchema):
        for path, made in holes(_schema(model)):
            form = {"type": "object", "properties": {"a": made}}
            params = {"message": "How many?", "requestedSchema": form}
            asked = {"jsonrpc": "2.0", "id": "form", "method": "elicitation/create", "params": params}
            yield _place("say", f"{revision} a form's {model.__name__}", path, asked, revision=revision)


def _results(revision: str) -> Iterator[Place]:
    """Results of calls, of handshakes and of lists that the hub fetches by itself; errors; ids."""
    fetched = (
        "initialize",
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    )
    for (method, of), model in SERVER_RESULTS.items():
        if of != revision or method == "subscriptions/listen":
            continue
        for path, made in holes(_schema(model)):
            result = {
                **made,
                **({} if "resultType" in made or revision == REVISIONS[0] else {"resultType": "complete"}),
            }
            if method == "initialize":
                result |= {"protocolVersion": revision}
            if method == "server/discover":
                result |= {"supportedVersions": [revision]}
            if method in fetched:
                yield _place("shake", f"{revision} {method}", path, result, revision=revision, method=method)
            if method not in fetched[:2]:
                yield _place("answer", f"{revision} {method}", path, result, revision=revision, method=method)
    error = {"jsonrpc": "2.0", "id": "@ID@", "error": {"code": HOLE, "message": "no"}}
    data = {**error, "error": {"code": 7, "message": "no", "data": {"retryAfter": HOLE}}}
    other = {"jsonrpc": "2.0", "id": HOLE, "result": {}}
    for path, made in ((".error.code", error), (".error.data", data), (".id", other)):
        yield _place("say", f"{revision} response", path, made, revision=revision)


TASK: Final = {"taskId": "@TASK@", "status": "working", "createdAt": NOW, "lastUpdatedAt": NOW}


def _tasks(revision: str) -> Iterator[Place]:
    """A call that becomes a task, as it is made and as it is asked for. The SDK has no model of the extension."""
    if revision == REVISIONS[0]:
        fields = ("createdAt", "lastUpdatedAt", "ttl", "pollInterval")
        plain: dict[str, Any] = {**TASK, "ttl": None, "pollInterval": 100}
    else:
        fields = ("createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs")
        plain = {**TASK, "ttlMs": 60_000, "pollIntervalMs": 100}
    for name in fields:
        yield _place(
            "task", f"{revision} created", f".{name}", {**plain, name: HOLE}, revision=revision, when="created"
        )
        yield _place(
            "task", f"{revision} tasks/get", f".{name}", {**plain, name: HOLE}, revision=revision, when="later"
        )


HEADERS: Final = (
    "Retry-After", "Content-Length", "Age", "Date", "Expires", "Last-Modified", "Mcp-Session-Id",
    "Mcp-Protocol-Version",
)  # fmt: skip
WITHIN: Final = {"Cache-Control": "max-age={}", "Set-Cookie": "a=b; Max-Age={}", "Keep-Alive": "timeout={}, max={}"}
DATED: Final = {"Set-Cookie": "a=b; Expires={}"}


def _headers(revision: str) -> Iterator[Place]:
    """Headers of responses, to a call and to the handshake, and the fields of event streams."""
    for status in (200, 429, 503):
        for name in HEADERS:
            about = {"revision": revision, "status": status, "header": name, "form": "{}"}
            yield Place("header", f"{revision} {status} {name}", HEADER_TEXTS, None, about)
            if name in ("Retry-After", "Mcp-Session-Id"):
                yield Place(
                    "header", f"{revision} handshake {status} {name}", HEADER_TEXTS, None, {**about, "first": True}
                )
    for name, form in (*WITHIN.items(), *DATED.items()):
        about = {"revision": revision, "status": 200, "header": name, "form": form}
        yield Place("header", f"{revision} 200 {name} {form}", HEADER_TEXTS, None, about)
    for name in ("retry", "id"):
        about = {"revision": revision, "event": name}
        yield Place("stream", f"{revision} event stream {name}", HEADER_TEXTS, None, about)
        yield Place("stream", f"{revision} event stream {name}, no answer", HEADER_TEXTS, None, {**about, "cut": True})


def _oauth() -> Iterator[Place]:
    """Documents and replies of an authorization server."""
    for model, path in (
        (OAuthToken, "/token"),
        (OAuthClientInformationFull, "/register"),
        (OAuthMetadata, "authorization-server"),
        (ProtectedResourceMetadata, "protected-resource"),
    ):
        for where, made in holes(_schema(model)):
            yield _place("oauth", f"{model.__name__}", where, made, path=path)


SPEC: Final = {"name": "added", "url": "@URL@"}
MEANT: Final[Mapping[str, str]] = {"server": "good", "method": "ping", "uri": "file:///x", **SPEC}


def _rpcs() -> Iterator[Place]:
    """Each numeric field of each RPC's request."""
    for method in METHODS:
        for path in _numeric(method.input_type):
            leaf = path[-1]
            yield Place("rpc", ".".join([method.name, *(each.name for each in path)]), _numbers(leaf), None,
                        {"method": method, "path": path})  # fmt: skip


def _numeric(kind: Descriptor, above: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    for each in kind.fields:
        if each.type == FieldDescriptor.TYPE_MESSAGE and not each.message_type.GetOptions().map_entry:
            yield from _numeric(each.message_type, (*above, each))
        elif each.cpp_type in _SIZES or each.cpp_type in _REALS:
            yield (*above, each)


_SIZES: Final = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
    FieldDescriptor.CPPTYPE_ENUM: (32, True),
}
_REALS: Final = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
DATED_SECONDS: Final = (-62135596801, -62135596800, -1, 253402300799, 253402300800)
"""In a `google.protobuf.Timestamp`: the first and the last second that there is, and their neighbours."""


def _numbers(leaf: FieldDescriptor) -> Sequence[float]:
    if leaf.cpp_type in _REALS:
        return FLOATS
    bits, signed = _SIZES[leaf.cpp_type]
    dated = DATED_SECONDS if leaf.full_name == "google.protobuf.Timestamp.seconds" else ()
    return (*dated, *within(bits, signed=signed))


def request(place: Place, value: float, url: str) -> Message:
    """A request that could be right but for the number in it."""
    made = GetMessageClass(place.about["method"].input_type)()
    _fill(made, place.about["path"], value, url)
    return made


def _fill(made: Any, path: Sequence[FieldDescriptor], value: float, url: str) -> None:
    first, *rest = path
    for each in made.DESCRIPTOR.fields:
        if made.DESCRIPTOR.name == "ServerSpec" and each.name == "http":
            made.http.url = url
        meant = each.name in (SPEC if made.DESCRIPTOR.name == "ServerSpec" else MEANT)
        if meant and each.type == FieldDescriptor.TYPE_STRING and not each.is_repeated:
            setattr(made, each.name, MEANT[each.name].replace("@URL@", url))
    if not rest:
        if first.is_repeated:
            getattr(made, first.name).append(value)
        else:
            setattr(made, first.name, value)
        return
    inner = getattr(made, first.name).add() if first.is_repeated else getattr(made, first.name)
    inner.SetInParent()
    _fill(inner, rest, value, url)


def _settings() -> Iterator[Place]:
    """Numbers of the configuration: of a server, of the hub, in a file and in the environment."""
    for path, made in settings_with(ServerConfig.model_json_schema(), {}):
        yield _place("config", f"servers.{path}", "", {"hub": {}, "servers": {"tried": made}}, server=made)
    for path, made in settings_with(HubSettings.model_json_schema(), {}):
        yield _place("config", f"hub.{path}", "", {"hub": made, "servers": {}}, server=None)
        yield Place("environment", path, HEADER_TEXTS, None, {"variable": f"HUBBUBD_{path.upper()}"})
    for path, host in (("listen", "127.0.0.1"), ("connect_listen", "127.0.0.1"), ("metrics_listen", "127.0.0.1")):
        yield Place(
            "environment", f"{path} port", HEADER_TEXTS, None, {"variable": f"HUBBUBD_{path.upper()}", "host": host}
        )
