"""OAuth authorizations: the pending request with the URL to visit, and the loopback listener for the redirect.

The redirect contains an authorization code, so it goes only to the flow that asked, and is neither stored nor shown.
"""

import secrets
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import structlog
from anyio.abc import Listener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbubd.core.inbox import forms
from hubbubd.core.inbox.request_states import Origin, PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition, HubError, InvalidArgument
from hubbubd.runtime.inbox.inbox import Inbox

BROWSER = "browser"
"""The principal of an answer that came by the browser's redirect."""

MAX_REQUEST_BYTES = 16 * 1024
"""Bytes of a browser's request; codes and states of providers have some KiB at most."""
CONNECTION_S = 10.0
"""Seconds that a browser's connection may last."""

MAX_CONNECTIONS = 16
"""The most connections to the redirect address at once; one browser is enough."""

log = structlog.get_logger(__name__)


def authorization_params(server: str, url: str) -> dict[str, Any]:
    """Return the params of the pending request: an elicitation in URL mode (MCP client/elicitation)."""
    return {
        "mode": "url",
        "message": f"The hub needs access to {server}. Open the URL and agree; if the browser then cannot reach "
        "the hub, accept with the address that it shows as redirect_url.",
        "url": url,
        "elicitationId": f"auth_{secrets.token_hex(8)}",
    }


class Authorizations:
    """The open authorizations, and the redirects that answer them: held in memory only, not in stored answers."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._urls: dict[str, str] = {}  # by request, the URL to visit
        self._redirects: dict[str, dict[str, str]] = {}
        """By request, the redirect in the acceptance of each principal."""
        inbox.set_answer_filter(Origin.AUTHORIZATION, self._withhold_redirect)

    async def ask(self, pending: PendingRequest, url: str, redirect_uri: str) -> str:
        """Open the pending request and return the redirect URL of its answer. Raises HubError if nobody gives one."""
        self._urls[pending.id] = url
        self._redirects[pending.id] = {}
        settled, listener = pending, None
        try:
            listener = await self._listen(redirect_uri)
            await self._inbox.open([pending])
            async with anyio.create_task_group() as tasks:
                if listener is not None:
                    tasks.start_soon(
                        listener.serve, partial(self._serve_browser, pending.id, anyio.CapacityLimiter(MAX_CONNECTIONS))
                    )
                settled = await self._inbox.wait(pending.id)
                tasks.cancel_scope.cancel()
            self._inbox.mark_delivered(settled.id)
            return self._require_redirect(settled)
        except BaseException:
            self._inbox.abandon(pending.id, "the hub does not need it any more")
            raise
        finally:
            del self._urls[pending.id], self._redirects[pending.id]
            if listener is not None:
                with anyio.CancelScope(shield=True):  # a cancelled flow frees the port, too
                    await listener.aclose()

    def _require_redirect(self, settled: PendingRequest) -> str:
        """Return the redirect URL of the answer. Raises FailedPrecondition without one."""
        if settled.state is RequestState.ANSWERED:
            redirect = self._redirects[settled.id].get(settled.answered_by or "")
            if redirect is not None:
                return redirect
            raise FailedPrecondition(f"{settled.answered_by} refused the authorization")
        why = settled.reason or str(settled.state)
        raise FailedPrecondition(f"the hub was not authorized: {why}")

    def _withhold_redirect(
        self, request: PendingRequest, answer_input: forms.ClientAnswer, by: str
    ) -> forms.ClientAnswer:
        """Keep the redirect of an acceptance in memory for `ask`, and return the answer without it.

        The redirect has the code of the log-in, and answers are stored.

        Raises InvalidArgument for an acceptance without a redirect of this authorization.
        """
        if not isinstance(answer_input, forms.Accept):
            # A `Result` is an answer in the form of MCP, so it may be an acceptance, too.
            if isinstance(answer_input, forms.Result) and answer_input.result.get("action") == "accept":
                return self._withhold_redirect(request, forms.Accept(answer_input.result.get("content")), by)
            self._redirects.get(request.id, {}).pop(by, None)  # left by an earlier acceptance that was refused
            return answer_input
        match answer_input.content:
            case {"redirect_url": str(redirect), **other_fields} if not other_fields:
                pass
            case _:
                problem = "must be {redirect_url}; opening the URL needs no answer where the browser reaches the hub"
                raise InvalidArgument.field("content", problem)
        if not _has_state_of(redirect, self._urls.get(request.id, "")):
            raise InvalidArgument.field("content.redirect_url", "is not where this authorization leads back to")
        self._redirects.setdefault(request.id, {})[by] = redirect
        return forms.Accept()

    async def _listen(self, redirect_uri: str) -> Listener[SocketStream] | None:
        """Listen at the redirect address; return None if that fails, as a person can still paste the address."""
        address = urlsplit(redirect_uri)
        try:
            listener = await anyio.create_tcp_listener(
                local_host=address.hostname or "127.0.0.1", local_port=address.port or 0
            )
        except OSError as exc:
            log.warning("authorization redirect not served", port=address.port, error=str(exc))
            return None
        return listener

    async def _serve_browser(
        self, request_id: str, connection_limiter: anyio.CapacityLimiter, browser: SocketStream
    ) -> None:
        """Serve one HTTP request of a browser, or of any other program that found the port; drop an incomplete one."""
        try:
            async with connection_limiter, browser:
                with anyio.move_on_after(CONNECTION_S):
                    head = await BufferedByteReceiveStream(browser).receive_until(b"\r\n\r\n", MAX_REQUEST_BYTES)
                    # Shielded: the answer makes `ask` cancel this, and the browser must get its page first.
                    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CONNECTION_S):
                        await browser.send(await self._response_to_browser(request_id, head))
        except (anyio.BrokenResourceError, anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.EndOfStream, OSError):
            return

    async def _response_to_browser(self, request_id: str, head: bytes) -> bytes:
        """Answer the pending request with a browser's redirect, and return an HTTP response that shows the outcome."""
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target = rest.partition(" ")[0]
        if method != "GET" or not _has_state_of(target, self._urls[request_id]):
            return _html_response("400 Bad Request", "This is not what the hub waits for.")
        claim = self._inbox.get(request_id).claim  # a claim must not refuse the redirect: it is answered under it
        acceptance = forms.Accept({"redirect_url": target})
        try:
            await self._inbox.answer(
                request_id, acceptance, BROWSER, answer_id=None, claim_id=claim.id if claim is not None else None
            )
        except HubError:
            return _html_response("410 Gone", "The hub does not wait for this any more.")
        return _html_response("200 OK", "The hub has what it needs. You can close this window.")


def _has_state_of(redirect: str, url: str) -> bool:
    """Return whether a redirect has the `state` of the authorization at `url` (RFC 6749, section 10.12: CSRF)."""
    try:
        expected, actual = (parse_qs(urlsplit(each).query).get("state", [""])[0].encode() for each in (url, redirect))
    except ValueError:
        return False
    return bool(expected) and secrets.compare_digest(expected, actual)


def _html_response(status: str, text: str) -> bytes:
    """Return an HTTP response with a page that says `text`."""
    body = f"<!doctype html><title>Hubbub</title><p>{text}</p>\n".encode()
    head = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "Connection: close",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
