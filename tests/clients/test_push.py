"""Web push: a push service of the test's own, and a browser that opens what it gets by RFC 8291."""

import json
import stat
from base64 import urlsafe_b64decode
from functools import partial
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    SECP256R1,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hubbub_client.errors import InvalidArgument
from hubbub_notify.push import PADDED_BYTES, Browser, Keys
from hubbub_notify.text import Notice
from hubbub_web.push import PUSH_HOSTS, parse_subscription

from ..http_sink import answering

NOTICE = Notice("0123456789abcdef", "deploy asks", "It waits for a form to fill in.", "request/req_1", ("req_1",))
AUTH = bytes(range(16))
PRIVATE = generate_private_key(SECP256R1())
PUBLIC = PRIVATE.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def derived(salt: bytes, key: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(key)


def opened(sealed: bytes) -> bytes:
    """RFC 8291, section 3.4, and RFC 8188, section 2: what the browser reads."""
    salt, size, length = sealed[:16], int.from_bytes(sealed[16:20], "big"), sealed[20]
    sender = sealed[21 : 21 + length]
    shared = PRIVATE.exchange(ECDH(), EllipticCurvePublicKey.from_encoded_point(SECP256R1(), sender))
    key = derived(AUTH, shared, b"WebPush: info\0" + PUBLIC + sender, 32)
    content, nonce = (
        derived(salt, key, b"Content-Encoding: aes128gcm\0", 16),
        derived(salt, key, b"Content-Encoding: nonce\0", 12),
    )
    body = sealed[21 + length :]
    assert len(body) <= size
    plain = AESGCM(content).decrypt(nonce, body, None).rstrip(b"\0")
    assert plain[-1:] == b"\2"
    return plain[:-1]


def browser(endpoint: str, folder: Path, gone: list[str] | None = None) -> Browser:
    ended = gone if gone is not None else []
    keys = Keys(folder / "push.pem")
    gone_now = partial(ended.append, "gone")
    return Browser(endpoint=endpoint, p256dh=PUBLIC, auth=AUTH, keys=keys, contact=None, on_unsubscribed=gone_now)


async def test_only_the_browser_can_read_a_push(tmp_path: Path) -> None:
    async with answering([], then=201, path="/send/secret") as (endpoint, came):
        assert await browser(endpoint, tmp_path).send(NOTICE) == ("sent", "")
    ((headers, body),) = came
    assert json.loads(opened(body)) == {
        "id": "0123456789abcdef",
        "title": "deploy asks",
        "body": "It waits for a form to fill in.",
        "to": "request/req_1",
    }
    assert headers["content-encoding"] == "aes128gcm"
    assert headers["topic"] == NOTICE.id
    assert int(headers["ttl"]) > 0
    assert b"deploy" not in body


async def test_a_push_is_signed_for_its_push_service_alone(tmp_path: Path) -> None:
    async with answering([], then=201, path="/send/secret") as (endpoint, came):
        await browser(endpoint, tmp_path).send(NOTICE)
    scheme, _, rest = came[0][0]["authorization"].partition(" ")
    signed, public = (part.partition("=")[2] for part in rest.split(", "))
    assert scheme == "vapid"
    point = urlsafe_b64decode(public + "==")
    key = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point)
    claims = jwt.decode(signed, key, ["ES256"], audience=endpoint.removesuffix("/send/secret"))
    assert claims["sub"].startswith("mailto:")


async def test_all_messages_have_one_length_also_those_that_are_too_long(tmp_path: Path) -> None:
    long = Notice("1" * 16, "3 questions wait", "ä" * 9000, "inbox")
    async with answering([], then=201, path="/send/secret") as (endpoint, came):
        for each in (NOTICE, long):
            await browser(endpoint, tmp_path).send(each)
    assert {len(body) for _, body in came} == {len(came[0][1])}
    assert len(came[0][1]) <= 4096
    assert len(opened(came[1][1])) == PADDED_BYTES
    assert json.loads(opened(came[1][1]))["body"].endswith("ä…")


@pytest.mark.parametrize(
    ("status", "said", "ended"),
    [
        (410, "gave_up", True),
        (404, "gave_up", True),
        (429, "failed", False),
        (503, "failed", False),
        (403, "gave_up", False),
    ],
)
async def test_what_a_push_service_says_decides_whether_it_is_tried_again(
    tmp_path: Path, status: int, said: str, ended: bool
) -> None:
    gone: list[str] = []
    async with answering([status], then=201, path="/send/secret") as (endpoint, _):
        assert (await browser(endpoint, tmp_path, gone).send(NOTICE))[0] == said
    assert bool(gone) is ended


async def test_a_push_service_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    async with answering([], then=201, path="/send/secret") as (endpoint, _):
        pass
    said, why = await browser(endpoint, tmp_path).send(NOTICE)
    assert said == "failed"
    assert "secret" not in why


async def test_a_browser_whose_key_is_none_ends_its_subscription_alone(tmp_path: Path) -> None:
    gone: list[str] = []
    keys, off_the_curve = Keys(tmp_path / "push.pem"), b"\4" + b"\1" * 64
    async with answering([], then=201, path="/send/secret") as (endpoint, came):
        made = Browser(
            endpoint=endpoint,
            p256dh=off_the_curve,
            auth=AUTH,
            keys=keys,
            contact=None,
            on_unsubscribed=partial(gone.append, "gone"),
        )
        assert await made.send(NOTICE) == ("gave_up", "its key cannot be used")
    assert (gone, came) == (["gone"], [])


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_damaged_file_of_keys_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "push.pem").write_bytes(content)
    with pytest.raises(ValueError, match=r"push\.pem has no key of the curve P-256; delete it"):
        Keys(tmp_path / "push.pem")


def test_the_keys_stay_the_same_and_are_their_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "notify" / "push.pem"
    assert Keys(file).public == Keys(file).public
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in repr(browser("https://x/secret", tmp_path))


GOOD = {
    "endpoint": "https://fcm.googleapis.com/fcm/send/abc",
    "keys": {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    },
}


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://fcm.googleapis.com/fcm/send/abc",
        "https://updates.push.services.mozilla.com/wpush/v2/x",
        "https://db5p.notify.windows.com/w/?token=x",
        "https://web.push.apple.com/x",
    ],
)
def test_push_services_of_browsers_are_known(endpoint: str) -> None:
    assert parse_subscription(GOOD | {"endpoint": endpoint}, PUSH_HOSTS).endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        None,
        5,
        "",
        "http://fcm.googleapis.com/x",
        "https://127.0.0.1/x",
        "https://169.254.169.254/latest",
        "https://fcm.googleapis.com.evil.example/x",
        "https://fcm.googleapis.com@evil.example/x",
        "https://user@fcm.googleapis.com/x",
        "file:///etc/passwd",
        "https://[::1",
        "https://fcm.googleapis.com:99999999/x",
        "https://fcm.googleapis.com/" + "x" * 3000,
        "https://fcm.googleapis.com/\ud800",
    ],
)
def test_a_page_cannot_have_the_bridge_send_elsewhere(endpoint: object) -> None:
    with pytest.raises(InvalidArgument, match="--push-host"):
        parse_subscription(GOOD | {"endpoint": endpoint}, PUSH_HOSTS)


@pytest.mark.parametrize(
    "keys", [None, [], {}, {"p256dh": "AAAA", "auth": "AAAA"}, {"p256dh": 5, "auth": None}, {"p256dh": "ä" * 87}]
)
def test_keys_that_cannot_be_used_are_refused(keys: object) -> None:
    with pytest.raises(InvalidArgument, match="keys"):
        parse_subscription(GOOD | {"keys": keys}, PUSH_HOSTS)
