"""A hub with some servers, calls, pending requests, tasks and tokens, which refuses as a real hub does.

What it says is copied from the hub; `tests/rpc` holds that to it.
"""

from collections.abc import AsyncIterator
from typing import Any

import anyio

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, common_pb2, inbox_pb2, server_pb2, task_pb2

TOOLS = {
    "time": (
        b'{"name":"get_current_time","inputSchema":{"properties":{"timezone":{"type":"string"}},"required":["timezone"]}}',
        b'{"name":"convert_time","inputSchema":{"properties":{}}}',
    ),
    "demo": (b'{"name":"order_lunch","inputSchema":{"type":"object"}}', b'{"name":"write_haiku"}'),
}
PROMPTS = (b'{"name":"simple-prompt"}', b'{"name":"args-prompt","arguments":[{"name":"city","required":true}]}')
RESOURCES = (b'{"name":"Features","uri":"demo://features.md"}', b'{"name":"Limits","uri":"demo://limits.md"}')
FORM = (
    b'{"message":"What shall it be?","requestedSchema":{"type":"object","properties":{"dish":{"type":"string"}},'
    b'"required":["dish"]}}'
)
SERVERS = ("demo", "git", "time")
REQUESTS = {"req_140d5e": 1, "req_2e0666": 1, "req_7c1a90": 3}
CALLS = ("lunch", "haiku-1", "haiku-2")


class World:
    """What the scripted hub has."""

    def __init__(self, refusal: Any) -> None:
        self._refusal = refusal

    def missing(self, noun: str, name: str) -> Any:
        return self._refusal("NOT_FOUND", f"{noun.upper()}_NOT_FOUND", f"no {noun} {name!r}", {noun: name})

    def of_server(self, name: str) -> None:
        if name not in SERVERS:
            raise self.missing("server", name)

    def request(self, id_: str) -> Any:
        if id_ not in REQUESTS:
            raise self.missing("request", id_)
        kind = REQUESTS[id_]
        return inbox_pb2.PendingRequest(id=id_, server="demo", kind=kind, state=1, request=FORM)

    def answer(self, asked: Any) -> Any:
        if asked.id == "req_2e0666":
            said = "bob has answered this request"
            raise self._refusal("FAILED_PRECONDITION", "ALREADY_ANSWERED", said, {"answered_by": "bob"})
        if asked.WhichOneof("answer") == "accept":
            wrong = (("content.dish", "is required"),)
            raise self._refusal("INVALID_ARGUMENT", "INVALID_ARGUMENT", "content.dish: is required", violations=wrong)
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=self.request(asked.id))

    def call(self, asked: Any) -> Any:
        spec = asked.spec
        self.of_server(spec.server)
        if spec.server == "git":
            said, about = "git is disconnected; connect it first", {"server": "git"}
            raise self._refusal("FAILED_PRECONDITION", "SERVER_NOT_CONNECTED", said, about)
        result = b'{"isError":true,"content":[{"type":"text","text":"%s"}]}'
        if spec.method == "tools/call":
            known = spec.params.find(b'"get_current_time"') >= 0
            text = b"Input validation error: 'timezone' is a required property" if known else b"Unknown tool"
            return call_pb2.CallMethodResponse(call=call_pb2.Call(id=spec.call_id, state=4, result=result % text))
        raise self._refusal("UNKNOWN", "SERVER_ERROR", "Invalid params", {"server": spec.server})

    def get_call(self, asked: Any) -> Any:
        if asked.id not in CALLS:
            raise self.missing("call", asked.id)
        return call_pb2.GetCallResponse(call=call_pb2.Call(id=asked.id, server="demo", state=4))

    def entries(self, asked: Any) -> Any:
        self.of_server(asked.filter.server)
        tools, prompts, resources = TOOLS.get(asked.filter.server, ()), PROMPTS, RESOURCES
        of_kind = {1: tools, 2: resources, 4: prompts}
        kinds = list(asked.filter.kinds) or [*of_kind]
        entry = catalog_pb2.CatalogEntry
        found = [
            entry(server=asked.filter.server, kind=kind, object=each)
            for kind in kinds
            for each in of_kind.get(kind, ())
        ]
        return catalog_pb2.ListCatalogEntriesResponse(entries=found)

    def add(self, asked: Any) -> Any:
        if asked.spec.HasField("stdio"):
            why = "may not be started: allow_commands of the hub's configuration does not have it"
            toml = f'[hub]\nallow_commands = [\n  {{ command = "{asked.spec.stdio.command}", args = ["..."] }},\n]'
            about = {"toml": toml, "file": "hubbub.toml"}
            said = f"the command {asked.spec.stdio.command!r} {why}"
            raise self._refusal("PERMISSION_DENIED", "COMMAND_NOT_ALLOWED", said, about)
        said = (
            "the host 127.0.0.1 may not be reached; allow_hosts and deny_hosts of the hub's configuration say which may"
        )
        about = {"toml": '[hub]\nallow_hosts = [\n  "public",\n  "127.0.0.1",\n]', "file": "hubbub.toml"}
        raise self._refusal("PERMISSION_DENIED", "HOST_NOT_ALLOWED", said, about)

    def reload(self, _: Any) -> Any:
        said = "this needs the permission `admin` for all servers; `hubbub whoami` shows what you have"
        raise self._refusal("PERMISSION_DENIED", "PERMISSION_DENIED", said)

    async def calls(self, _: Any) -> AsyncIterator[Any]:
        yield call_pb2.WatchCallsResponse(synced=common_pb2.WatchSynced())
        await anyio.sleep_forever()

    def revoke(self, asked: Any) -> Any:
        raise self.missing("token", asked.name)

    def server(self, asked: Any) -> Any:
        self.of_server(asked.name)
        return server_pb2.GetServerResponse(server=server_pb2.Server(name=asked.name, state=3))

    def task(self, asked: Any) -> Any:
        raise self.missing("task", asked.id)

    def queue(self, asked: Any) -> Any:
        self.of_server(asked.server)


def furnish(hub: Any, refusal: Any) -> None:
    """Let a scripted hub answer so."""
    it = World(refusal)
    hub.streams["WatchCalls"] = it.calls
    hub.replies |= {
        "AddServer": it.add,
        "AnswerPendingRequest": it.answer,
        "CallMethod": it.call,
        "GetCall": it.get_call,
        "GetPendingRequest": lambda asked: inbox_pb2.GetPendingRequestResponse(pending_request=it.request(asked.id)),
        "GetQueue": it.queue,
        "GetServer": it.server,
        "GetTask": it.task,
        "ListCalls": lambda _: call_pb2.ListCallsResponse(
            calls=[call_pb2.Call(id=id_, server="demo", method="ping", state=4) for id_ in CALLS]
        ),
        "ListCatalogEntries": it.entries,
        "ListPendingRequests": lambda _: inbox_pb2.ListPendingRequestsResponse(
            pending_requests=[it.request(id_) for id_ in REQUESTS]
        ),
        "ListServers": lambda _: server_pb2.ListServersResponse(
            servers=[server_pb2.Server(name=name, state=3) for name in SERVERS]
        ),
        "ListTasks": lambda _: task_pb2.ListTasksResponse(tasks=[task_pb2.Task(id="task_90ab", server="demo")]),
        "ListTokens": lambda _: admin_pb2.ListTokensResponse(tokens=[admin_pb2.ApiToken(name="reports")]),
        "ReloadConfig": it.reload,
        "RevokeToken": it.revoke,
    }
