"""The dialog that adds a server, by a command or a URL."""

import shlex
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static, TextArea

from hubbub_client.data.specs import ServerSpec
from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_frontend.display.text import safe_text
from hubbub_frontend.shell_commands import with_hub_options
from hubbub_tui.widgets.part import Part

URLS = ("http://", "https://")
MORE = "Other options: hubbub servers add --help"
# What goes with a command, and with a URL: its name, and the mark between a name and a value.
VARIABLES, HEADERS = ("Environment variables", "="), ("Headers", ": ")


def spec_of(name: str, reached: str, more: str = "") -> ServerSpec:
    """Return the spec of a server; `reached` is a URL, or a command as in a shell; `more` has headers of a URL, or
    environment variables of a command, one a line.

    Raises ValueError with the reason."""
    if not name:
        raise ValueError("give it a name")
    if not reached:
        raise ValueError("give a command, or a URL that begins with https:// or http://")
    if reached.lower().startswith(URLS):
        return ServerSpec(name=name, url=reached, headers=_pairs(more, *HEADERS))
    try:
        command, *arguments = shlex.split(reached)
    except ValueError as error:
        raise ValueError(f"the command cannot be read: {error}") from None
    return ServerSpec(name=name, command=command, args=arguments, env=_pairs(more, *VARIABLES))


def _pairs(text: str, what: str, mark: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, marked, value = line.partition(mark.strip())
        if line.strip() and not (name.strip() and marked):
            raise ValueError(f"{what.lower()}: line {number} is not NAME{mark}VALUE")
        if line.strip():
            found[name.strip()] = value.strip()
    return found or None


class AddServer(Part, ModalScreen[str | None]):
    """Adds a server; returns its name, None when dismissed. What the hub refuses is said here, and can be mended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "add", "Add", priority=True),
        Binding("escape", "leave", "Back"),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            with VerticalScroll(can_focus=False):
                yield Static("Add a server", classes="title", markup=False)
                yield Static("Name", classes="label", markup=False)
                yield Input(id="name", placeholder="time", compact=True)
                yield Static("Command or URL", classes="label", markup=False)
                yield Input(
                    id="reached", placeholder="uvx mcp-server-time, or https://mcp.example.com/mcp", compact=True
                )
                yield Static(_label(""), id="what", classes="label", markup=False)
                yield TextArea(id="more", tab_behavior="focus", compact=True)
                problem = Static(classes="problem", markup=False)
                problem.display = False
                yield problem
                yield Static(with_hub_options(MORE), classes="note", markup=False)
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

    @on(Input.Changed, "#reached")
    def _reached(self, event: Input.Changed) -> None:
        self.query_one("#what", Static).update(_label(event.value.strip()))

    def action_add(self) -> None:
        """Add the server."""
        name, reached = (self.query_one(f"#{each}", Input).value.strip() for each in ("name", "reached"))
        try:
            spec = spec_of(name, reached, self.query_one("#more", TextArea).text)
        except ValueError as error:
            self._complain(str(error))
            return
        # A second key must not add it twice.
        if not any(each.node is self and each.is_running for each in self.workers):
            self.run_worker(self._add(spec))

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
        except ValueError as error:
            self._complain(str(error))
        else:
            self.dismiss(spec.name)

    def _complain(self, problem: str) -> None:
        said = self.query_one(".problem", Static)
        said.update(f"✗ {safe_text(problem, 1000)}" if problem else "")
        said.display = bool(problem)
        if problem:
            self.call_after_refresh(said.scroll_visible, animate=False)


def _label(reached: str) -> str:
    what, mark = HEADERS if reached.lower().startswith(URLS) else VARIABLES
    return f"{what}, NAME{mark}VALUE a line"
