"""HTTP as bytes on every HTTP port and that of `hubbub web`: broken, in odd pieces, too long, or twice in a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from .chance import Chance
from .page import page
from .subject import Finding, Tally, drive, peer, subject

GLIMPSE_S = 0.05
"""How long an answer is waited for; most of what is sent gets none, as it is no whole request."""

UNREAD_S = 1.0
"""How long it is tried to send more: nothing is read behind a request whose response does not end."""

STATUSES = {200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 413, 415, 421, 429, 431, 503}
TARGETS = ("/mcp", "/metrics", "/hubbub.v1.AdminService/GetSelf", "/grpc.health.v1.Health/Check", "/openapi.json", "*")
OF_THE_PAGE = ("/", "/api/me", "/api/feed", "/api/events", "/api/login", "/api/x", "/static/js/list.js", "/sw.js", "*")
METHODS = ("OPTIONS", "DELETE", "CONNECT", "PRI", "X")
VERSIONS = ("HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.1 ", "")
LENGTHS = ("0", "-1", "+2", "2, 2", "0x2", "99999999999999999999", "1e3", "")
CODINGS = ("Chunked", "gzip, chunked", "chunked, chunked", "identity", " chunked", "x")
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


@dataclass(frozen=True)
class Port:
    """Where requests are sent. `right` are header lines of those that are let in, `wrong` of strangers."""

    number: int
    targets: Sequence[str]
    right: Sequence[str]
    wrong: Sequence[str] = ("host: localhost",)


async def framing(tally: Tally, seed: int, directory: Path) -> None:
    """Sends requests to each port, most of them with one thing wrong, and looks at what is left behind."""
    settings = {
        "mcp_listen": "127.0.0.1:0",
        "connect_listen": "127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0",
        "max_message_bytes": 200_000,
    }
    async with (
        subject(directory, {"toy": peer("2026-07-28")}, settings) as tried,
        page(tried.hub.data_dir, directory / "page.log") as shown,
    ):
        await tried.hub.connected("toy")
        await tried.note_rest()
        (_, token), *_ = tried.metadata
        let_in = ("host: localhost", f"authorization: {token}")
        ready = [str(tried.hub.ready[name]) for name in ("mcp", "connect", "metrics")]
        ports = [Port(_number(url), TARGETS, let_in) for url in ready]
        ports.append(Port(shown.port, OF_THE_PAGE, shown.right))

        async def one(number: int) -> str:
            chance = Chance(seed, "framing", number)
            port = chance.of(ports)
            return await _sent(port.number, _pieces(chance, port))

        async def note_memory() -> None:
            await tried.note_memory()
            shown.note_memory()

        await drive(tally, one, width=8, halfway=note_memory)
        await tried.hub.client.call_tool("toy", "echo", {"text": "x"})
        await shown.judge(tally)
        await tried.judge(tally)


def _number(url: str) -> int:
    return int(url.partition("://")[2].partition("/")[0].rpartition(":")[2])


def _pieces(chance: Chance, port: Port) -> list[bytes]:
    """One request or several in a row, cut where chance wants."""
    said = b"".join(_request(chance, port) for _ in range(chance.of((1, 1, 1, 2, 40))))
    if chance.one_in(3):
        said = chance.broken(said)
    if chance.one_in(4):
        at = chance.upto(len(said))
        return [said[:at], said[at:]]
    if chance.one_in(10):
        return [said[at : at + 1] for at in range(min(len(said), 300))]
    return [said]


def _request(chance: Chance, port: Port) -> bytes:
    """A request with about one thing wrong; nothing in one of a few."""

    def usually(right: str, odd: Sequence[str]) -> str:
        return chance.of(odd) if chance.one_in(8) else right

    method = usually(chance.of(("POST", "POST", "GET", "HEAD")), METHODS)
    lines = [f"{method} {chance.of(port.targets)} {usually('HTTP/1.1', VERSIONS)}".rstrip()]
    lines += port.right if chance.one_in(2) else port.wrong
    lines.append("content-type: application/json")
    body = b"{}" if method == "POST" else b""
    if chance.one_in(3):
        lines.append(f"transfer-encoding: {usually('chunked', CODINGS)}")
        body = _chunks(chance)
    elif body or chance.one_in(8):
        lines.append(f"content-length: {usually(str(len(body)), LENGTHS)}")
    if chance.one_in(12):
        lines.append(f"content-length: {chance.of(LENGTHS)}")
    if chance.one_in(6):
        lines += [
            f"{chance.of(FIELDS)}: {VALUES[-1] if chance.one_in(20) else chance.of(VALUES[:-1])}"
            for _ in range(chance.of((1, 2, 300)))
        ]
    return "\r\n".join((*lines, "", "")).encode() + body


def _chunks(chance: Chance) -> bytes:
    """A body in chunks: `{}` where nothing is wrong with it."""
    match chance.upto(7):
        case 0:
            return chance.of((10, 5000)) * b"1\r\na\r\n" + b"0\r\n\r\n"
        case 1 | 2:
            chunks = [f"{chance.of(SIZES)}\r\n".encode() + chance.noise(8) + b"\r\n" for _ in range(chance.upto(4))]
            return b"".join(chunks) + b"0\r\n\r\n"
        case _:
            return b"1\r\n{\r\n1\r\n}\r\n0\r\n" + chance.of((0, 0, 1, 400)) * b"x-trailer: y\r\n" + b"\r\n"


async def _sent(port: int, pieces: list[bytes]) -> str:
    """What came of it. Raises Finding for a status that is none of ours."""
    answer, end = b"", "left"
    try:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            with anyio.move_on_after(UNREAD_S):
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
