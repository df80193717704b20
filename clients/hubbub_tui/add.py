"""The dialog that adds a server, by a command or a URL."""

import shlex
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_client.specs import ServerSpec
from hubbub_frontend.text import safe
from hubbub_tui.part import Part

URLS = ("http://", "https://")
MORE = "Other options, such as headers: hubbub servers add --help"


def spec_of(name: str, reached: str) -> ServerSpec:
    """Return the spec of a server; `reached` is a URL, or a command as in a shell.

    Raises ValueError with the reason."""
    if not name:
        raise ValueError("give it a name")
    if not reached:
        raise ValueError("give a command, or a URL that begins with https:// or http://")
    if reached.startswith(URLS):
        return ServerSpec(name=name, url=reached)
    try:
        command, *arguments = shlex.split(reached)
    except ValueError as error:
        raise ValueError(f"the command cannot be read: {error}") from None
    return ServerSpec(name=name, command=command, args=arguments)


class AddServer(Part, ModalScreen[str | None]):
    """Adds a server; returns its name, None when dismissed. What the hub refuses is said here, and can be mended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "add", "Add", priority=True),
        Binding("escape", "leave", "Back"),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Add a server", classes="title", markup=False)
            yield Static("Name", classes="label", markup=False)
            yield Input(id="name", placeholder="time", compact=True)
            yield Static("Command or URL", classes="label", markup=False)
            yield Input(id="reached", placeholder="uvx mcp-server-time, or https://mcp.example.com/mcp", compact=True)
            problem = Static(classes="problem", markup=False)
            problem.display = False
            yield problem
            yield Static(MORE, classes="note", markup=False)
            with Horizontal(classes="buttons"):
                yield Button("Add (ctrl+s)", id="add", variant="success", compact=True)
                yield Button("Back (esc)", id="leave", compact=True)

    def on_mount(self) -> None:
        """Focus the name."""
        self.query_one("#name").focus()

    @on(Button.Pressed)
    async def _pressed(self, event: Button.Pressed) -> None:
        await self.run_action(event.button.id or "leave")

    @on(Input.Submitted)
    def _next(self, event: Input.Submitted) -> None:
        if event.input.id == "name":
            self.query_one("#reached").focus()
        else:
            self.action_add()

    def action_add(self) -> None:
        """Add the server."""
        name, reached = (self.query_one(f"#{each}", Input).value.strip() for each in ("name", "reached"))
        try:
            spec = spec_of(name, reached)
        except ValueError as error:
            self._complain(str(error))
            return
        self.run_worker(self._add(spec), group="add", exclusive=True)

    def action_leave(self) -> None:
        """Go back without a server."""
        self.dismiss(None)

    async def _add(self, spec: ServerSpec) -> None:
        self._complain("")
        try:
            await self.hub_app.hub.servers.add(spec)
        except InvalidArgument as error:
            self._complain("; ".join(problem for _, problem in error.violations) or error.message)
        except HubbubError as error:
            self._complain(error.message)
        else:
            self.dismiss(spec.name)

    def _complain(self, problem: str) -> None:
        said = self.query_one(".problem", Static)
        said.update(f"✗ {safe(problem, 1000)}" if problem else "")
        said.display = bool(problem)
