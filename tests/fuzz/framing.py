"""HTTP as bytes on every HTTP port: framing that is broken, in odd pieces, too long, or twice in a row."""

from pathlib import Path

import anyio
from anyio.abc import SocketStream

from .chance import Chance
from .subject import Finding, Tally, drive, peer, subject

GLIMPSE_S = 0.05
"""How long an answer is waited for; most of what is sent gets none, as it is no whole request."""

ENDS = ("left", "closed")
STATUSES = {200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 413, 415, 421, 429, 431, 503}
TARGETS = ("/mcp", "/metrics", "/hubbub.v1.AdminService/GetSelf", "/grpc.health.v1.Health/Check", "/openapi.json", "*")
METHODS = ("POST", "POST", "GET", "HEAD", "OPTIONS", "DELETE", "CONNECT", "PRI", "X")
VERSIONS = ("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.1 ", "")
LENGTHS = ("0", "2", "-1", "+2", "2, 2", "0x2", "99999999999999999999", "1e3", "")
CODINGS = ("chunked", "Chunked", "gzip, chunked", "chunked, chunked", "identity", " chunked", "x")
FIELDS = ("connection", "expect", "upgrade", "te", "trailer", "host", "content-length", "transfer-encoding", "x")
VALUES = (
    "close",
    "keep-alive",
    "100-continue",
    "h2c",
    "Upgrade, HTTP2-Settings",
    "websocket",
    "trailers",
    "x" * 70_000,
)
SIZES = ("1", "2", "0", "ffff", "-1", "fffffffffffffffff", "1;x=y", "1 ", "", "g", "00000000001")


async def framing(tally: Tally, seed: int, directory: Path) -> None:
    """Sends requests to each port, most of them with one thing wrong, and looks at what is left behind."""
    settings = {
        "mcp_listen": "127.0.0.1:0",
        "connect_listen": "127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0",
        "max_message_bytes": 200_000,
    }
    async with subject(directory, {"toy": peer("2026-07-28")}, settings) as tried:
        await tried.hub.connected("toy")
        await tried.note_rest()
        (_, right), *_ = tried.metadata
        ports = [_port(str(tried.hub.ready[name])) for name in ("mcp", "connect", "metrics")]

        async def one(number: int) -> str:
            chance = Chance(seed, "framing", number)
            return await _sent(chance.of(ports), _pieces(chance, right))

        await drive(tally, one, width=8, halfway=tried.note_memory)
        await tried.hub.client.call_tool("toy", "echo", {"text": "x"})
        await tried.judge(tally)


def _port(url: str) -> int:
    return int(url.partition("://")[2].partition("/")[0].rpartition(":")[2])


def _pieces(chance: Chance, right: str) -> list[bytes]:
    """One request or several in a row, cut where chance wants."""
    said = b"".join(_request(chance, right) for _ in range(chance.of((1, 1, 1, 2, 40))))
    if chance.one_in(3):
        said = chance.broken(said)
    if chance.one_in(4):
        at = chance.upto(len(said))
        return [said[:at], said[at:]]
    if chance.one_in(10):
        return [said[at : at + 1] for at in range(min(len(said), 300))]
    return [said]


def _request(chance: Chance, right: str) -> bytes:
    lines = [f"{chance.of(METHODS)} {chance.of(TARGETS)} {chance.of(VERSIONS)}".rstrip(), "host: localhost"]
    if chance.one_in(2):
        lines.append(f"authorization: {right}")
    lines.append("content-type: application/json")
    body = b"{}"
    if chance.one_in(2):
        lines.append(f"transfer-encoding: {chance.of(CODINGS)}")
        body = _chunks(chance)
    if chance.one_in(2):
        lines.append(f"content-length: {chance.of(LENGTHS)}")
    lines += [
        f"{chance.of(FIELDS)}: {VALUES[-1] if chance.one_in(200) else chance.of(VALUES[:-1])}"
        for _ in range(chance.of((0, 0, 1, 2, 300)))
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


def _chunks(chance: Chance) -> bytes:
    if chance.one_in(3):
        return chance.of((10, 5000)) * b"1\r\na\r\n" + b"0\r\n\r\n"
    chunks = [f"{chance.of(SIZES)}\r\n".encode() + chance.noise(8) + b"\r\n" for _ in range(chance.upto(4))]
    trailers = chance.of((0, 0, 1, 400)) * b"x-trailer: y\r\n"
    return b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"


async def _sent(port: int, pieces: list[bytes]) -> str:
    """What came of it. Raises Finding for a status that is none of ours."""
    answer, end = b"", "left"
    try:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            for piece in filter(None, pieces):
                await stream.send(piece)
            answer = await _answer(stream)
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        end = "closed"
    if not answer:
        return end
    status = answer[9:12].decode("ascii", "replace")
    if not answer.startswith(b"HTTP/1.1 ") or not status.isdigit() or int(status) not in STATUSES | {100}:
        raise Finding(f"{answer[:200]!r} to {b''.join(pieces)[:1000]!r}")
    return status


async def _answer(stream: SocketStream) -> bytes:
    with anyio.move_on_after(GLIMPSE_S):
        return await stream.receive()
    return b""
