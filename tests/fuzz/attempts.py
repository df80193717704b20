"""How a number gets to where it is tried: one method for each kind of place."""

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import anyio
import grpc
from google.protobuf.message import Message
from tests.e2e.conftest import LIMIT_S, toml
from tests.e2e.crowd import bad
from tests.e2e.whole import path, unreadable

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, server_pb2
from hubbubd.config import load_settings
from hubbubd.errors import ConfigError

from .magnitudes import HOLE
from .payloads import rpc_has_no_end
from .places import REVISIONS, TASK, Case, request
from .subject import Finding, Subject, left_in_time, outcome

PEER = str(Path(__file__).with_name("magnitude_peer.py"))
WAITING_S = 2.5
"""How long a caller waits; nobody answers questions here."""

GLIMPSE_S = 0.1
"""How long a stream is read."""

LOCALLY_CANCELLED = "Locally cancelled by application!"
"""What gRPC's client says of a call that it has cancelled itself, as the deadline came while it wrote a request."""

SHAKEN_S = 1.0
"""How long a handshake may take that is to be looked at."""

QUICK: dict[str, Any] = {
    "call_timeout_s": 1,
    "call_max_s": 2,
    "connect_timeout_s": 3,
    "answer_timeout_s": 2,
    "receiver_task_ttl_s": 2,
    "retries": -1,
    "backoff_s": [0.05],
    "backoff_max_s": 0.1,
    "max_in_flight": 8,
    "max_message_bytes": 300_000,
}
PARAMS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "echo", "arguments": {}},
    "prompts/get": {"name": "p"},
    "resources/read": {"uri": "file:///x"},
    "resources/subscribe": {"uri": "file:///x"},
    "resources/unsubscribe": {"uri": "file:///x"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
    "logging/setLevel": {"level": "info"},
}


def servers(directory: Path, ports: dict[str, str]) -> dict[str, Any]:
    """The servers of a hub: a good one, those that say what they are asked to, those whose handshake is given."""
    found: dict[str, Any] = {"good": bad("good")}
    for revision in REVISIONS:
        for name in (f"stdio-{revision}", f"shake-stdio-{revision}"):
            arguments = ["-S", PEER, "stdio", revision, str(directory / f"{name}.json")]
            found[name] = {"command": sys.executable, "args": arguments, **QUICK, "protocol": revision}
        for name, where in ((f"http-{revision}", "mcp"), (f"shake-http-{revision}", "shake")):
            found[name] = {"url": f"{ports[revision]}/{where}", **QUICK, "protocol": revision}
    oauth = {"grant": "client_credentials", "client_id": "us", "client_secret": "hush"}
    found["guarded"] = {"url": f"{ports[REVISIONS[0]]}/guarded", **QUICK, "protocol": REVISIONS[0]}
    found["credentials"] = {**found["guarded"], "oauth": {**oauth, "issuer": ports[REVISIONS[0]]}}
    return found


class Attempts:
    """Tries cases on one hub."""

    def __init__(self, tried: Subject, directory: Path, shared: Path, ports: dict[str, str]) -> None:
        self._tried = tried
        self._directory = directory
        self._shared = shared
        self._ports = ports
        self._turns: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._config = (directory / "hub.toml").read_text()

    async def one(self, case: Case, number: int) -> str:
        """What came of it, in a few words. Raises Finding."""
        return await getattr(self, f"try_{case.place.kind}")(case, number)

    # Calls whose server says what it is asked to

    async def try_say(self, case: Case, number: int) -> str:
        said = case.place.text(case.value)
        said = said.replace('"@ID@"', "@ID@").replace('"@TOKEN@"', "@TOKEN@")
        last = '"result"' in said or '"error"' in said
        tell = {"say": [said], "last": last}
        return await self._call(self._name(case, number), "tools/call", tell, case)

    async def try_answer(self, case: Case, number: int) -> str:
        method = case.place.about["method"]
        said = f'{{"jsonrpc":"2.0","id":@ID@,"result":{case.place.text(case.value)}}}'
        return await self._call(self._name(case, number), method, {"say": [said], "last": True}, case)

    async def try_task(self, case: Case, number: int) -> str:
        stateless, name = case.place.about["revision"] != REVISIONS[0], f"t{number}"
        here = case.place.text(case.value).replace("@TASK@", name)
        plain = json.dumps(
            {**TASK, "taskId": name, "ttl": 60_000, "pollInterval": 100, "pollIntervalMs": 100, "ttlMs": 60_000}
        )
        first, then = (here, plain) if case.place.about["when"] == "created" else (plain, here)
        done = then.replace("working", "completed")
        result = '{"content":[]}'
        if stateless:
            done = f'{done[:-1]},"result":{result},"resultType":"complete"}}'
            then = f'{then[:-1]},"resultType":"complete"}}'
            created = f'{first[:-1]},"resultType":"task"}}'
        else:
            created = f'{{"task":{first}}}'
        later = {
            "tasks/get": [_result(then), _result(done)],
            "tasks/result": [_result(result)],
            "tasks/cancel": [_result(done)],
        }
        tell = {"say": [_result(created)], "last": True, "task": name, "later": later}
        return await self._call(self._name(case, number), "tools/call", tell, case, as_task=not stateless)

    async def try_header(self, case: Case, number: int) -> str:
        about = case.place.about
        how = {"status": about["status"], "headers": [[about["header"], about["form"].format(*[case.value] * 2)]]}
        if about["status"] != 200:
            how["raw"] = "{}"
        if about.get("first"):
            return await self._shaken(f"shake-http-{about['revision']}", {"http": how}, case)
        return await self._call(f"http-{about['revision']}", "tools/call", {"http": how}, case)

    async def try_stream(self, case: Case, number: int) -> str:
        about = case.place.about
        before = f"{about['event']}: {case.value}\ndata:\n\n"
        how: dict[str, Any] = {"before": before}
        if about.get("cut"):
            how = {"status": 200, "raw": f"id: 1\n{before}", "headers": [["Content-Type", "text/event-stream"]]}
        return await self._call(f"http-{about['revision']}", "tools/call", {"http": how}, case)

    async def _call(self, name: str, method: str, tell: dict[str, Any], case: Case, *, as_task: bool = False) -> str:
        params = {**PARAMS.get(method, {}), "_meta": {"tell": tell}}
        spec = call_pb2.CallSpec(server=name, method=method, params=json.dumps(params).encode(), as_task=as_task)
        return await self._rpc("/hubbub.v1.CallService/CallMethod", call_pb2.CallMethodRequest(spec=spec), case)

    @staticmethod
    def _name(case: Case, number: int) -> str:
        return f"{('stdio', 'http')[hash_of(number) % 2]}-{case.place.about['revision']}"

    # Handshakes

    async def try_shake(self, case: Case, number: int) -> str:
        about = case.place.about
        how = ("stdio", "http")[hash_of(number) % 2]
        told = {about["method"]: case.place.text(case.value)}
        return await self._shaken(f"shake-{how}-{about['revision']}", told, case)

    async def try_oauth(self, case: Case, number: int) -> str:
        issuer = self._ports[REVISIONS[0]]
        told = {
            "protected-resource": json.dumps({"resource": f"{issuer}/guarded", "authorization_servers": [issuer]}),
            "authorization-server": json.dumps(
                {
                    "issuer": issuer,
                    "authorization_endpoint": f"{issuer}/authorize",
                    "token_endpoint": f"{issuer}/token",
                    "registration_endpoint": f"{issuer}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                }
            ),
            "/token": json.dumps({"access_token": "a", "token_type": "Bearer", "refresh_token": "r"}),
            "/register": json.dumps({"client_id": "c", "redirect_uris": ["http://127.0.0.1:9/callback"]}),
        }
        where = case.place.about["path"]
        told[where] = json.dumps(case.place.template | json.loads(told[where])).replace(json.dumps(HOLE), case.value)
        return await self._shaken("credentials" if where == "/token" else "guarded", told, case)

    async def _shaken(self, name: str, told: dict[str, Any], case: Case) -> str:
        """Reconnects a server with this handshake; then everybody must still see all servers."""
        revision = next((each for each in REVISIONS if name.endswith(each)), REVISIONS[0])
        over_http = "stdio" not in name
        file = self._shared / f"told-http-{revision}.json" if over_http else self._directory / f"{name}.json"
        async with self._turns[str(file)]:
            request_ = server_pb2.DisconnectServerRequest(name=name)
            await self._rpc("/hubbub.v1.ServerService/DisconnectServer", request_, case)
            self._told(file, told)
            said = await self._rpc(
                "/hubbub.v1.ServerService/ConnectServer", server_pb2.ConnectServerRequest(name=name), case
            )
            server = await self._settled(name, case)
            if server.state == server_pb2.SERVER_STATE_CONNECTED:
                await self._rpc(
                    "/hubbub.v1.CatalogService/RefreshCatalog", catalog_pb2.RefreshCatalogRequest(server=name), case
                )
            if wrong := [*unreadable(server)]:
                raise Finding(wrong[0])
            await self._rpc("/hubbub.v1.ServerService/ListServers", server_pb2.ListServersRequest(), case)
            self._told(file, {})
        return f"shaken: {said}"

    def _told(self, file: Path, told: dict[str, Any]) -> None:
        other = file.with_suffix(".new")
        other.write_text(json.dumps(told))
        other.replace(file)

    async def _settled(self, name: str, case: Case) -> Any:
        with anyio.move_on_after(SHAKEN_S):
            while True:
                got = await self._get(name, case)
                if got.state in (server_pb2.SERVER_STATE_CONNECTED, server_pb2.SERVER_STATE_ERROR):
                    return got
                await anyio.sleep(0.02)
        return await self._get(name, case)

    async def _get(self, name: str, case: Case) -> Any:
        call = self._tried.channel.unary_unary(
            "/hubbub.v1.ServerService/GetServer", response_deserializer=server_pb2.GetServerResponse.FromString
        )
        try:
            raw = server_pb2.GetServerRequest(name=name).SerializeToString()
            return (await call(raw, metadata=self._tried.metadata, timeout=LIMIT_S)).server
        except grpc.aio.AioRpcError as exc:
            raise Finding(f"GetServer {name}: {outcome(exc, str(case))}") from None

    # The API

    async def try_rpc(self, case: Case, number: int) -> str:
        method = case.place.about["method"]
        made = request(case.place, case.value, f"{self._ports[REVISIONS[0]]}/mcp")
        name = f"added-{number}"
        spec: Any = getattr(made, "spec", None)
        if isinstance(spec, server_pb2.ServerSpec):
            spec.name = name
            if method.name == "UpdateServer":
                plain = server_pb2.ServerSpec(name=name, http=spec.http)
                await self._rpc("/hubbub.v1.ServerService/AddServer", server_pb2.AddServerRequest(spec=plain), case)
        if method.server_streaming:
            return await self._glimpse(method, made, case)
        said = await self._rpc(path(method), made, case)
        if isinstance(spec, server_pb2.ServerSpec) and said == "OK":
            said = await self._in_use(name, case)
        return said

    async def _in_use(self, name: str, case: Case) -> str:
        """A server that was taken with such a number is used; every other one stays for the next hub."""
        spec = call_pb2.CallSpec(server=name, method="ping", params=b"{}")
        said = await self._rpc("/hubbub.v1.CallService/CallMethod", call_pb2.CallMethodRequest(spec=spec), case)
        if name[-1] in "02468":
            await self._rpc("/hubbub.v1.ServerService/RemoveServer", server_pb2.RemoveServerRequest(name=name), case)
        return f"taken: {said}"

    async def _glimpse(self, method: Any, made: Message, case: Case) -> str:
        async def requests() -> Any:
            yield made.SerializeToString()
            await anyio.sleep(0.05)

        channel, metadata = self._tried.channel, self._tried.metadata
        if method.client_streaming:
            call = channel.stream_stream(path(method))(requests(), metadata=metadata, timeout=GLIMPSE_S)
        else:
            call = channel.unary_stream(path(method))(made.SerializeToString(), metadata=metadata, timeout=GLIMPSE_S)
        begun_at = anyio.current_time()
        try:
            async for _ in call:
                pass
        except asyncio.CancelledError:
            return await left_in_time(begun_at, GLIMPSE_S)
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED or exc.details() == "Internal error from Core":
                return "left by its caller"
            if exc.details() == LOCALLY_CANCELLED:
                return await left_in_time(begun_at, GLIMPSE_S)
            return outcome(exc, str(case))
        return "OK"

    async def _rpc(self, rpc: str, made: Any, case: Case) -> str:
        try:
            await self._tried.channel.unary_unary(rpc)(
                made.SerializeToString(), metadata=self._tried.metadata, timeout=WAITING_S
            )
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED and rpc_has_no_end(exc):
                return "left by its caller"
            return outcome(exc, str(case))
        return "OK"

    # The configuration

    async def try_config(self, case: Case, number: int) -> str:
        """Read as a file; what is taken of a server is used."""
        text = case.place.text(case.value)
        kind = f"{number}.{('json', 'toml')[hash_of(number) % 2]}"
        if kind.endswith("toml"):
            text = self._toml(case)
        said = self._load(case, kind, text, {})
        if said == "taken" and case.place.about["server"] is not None:
            await self._reloaded(case)
        return said

    def _toml(self, case: Case) -> str:
        number = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(case.value, case.value)
        return toml(case.place.template).replace(json.dumps(HOLE), number)

    async def try_environment(self, case: Case, number: int) -> str:
        about = case.place.about
        value = f"{about['host']}:{case.value}" if "host" in about else case.value
        return self._load(case, f"{number}.toml", "", {about["variable"]: value})

    def _load(self, case: Case, name: str, text: str, environ: dict[str, str]) -> str:
        if '"tried": {' in text or "[servers.tried]" in text:
            text = text.replace('"tried": {', '"tried": {"url": "http://127.0.0.1:9/", ', 1)
            text = text.replace("[servers.tried]\n", '[servers.tried]\nurl = "http://127.0.0.1:9/"\n', 1)
        file = self._directory / name
        file.write_text(text)
        try:
            load_settings(["--config", str(file)], {"HOME": "/root", **environ})
        except ConfigError:
            return "refused"
        except Exception as exc:  # whatever else it is, is what is looked for
            raise Finding(f"{exc!r}") from exc
        finally:
            file.unlink()
        return "taken"

    async def _reloaded(self, case: Case) -> None:
        text = self._toml(case).partition("[servers.tried]\n")[2]
        url = f'url = "{self._ports[REVISIONS[0]]}/mcp"\n'
        async with self._turns["config"]:
            file = self._directory / "hub.toml"
            for content in (f"{self._config}\n[servers.tried]\n{url}{text}", self._config):
                file.write_text(content)
                await self._rpc("/hubbub.v1.AdminService/ReloadConfig", admin_pb2.ReloadConfigRequest(), case)
                if content is not self._config:
                    spec = call_pb2.CallSpec(server="tried", method="ping", params=b"{}")
                    await self._rpc("/hubbub.v1.CallService/CallMethod", call_pb2.CallMethodRequest(spec=spec), case)


def _result(raw: str) -> str:
    return f'{{"jsonrpc":"2.0","id":@ID@,"result":{raw}}}'


def hash_of(number: int) -> int:
    """Mixes a number, so that a choice by it goes along with no other choice."""
    return (number * 2_654_435_761 >> 7) & 0xFFFF
