"""The write stream of a connection, which reports for each answer whether it was handed over."""

from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse

from hubbubd.upstream.messages.codec import NotParsed
from hubbubd.upstream.messages.exchange import CALL, OUTGOING
from hubbubd.upstream.messages.streams import WriteStream

MAX_UNSENT: Final = 1024
"""The most answers that may wait for a server to read them; while so many wait, its messages are not read."""


class ReceiptStream(ObjectSendStream[SessionMessage]):
    """The dispatcher's write stream, which reports for each answer whether it was handed over.

    With `reports_delivery` (HTTP) the transport reports this itself, through the `OutgoingMessage`. Else an answer
    counts as handed over once it is sent.
    """

    def __init__(self, inner: WriteStream, reports_delivery: bool) -> None:
        self._inner = inner
        self._reports_delivery = reports_delivery
        self._unsent_answers = 0
        self.is_full = False
        """Whether MAX_UNSENT answers wait for the server to read them."""
        self._capacity_available = anyio.Event()

    async def wait_for_capacity(self) -> None:
        """Wait until fewer than MAX_UNSENT answers wait for the server to read them."""
        while self.is_full:
            await self._capacity_available.wait()

    async def refuse(self, problem: NotParsed) -> None:
        """Answer a request that was too large to be parsed; a notification gets no answer."""
        if problem.request_id is not None:
            refusal = ErrorData(code=INVALID_REQUEST, message=f"Invalid request: {problem}")
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the receive path reports that
                await self.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=problem.request_id, error=refusal)))

    async def send(self, item: SessionMessage) -> None:
        """Send a message; an answer counts as unsent until it is handed over.

        Raises BrokenResourceError and ClosedResourceError.
        """
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            await self._send_answer(item)
        elif isinstance(item.message, JSONRPCNotification):
            # Its context lives on after it: the GET stream is opened in the context of the first notification.
            call_token, outgoing_token = CALL.set(None), OUTGOING.set(None)
            try:
                await self._inner.send(item)
            finally:
                CALL.reset(call_token)
                OUTGOING.reset(outgoing_token)
        else:
            await self._inner.send(item)

    async def _send_answer(self, item: SessionMessage) -> None:
        """Send an answer, count it while it waits, and report its outcome where the transport does not."""
        answer = OUTGOING.get()
        self._unsent_answers += 1
        self.is_full = self._unsent_answers >= MAX_UNSENT
        try:
            await self._inner.send(item)
        except BaseException:
            if answer is not None:
                answer.settle("the connection closed before the answer was sent")
            raise
        finally:
            self._unsent_answers -= 1
            self.is_full = self._unsent_answers >= MAX_UNSENT
            if self._unsent_answers == MAX_UNSENT - 1:  # wake all waiting tasks; later ones wait for a new event
                self._capacity_available.set()
                self._capacity_available = anyio.Event()
        if answer is not None and not self._reports_delivery:
            answer.settle(None)

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()
