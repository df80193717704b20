"""The dialog that adds a server, by a command or a URL."""

import shlex
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static, TextArea

from hubbub_client.data.specs import ServerSpec
from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_frontend.arguments import parse_pairs
from hubbub_frontend.shell_commands import with_hub_options
from hubbub_tui.widgets.part import Part
from hubbub_tui.widgets.problem import InputProblem

URLS = ("http://", "https://")
MORE = "Other options: hubbub servers add --help"


class PairKind(NamedTuple):
    """What goes with a command, or with a URL; `mark` is between a name and a value."""

    title: str
    mark: str


VARIABLES, HEADERS = PairKind("Environment variables", "="), PairKind("Headers", ": ")


def parse_spec(name: str, target: str, pairs: str = "") -> ServerSpec:
    """Return the spec of a server; `target` is a URL, or a command as in a shell; `pairs` has headers of a URL, or
    environment variables of a command, one a line.

    Raises ValueError with the reason."""
    if not name:
        raise ValueError("give it a name")
    if not target:
        raise ValueError("give a command, or a URL that begins with https:// or http://")
    if target.lower().startswith(URLS):
        return ServerSpec(name=name, url=target, headers=_parse_pairs(pairs, HEADERS))
    try:
        command, *arguments = shlex.split(target)
    except ValueError as error:
        raise ValueError(f"the command cannot be read: {error}") from None
    return ServerSpec(name=name, command=command, args=arguments, env=_parse_pairs(pairs, VARIABLES))


def _parse_pairs(text: str, kind: PairKind) -> dict[str, str] | None:
    """Return the names and values that the lines give; None without any. Raises ValueError with a line's number."""
    try:
        return parse_pairs(text, kind.mark)
    except ValueError as error:
        raise ValueError(f"{kind.title.lower()}: {error}") from None


class AddServer(Part, ModalScreen[str | None]):
    """Adds a server; returns its name, None when dismissed. What the hub refuses is shown, and can be corrected."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "add", "Add", priority=True),
        Binding("escape", "dismiss", "Back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._problem = InputProblem()

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
                yield Static(_pairs_label(""), id="what", classes="label", markup=False)
                yield TextArea(id="more", tab_behavior="focus", compact=True)
                yield self._problem
                yield Static(with_hub_options(MORE), classes="note", markup=False)
            with Horizontal(classes="buttons"):
                yield Button("Add (ctrl+s)", id="add", variant="success", compact=True)
                yield Button("Back (esc)", id="dismiss", compact=True)

    def on_mount(self) -> None:
        self.query("#name").focus()

    @on(Button.Pressed)
    async def _run_pressed(self, event: Button.Pressed) -> None:
        """Run the action of a button, by the button's id."""
        await self.run_action(event.button.id or "dismiss")

    @on(Input.Submitted)
    def _go_to_next(self, event: Input.Submitted) -> None:
        """Go to the next field; from the last one, add the server."""
        if event.input.id == "name":
            self.query_one("#reached").focus()
        else:
            self.action_add()

    @on(Input.Changed, "#reached")
    def _update_label(self, event: Input.Changed) -> None:
        """Ask for variables of a command, or for headers of a URL."""
        self.query_one("#what", Static).update(_pairs_label(event.value.strip()))

    def action_add(self) -> None:
        """Add the server that was typed, or show why the fields cannot be read."""
        name, target = self.query_one("#name", Input).value.strip(), self.query_one("#reached", Input).value.strip()
        try:
            spec = parse_spec(name, target, self.query_one("#more", TextArea).text)
        except ValueError as error:
            self._show_problem(str(error))
            return
        # A key pressed again must not add the server twice.
        if not any(worker.node is self and worker.is_running for worker in self.workers):
            self.run_worker(self._add(spec))

    async def _add(self, spec: ServerSpec) -> None:
        """Add the server and close the dialog, or show why the hub refused it."""
        self._show_problem("")
        try:
            await self.hub_app.hub.servers.add(spec)
        except InvalidArgument as error:
            self._show_problem("; ".join(problem for _, problem in error.violations) or error.message)
        except HubbubError as error:
            self._show_problem(error.message)
        except ValueError as error:
            self._show_problem(str(error))
        else:
            self.dismiss(spec.name)

    def _show_problem(self, problem: str) -> None:
        """Show a problem below the fields; an empty text hides the last problem."""
        self._problem.set_problem(problem)
        if problem:
            self.call_after_refresh(self._problem.scroll_visible, animate=False)


def _pairs_label(target: str) -> str:
    """Return the label of the field for variables or headers, by the command or URL above it."""
    kind = HEADERS if target.lower().startswith(URLS) else VARIABLES
    return f"{kind.title}, NAME{kind.mark}VALUE a line"
