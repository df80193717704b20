"""What every part of the screen shares: the application, as far as parts know it."""

from abc import ABCMeta
from collections.abc import Awaitable, Callable, Collection
from typing import Any, ClassVar, Protocol, TypeVar, cast

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widget import Widget

from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_tui.boards import Boards

R = TypeVar("R")


class Application(Protocol):
    """What parts need of the application: methods of `HubbubApp`, which says what each does.

    `HubbubApp` imports the parts; no part imports `HubbubApp`.
    """

    hub: Hub
    who: str | None
    boards: Boards

    def push_screen(self, screen: Screen[R], callback: Callable[[R | None], None] | None = None, /) -> object: ...
    def copy_to_clipboard(self, text: str, /) -> None: ...
    def show_row(self, name: str, key: str) -> None: ...
    def show_outcome(self, request: PendingRequest) -> None: ...
    def show_remembered(self) -> None: ...
    def show_call(self, id_: str) -> None: ...
    def open_repeated_call(self, id_: str) -> None: ...
    def open_request(self, id_: str) -> None: ...
    def open_request_of(self, call: Call) -> None: ...
    def open_first_open(self, ids: Collection[str]) -> None: ...
    def invoke(self, entry: CatalogEntry) -> None: ...
    def cancel_call(self, call: Call, about: str) -> None: ...
    def clear_queue(self, server: str) -> None: ...
    def follow_sessions(self) -> None: ...
    async def claim(self, id_: str, claim_id: str, ttl_s: float, *, take_over: bool) -> None: ...
    def release(self, id_: str, claim_id: str) -> None: ...
    def confirm(self, question: str, action: Callable[[], Awaitable[object]], done: str) -> None: ...
    def start_action(self, action: Awaitable[object], done: str) -> None: ...
    def show_error(self, error: HubbubError) -> None: ...


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
