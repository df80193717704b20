"""Walks the addresses of a hub to the first that answers; the next one is tried beside one that is slow."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from grpc import aio

from hubbub_client.transport.channel import is_ready, is_refused
from hubbub_client.transport.discovery import HubAddress

# After this time without an answer the next address is tried as well.
STAGGER_S = 0.25
# Seconds for the last address to answer, before all are looked up again.
ROUND_S = 1.0
POLL_S = 0.005


class Walk:
    """One walk over endpoints in order; `channel_to` returns the channel to one."""

    def __init__(self, endpoints: Sequence[HubAddress], channel_to: Callable[[HubAddress], aio.Channel]) -> None:
        self._untried = deque(endpoints)
        self._channel_to = channel_to
        self._tried: list[tuple[HubAddress, aio.Channel]] = []

    async def find_connected(self, may_continue: Callable[[], bool], *, patient: bool) -> HubAddress | None:
        """Try the endpoints in order until one is connected, and return it.

        Return None once `may_continue` returns False, once ROUND_S are over after the last was tried, or, if not
        `patient`, once all have `refused`.
        """
        clock = asyncio.get_running_loop()
        last_start = clock.time() - STAGGER_S  # so that the first is tried at once
        while may_continue():
            waited_s = clock.time() - last_start
            if self._untried and (waited_s >= STAGGER_S or is_refused(self._tried[-1][1])):
                last_start, endpoint = clock.time(), self._untried.popleft()
                self._tried.append((endpoint, self._channel_to(endpoint)))
            # Polled, since a wait for a channel's next state cannot be cancelled.
            connected = next((each for each, channel in self._tried if is_ready(channel, connect=True)), None)
            if connected is not None:
                return connected
            if not self._untried and (waited_s >= ROUND_S or (self.refused and not patient)):
                break
            await asyncio.sleep(POLL_S)
        return None

    @property
    def refused(self) -> bool:
        """Return whether all endpoints were tried, and the last attempt to connect to each has failed."""
        return not self._untried and all(is_refused(channel) for _, channel in self._tried)


def order_to_try(endpoints: Sequence[HubAddress], current: str | None, failed: str | None) -> Sequence[HubAddress]:
    """Return endpoints in the order to try them: from the `current` address on.

    Without one, from the address after the one that `failed` last; without either, from the first.
    """
    addresses = [each.address for each in endpoints]
    if current in addresses:
        start = addresses.index(current)
    elif failed in addresses:
        start = addresses.index(failed) + 1
    else:
        start = 0
    return [*endpoints[start:], *endpoints[:start]]
