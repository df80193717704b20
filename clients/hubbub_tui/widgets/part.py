"""What every part of the screen shares: the application, as far as parts know it."""

from abc import ABCMeta
from collections.abc import Awaitable, Callable, Collection
from typing import Any, ClassVar, Protocol, TypeVar, cast

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widget import Widget

from hubbub_client.data.records import Call, CatalogEntry, PendingRequest
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_tui.boards import Boards

R = TypeVar("R")


class Application(Protocol):
    """What parts need of the application. `HubbubApp` knows each part; no part knows it."""

    hub: Hub
    who: str | None
    boards: Boards

    def push_screen(self, screen: Screen[R], callback: Callable[[R | None], None] | None = None, /) -> object:
        """Show a screen over the others; the callback gets its result."""
        ...

    def copy_to_clipboard(self, text: str, /) -> None:
        """Copy a text to the clipboard of the terminal."""
        ...

    def show(self, name: str, key: str) -> None:
        """Show one row of a pane."""
        ...

    def show_outcome(self, request: PendingRequest) -> None:
        """Show an answer that was accepted, and what the call that asked returns."""
        ...

    def show_call(self, id_: str) -> None:
        """Show one call, live."""
        ...

    def call_again(self, id_: str) -> None:
        """Open the form of what a call used, filled in as before."""
        ...

    def open_request(self, id_: str) -> None:
        """Open a pending request to answer it."""
        ...

    def answer_for(self, call: Call) -> None:
        """Open the pending request that a call waits for."""
        ...

    def answer_one_of(self, ids: Collection[str]) -> None:
        """Open the first of these pending requests that is open."""
        ...

    def use(self, entry: CatalogEntry) -> None:
        """Call, read or get an entry of the catalog."""
        ...

    def cancel_call(self, call: Call, about: str) -> None:
        """Cancel a call after confirmation."""
        ...

    def clear_queue(self, server: str) -> None:
        """Cancel all queued calls of a server after confirmation."""
        ...

    async def claim(self, id_: str, claim_id: str, ttl_s: float, *, take_over: bool) -> None:
        """Claim a pending request, or renew its claim. Raises HubbubError."""
        ...

    def release(self, id_: str, claim_id: str) -> None:
        """Release a claim."""
        ...

    def confirm(self, question: str, work: Callable[[], Awaitable[object]], done: str) -> None:
        """Run an action after confirmation."""
        ...

    def do(self, work: Awaitable[object], done: str) -> None:
        """Run an action, and report its outcome."""
        ...

    def tell(self, error: HubbubError) -> None:
        """Show what the hub refused."""
        ...


UP_DOWN: tuple[Binding, ...] = (
    Binding("j", "cursor_down", show=False),
    Binding("k", "cursor_up", show=False),
)
"""Keys of a list beside the arrows."""


class Scroll(VerticalScroll, can_focus=True):
    """A text to scroll, with the keys of the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
    ]


class AbstractWidget(ABCMeta, type(Widget)):
    """Metaclass of widgets with abstract methods."""


class Part:
    """Mixin for widgets and screens of this package."""

    @property
    def hub_app(self) -> Application:
        """Return the application that shows this part."""
        return cast("Application", cast("Any", self).app)
