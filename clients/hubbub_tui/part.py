"""What every part of the screen has: the application that shows it, as far as parts know of it."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, TypeVar, cast

from textual.screen import Screen

from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.records import Call, CatalogEntry
from hubbub_tui.boards import Boards

R = TypeVar("R")


class Application(Protocol):
    """What parts ask of the application. `HubbubApp` knows each part; no part knows it."""

    hub: Hub
    who: str | None
    boards: Boards

    def push_screen(self, screen: Screen[R], callback: Callable[[R | None], None] | None = None, /) -> object:
        """Shows a screen over the others; the callback gets what it ends with."""
        ...

    def copy_to_clipboard(self, text: str, /) -> None:
        """Puts a text where the terminal pastes from."""
        ...

    def show(self, name: str, key: str) -> None:
        """Shows one row of a pane."""
        ...

    def show_call(self, id_: str) -> None:
        """Shows a call by itself, live."""
        ...

    def open_request(self, id_: str) -> None:
        """Opens a pending request to be answered."""
        ...

    def answer_for(self, call: Call) -> None:
        """Opens the pending request that a call waits for."""
        ...

    def answer_one_of(self, ids: Collection[str]) -> None:
        """Opens the first of these pending requests that is open."""
        ...

    def use(self, entry: CatalogEntry) -> None:
        """Calls, reads or gets an entry of the catalog."""
        ...

    def cancel_call(self, call: Call, about: str) -> None:
        """Cancels a call, once that is confirmed."""
        ...

    def clear_queue(self, server: str) -> None:
        """Cancels all that waits in a server's queue, once that is confirmed."""
        ...

    def release(self, id_: str, claim_id: str) -> None:
        """Gives a claim back."""
        ...

    def confirm(self, question: str, work: Callable[[], Awaitable[object]], done: str) -> None:
        """Does something once that is confirmed."""
        ...

    def do(self, work: Awaitable[object], done: str) -> None:
        """Does something, and says how it went."""
        ...

    def tell(self, error: HubbubError) -> None:
        """Says what the hub refused."""
        ...


class Part:
    """Mixed into widgets and screens of this package."""

    @property
    def hub_app(self) -> Application:
        """The application that they are shown by."""
        return cast("Application", cast("Any", self).app)
