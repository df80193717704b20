"""`hubbub inbox watch --webhook`: a signed POST for every pending request that opens."""

import hashlib
import hmac
import ipaddress
import json
import os
import random
import re
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import anyio

from hubbub_cli.output.printer import note
from hubbub_cli.run.session import Usage
from hubbub_client.data.records import PendingRequest

ERRNO_PREFIX = re.compile(r"\[Errno -?\d+\] ")
"""What Python writes before the words of an error of the system."""

if TYPE_CHECKING:
    import httpx2

SECRET_VARIABLE = "HUBBUB_WEBHOOK_SECRET"  # noqa: S105 - the name of the variable that has it
# Time limit of one attempt, seconds.
TIMEOUT_S = 10.0
# Backoff before each attempt after the first, seconds, with a jitter of up to half.
RETRY_PAUSES_S = (0.5, 2.0, 8.0, 30.0)
RETRIED_STATUSES = frozenset((408, 425, 429))


class Webhook:
    """A url of the person who watches. It gets the pending request and a signature, never the hub's token.

    Body: the record as JSON. Headers: `Hubbub-Request-Id`, an idempotency key; with a secret `Hubbub-Signature:
    t=SECONDS,v1=HEX`, the HMAC-SHA256 of `SECONDS.BODY`. A status of 2xx accepts it. Failures that can pass (no
    response, 408, 425, 429, 5xx) are retried, up to five attempts in all.
    """

    def __init__(self, url: str, secret: str | None) -> None:
        self._url = url
        self._secret = secret.encode() if secret else None
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        """Open the HTTP client for the block."""
        import httpx2

        # Redirects are not followed, since they could lead anywhere. A proxy of the environment must not get loopback
        # requests.
        self._client = httpx2.AsyncClient(
            timeout=None, follow_redirects=False, trust_env=not _is_loopback(urlsplit(self._url).hostname or "")
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the HTTP client, with its connections."""
        if self._client is not None:
            await self._client.aclose()

    async def deliver(self, request: PendingRequest) -> None:
        """Post a pending request; report on stderr if it was not accepted."""
        body = json.dumps(request.to_json(), ensure_ascii=False).encode()
        problem = ""
        for pause_s in (0.0, *RETRY_PAUSES_S):
            await anyio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 - jitter, not a secret
            problem, may_pass = await self._post(request.id, body)
            if not problem:
                return
            if not may_pass:
                break
        note(f"{request.id}: the webhook did not take it: {problem}")

    async def _post(self, id_: str, body: bytes) -> tuple[str, bool]:
        """Post a body once; return what went wrong, empty if nothing, and whether a retry may help."""
        import httpx2

        assert self._client is not None
        headers = {"Content-Type": "application/json", "Hubbub-Request-Id": id_, **self._make_signature_header(body)}
        try:
            with anyio.fail_after(TIMEOUT_S):
                async with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                    status = answer.status_code
        except TimeoutError:
            return f"no answer within {TIMEOUT_S:g} s", True
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return f"{type(error).__name__}: {ERRNO_PREFIX.sub('', str(error))}", True
        if 200 <= status < 300:
            return "", False
        return f"HTTP status {status}", status in RETRIED_STATUSES or status >= 500

    def _make_signature_header(self, body: bytes) -> dict[str, str]:
        """Return the header that signs a body; empty without a secret."""
        if self._secret is None:
            return {}
        moment = int(time.time())
        digest = hmac.new(self._secret, f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
        return {"Hubbub-Signature": f"t={moment},v1={digest}"}


def make_webhook(url: str) -> Webhook:
    """Return the webhook at a url: https, or http on loopback. Raises Usage."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port  # a wrong port raises when it is read
    except ValueError as error:
        raise Usage(f"--webhook: {error}") from None
    if not host or parts.scheme not in ("http", "https"):
        raise Usage("--webhook needs an https url")
    if parts.scheme == "http" and not _is_loopback(host):
        raise Usage("--webhook: what is asked may be confidential; use https, or http on this machine only")
    secret = os.environ.get(SECRET_VARIABLE)
    if not secret:
        note(f"the webhook is not signed: {SECRET_VARIABLE} is not set")
    return Webhook(url, secret)


def _is_loopback(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
