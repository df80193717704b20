"""Lets browsers in: by a link of this bridge, or by one out of a notification."""

import anyio.to_thread

from hubbub_client.errors import NotFound, Unauthenticated
from hubbub_frontend.links import Links, PageLink
from hubbub_web.access.sessions import People, Sessions

ANOTHER = "open the page where you are logged in, or run `hubbub web` for another link"


class Entrance:
    """All links that let a browser in, each once."""

    def __init__(self, sessions: Sessions, people: People, links: Links | None) -> None:
        self._sessions = sessions
        self._people = people
        self._links = links

    async def use(self, secret: str) -> str | None:
        """Use a link up, and return where it leads; None for a link of this bridge, which leads to the inbox.

        A link of a notification about one question is good only while that question is open. Raises Unauthenticated,
        which says why a link is useless. Raises HubbubError if the hub cannot say whether the question is open; then
        the link stays good.
        """
        if self._sessions.use_link(secret):  # links of this bridge are kept there, links of notifications in `_links`
            return None
        link = await self._find(secret)
        if link is None:
            raise Unauthenticated(
                f"this link has been used, or is not one of this bridge; {ANOTHER}", reason="LINK_USED"
            )
        if link.is_expired:
            raise Unauthenticated(f"this link has expired; {ANOTHER}", reason="LINK_EXPIRED")
        if link.request is not None and not await self._is_open(link.request):
            raise Unauthenticated(
                f"the question of this link does not wait any more, so the link lets nobody in; {ANOTHER}",
                reason="LINK_SETTLED",
            )
        # Another browser may have used the link since it was found.
        if self._links is None or not await anyio.to_thread.run_sync(self._links.use, secret):
            raise Unauthenticated(f"this link has been used; {ANOTHER}", reason="LINK_USED")
        return link.to

    async def _find(self, secret: str) -> PageLink | None:
        """Return the link of a notification that has this secret; None if there is none."""
        if self._links is None:
            return None
        return await anyio.to_thread.run_sync(self._links.find, secret)

    async def _is_open(self, request_id: str) -> bool:
        """Return whether a pending request waits for an answer. Raises HubbubError."""
        hub = await self._people.hub(None)  # nobody has logged in yet, so there is no name
        try:
            return (await hub.inbox.get(request_id)).state == "open"
        except NotFound:
            return False
