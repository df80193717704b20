"""Sessions of browsers: one-time links, cookies, and a connection to the hub per person."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import anyio

from hubbub_client.hub import Hub
from hubbub_web.push import Subscriber, Subscription

Connect = Callable[[str | None], AbstractAsyncContextManager[Hub]]

MAX_LINKS = 16
MAX_SESSIONS = 64
MAX_NAMES = 32
MAX_CLAIMS = 256


class People:
    """A connection to the hub per name; the least recently used is closed first."""

    def __init__(self, connect: Connect, command: str = "hubbub") -> None:
        """`connect` opens a connection under a name. `command` is what people paste in a terminal to reach the hub."""
        self.command = command
        self._connect = connect
        # By the person's name (None: no name was given), the connection, and the stack that closes it.
        self._hubs: OrderedDict[str | None, tuple[Hub, AsyncExitStack]] = OrderedDict()
        self._open_lock = anyio.Lock()  # so that no name gets two connections

    async def hub(self, name: str | None) -> Hub:
        """Return the connection to the hub under a person's name (None: no name was given); open it at the first use.

        Raises Unavailable. Beyond MAX_NAMES the connection that was not used for the longest time is closed.
        """
        async with self._open_lock:
            if name not in self._hubs:
                self._hubs[name] = await self._open(name)
                if len(self._hubs) > MAX_NAMES:
                    _, (_, oldest) = self._hubs.popitem(last=False)
                    await oldest.aclose()
            self._hubs.move_to_end(name)
            return self._hubs[name][0]

    async def _open(self, name: str | None) -> tuple[Hub, AsyncExitStack]:
        """Return a connection to the hub under a name, and the stack that closes it.

        Without a name, the connection names the credential's own principal, if the hub lets the credential name
        others: a call that names nobody would be the machine's owner's, whose servers may start any command.
        """
        async with AsyncExitStack() as stack:
            hub = await stack.enter_async_context(self._connect(name))
            if name is None and (caller := await hub.admin.whoami()).may_name_others:
                hub = await stack.enter_async_context(self._connect(caller.name))
            return hub, stack.pop_all()

    async def close(self) -> None:
        """Close all connections."""
        for _, stack in self._hubs.values():
            await stack.aclose()


@dataclass(slots=True)
class Session:
    """One browser that has logged in. `token` is what its page sends along; the cookie alone is not enough.

    `claims` maps each claim that a window of this browser may hold to its pending request. `closed_claims` has those of
    closed windows. `claim_lock` serialises claims, releases and answers: none may overtake another.
    """

    people: People
    _: KW_ONLY
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    name: str | None = None
    is_over: bool = False
    claims: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])
    closed_claims: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    claim_lock: anyio.Lock = field(default_factory=anyio.Lock)
    subscription: Subscription | None = None

    def unsubscribe(self, ended: Subscription) -> None:
        """Forget a subscription, unless the browser has another by now."""
        if self.subscription == ended:
            self.subscription = None

    async def hub(self) -> Hub:
        """Return this person's connection to the hub. Raises Unavailable."""
        return await self.people.hub(self.name)

    def remember_claim(self, request_id: str, claim_id: str) -> None:
        """Remember that a window of this browser may hold a claim; beyond MAX_CLAIMS forget the oldest."""
        self.claims[claim_id] = request_id
        self.claims.move_to_end(claim_id)
        if len(self.claims) > MAX_CLAIMS:
            self.claims.popitem(last=False)

    def close_claim(self, claim_id: str) -> None:
        """Forget a claim whose window has left, and have it refused from now on (`closed_claims`)."""
        self.claims.pop(claim_id, None)
        self.closed_claims[claim_id] = None
        if len(self.closed_claims) > MAX_CLAIMS:
            self.closed_claims.popitem(last=False)


class Sessions:
    """All sessions, while the bridge runs."""

    def __init__(self, people: People) -> None:
        self._people = people
        # The secrets of links that were not used yet, and the sessions by their cookies; both oldest first.
        self._links: OrderedDict[str, None] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        # Set by the first subscription to pushes.
        self.subscribed = anyio.Event()

    def subscribe(self, session: Session, subscription: Subscription | None) -> None:
        """Set where the browser of a session gets its pushes; None: no pushes any more."""
        session.subscription = subscription
        if subscription is not None:
            self.subscribed.set()

    def create_link(self) -> str:
        """Return the secret of a new one-time link."""
        secret = secrets.token_urlsafe(32)
        self._links[secret] = None
        if len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        return secret

    def use_link(self, secret: str) -> bool:
        """Use up a link of this bridge; return False if the link was used before, or is unknown."""
        link = next((link for link in self._links if _is_same_secret(link, secret)), None)
        if link is None:
            return False
        del self._links[link]
        return True

    def begin_session(self) -> tuple[str, Session]:
        """Begin a session; return its cookie and the session. Beyond MAX_SESSIONS the oldest one ends."""
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = Session(self._people)
        if len(self._sessions) > MAX_SESSIONS:
            _, oldest = self._sessions.popitem(last=False)
            oldest.is_over = True
        return cookie, self._sessions[cookie]

    def subscribers(self) -> list[Subscriber]:
        """Return the browsers that want pushes and whose sessions have not ended, one for each endpoint."""
        subscribers: dict[str, Subscriber] = {}
        for session in self._sessions.values():
            if session.subscription is not None:
                end = partial(session.unsubscribe, session.subscription)
                subscribers[session.subscription.endpoint] = Subscriber(session.subscription, end)
        return list(subscribers.values())

    def find(self, cookie: str | None, token: str | None) -> Session | None:
        """Return the session that has both this cookie and this token; None if there is none."""
        session = self._sessions.get(cookie or "")
        return session if session is not None and _is_same_secret(session.token, token or "") else None

    def end_session(self, session: Session) -> None:
        """Log a browser out, and end its streams."""
        session.is_over = True
        for cookie in [cookie for cookie, other in self._sessions.items() if other is session]:
            del self._sessions[cookie]


def _is_same_secret(expected: str, received: str) -> bool:
    """Return whether two secrets are equal, in constant time."""
    return hmac.compare_digest(expected.encode(), received.encode("utf-8", "replace"))
