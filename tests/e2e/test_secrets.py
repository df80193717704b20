"""Secrets stay where they belong: canaries in every place, and a look into everything that a hub says and keeps."""

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, event_pb2, inbox_pb2, task_pb2
from hubbub_client import PermissionDenied, ServerSpec, UpstreamError

from .collector import Collector, collecting
from .conftest import LIMIT_S, RunningHub, environment, running, toml

SERVICES = (admin_pb2, call_pb2, catalog_pb2, event_pb2, inbox_pb2, task_pb2)
HARMLESS = ("Get", "List", "Watch", "Call", "Refresh", "Connect", "Set", "Start")
WHO = {"name", "server", "names", "id"}
STREAM_S, CALL_S = 0.5, 5
"""How long a watch is listened to, and a call waited for: some wait for a person who never comes."""

TELLS_ALL = "import os, sys; sys.stderr.write(str(dict(os.environ)) + ' '.join(sys.argv)); sys.exit(3)"
"""A server that dies, and shows all it was given before that."""

TALKS = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        answer = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
    elif "id" in message:
        error = {"code": -32000, "message": "no " + os.environ["APP_KEY"], "data": dict(os.environ)}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""
"""A server that repeats its secret in every error."""


LOGS = """
import logging, structlog
from hubbubd.program import console
from hubbubd.redaction import REDACTION
from hubbubd.telemetry.setup import open_log_sink

REDACTION.set_secrets("test", ["canary-known"])
console.configure_logging(None, open_log_sink({}))
structlog.get_logger("hub").warning("a canary-known", where=["canary-known"], b={"canary-known": "canary-known"})
logging.getLogger("library").warning("of %s", "canary-known")
try:
    raise ValueError("canary-known")
except ValueError:
    structlog.get_logger("hub").exception("failed")
    logging.getLogger("library").exception("failed")
"""
"""What is said without having been an error of the hub's before."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def requests(method: MethodDescriptor, server: str) -> Message:
    """A request that is about a server wherever it can be."""
    request = GetMessageClass(method.input_type)()
    for message in (
        request,
        *(getattr(request, f.name) for f in method.input_type.fields if f.name in ("spec", "filter")),
    ):
        for field in message.DESCRIPTOR.fields:
            if field.name in WHO and field.cpp_type == field.CPPTYPE_STRING:
                if field.is_repeated:
                    getattr(message, field.name).append(server)
                else:
                    setattr(message, field.name, server)
            elif field.name == "method":
                message.method = "tools/list"
    return request


async def everything(hub: RunningHub, servers: list[str]) -> str:
    """What a caller gets to see, of all methods that change nothing, with their errors."""
    said: list[str] = []
    token = json.loads((hub.data_dir / "client.json").read_bytes())["token"]
    metadata = (("authorization", f"Bearer {token}"),)

    async def ask(channel: grpc.aio.Channel, method: MethodDescriptor, server: str) -> None:
        path = f"/{method.containing_service.full_name}/{method.name}"
        raw = requests(method, server).SerializeToString()
        try:
            if method.server_streaming:
                stream = channel.unary_stream(path)(raw, metadata=metadata)
                with anyio.move_on_after(STREAM_S):
                    async for response in stream:
                        said.append(repr(response))  # noqa: PERF401 - the time may end it
                stream.cancel()
            else:
                said.append(repr(await channel.unary_unary(path)(raw, metadata=metadata, timeout=CALL_S)))
        except grpc.aio.AioRpcError as error:
            said.append(f"{error!r} {error.trailing_metadata()!r}")

    async with grpc.aio.insecure_channel(hub.ready["grpc"]) as channel, anyio.create_task_group() as asking:
        for module in SERVICES:
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    if method.name.startswith(HARMLESS) and not method.client_streaming:
                        for server in servers:
                            asking.start_soon(ask, channel, method, server)
    return "".join(said)


def configuration(path: Path, far: str) -> Path:
    """A file with servers that have canaries wherever a secret may stand."""
    python = {"command": sys.executable, "retries": 0}
    servers = {
        "dying": python | {"args": ["-c", TELLS_ALL], "env": {"APP_KEY": "canary-env", "REF": "${CANARY}"}},
        "talking": python | {"args": ["-c", TALKS], "env": {"APP_KEY": "canary-spoken"}},
        "far": {"url": far, "retries": 0, "headers": {"Authorization": "Bearer canary-header", "X-Key": "${CANARY}"}},
        "guarded": {
            "url": far, "retries": 0, "oauth": {"client_id": "hub", "client_secret": "canary-oauth", "issuer": "https://a.example"},
        },
    }  # fmt: skip
    allowed = {"command": sys.executable, "args": ["**"], "env": ["APP_*"]}
    hub_settings = {
        "log_level": "debug",
        "trace_content": True,
        "trust_local": False,
        "allow_commands": [allowed],
        "allow_hosts": ["127.0.0.1"],
        "shutdown_grace_s": 1,
    }
    path.write_text(toml({"hub": hub_settings, "servers": servers}))
    return path


async def test_no_canary_is_in_the_store_the_log_the_telemetry_or_any_answer(
    tmp_path: Path, free_port: int, collector: Collector
) -> None:
    far = f"http://127.0.0.1:{free_port}/mcp?key=canary-query"
    config = configuration(tmp_path / "hub.toml", far)
    log = tmp_path / "hub.log"
    data = tmp_path / "data"
    arguments = ["--config", str(config), "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    environ = environment() | {"CANARY": "canary-variable"} | told
    with log.open("wb") as stderr:
        async with running(arguments, stderr=stderr, env=environ) as hub:
            add = hub.client.servers.add
            spec = ServerSpec
            await add(
                spec(name="added", command=sys.executable, args=["-c", TELLS_ALL], env={"APP_KEY": "canary-added"})
            )
            await add(spec(name="there", url=far.replace("query", "added"), headers={"X-Key": "canary-sent"}))
            with pytest.raises(PermissionDenied) as denied:
                await add(spec(name="no", command="sh", args=["canary-argument"], env={"APP_KEY": "canary-refused"}))
            with pytest.raises(UpstreamError) as failed:
                await hub.client.call("talking", "tools/call", {"name": "x"})
            await hub.watched(
                hub.client.servers.watch(["dying", "far", "guarded", "added", "there"]), lambda s: s.error, 5
            )
            said = await everything(hub, ["dying", "talking", "far", "guarded", "added", "there"])
            said += repr([denied.value, vars(denied.value), failed.value, vars(failed.value)])
            for words in (("status",), ("doctor",), ("servers", "list"), ("calls", "list"), ("logs", "dying")):
                ran = await hub.hubbub(*words)
                said += ran.out + ran.err
            local = json.loads((data / "client.json").read_bytes())["token"]
            await hub.terminate()
    assert "[redacted]" in said  # that is, the dying one's stderr was shown
    assert collector.spans
    assert collector.logs
    assert collector.metrics
    telemetry = repr((collector.spans, collector.logs, collector.metrics))
    kept = b"".join(path.read_bytes() for path in data.glob("hubbub.db*"))
    for place, text in (
        ("an answer", said),
        ("the log", log.read_text()),
        ("the telemetry", telemetry),
        ("the store", kept.decode("latin-1")),
    ):
        assert "canary-" not in text, f"{place}: {text[max(0, text.index('canary-') - 200) :][:400]}"
        assert local not in text, place
    assert '"event": "ready"' not in log.read_text()


def modes(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in [directory, *directory.iterdir()]}


async def test_the_data_directory_and_all_in_it_are_their_owners_only(start_hub: Any, peer_scripts: Path) -> None:
    allowed = {"command": sys.executable, "args": ["**"], "env": ["APP_*"]}
    before = os.umask(0)
    try:
        hub = await start_hub(hub={"allow_commands": [allowed]})
        script = str(peer_scripts / "plain_server.py")
        spec = ServerSpec(name="x", command=sys.executable, args=[script], env={"APP_KEY": "canary-kept"})
        await hub.client.servers.add(spec)
        found = modes(hub.data_dir)
        assert found.pop(hub.data_dir.name) == 0o700
        assert {"hubbub.db", "client.json", "tokens.json"} <= found.keys()
        assert set(found.values()) == {0o600}
        await hub.terminate()
        hub.data_dir.chmod(0o755)
        hub = await start_hub(hub={"allow_commands": [allowed]})
        assert modes(hub.data_dir)[hub.data_dir.name] == 0o700
    finally:
        os.umask(before)


async def test_no_line_of_the_log_has_a_known_secret_whoever_wrote_it() -> None:
    with anyio.fail_after(LIMIT_S):
        ran = await anyio.run_process([sys.executable, "-c", LOGS], env=environment())
    lines = [json.loads(line) for line in ran.stderr.decode().splitlines()]
    assert len(lines) == 4
    assert all("[redacted]" in str(line) for line in lines)
    assert "canary" not in str(lines)
