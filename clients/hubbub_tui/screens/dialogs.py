"""Small screens on top of another."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static

from hubbub_tui.widgets.part import UP_DOWN, Scroll

DEFAULT_REFUSAL = "refused by a person"
KEYS = """\
Everywhere
  1 to 7      a pane, by the number in its tab
  8           sessions of coding agents
  j  k        down, up; the arrow keys do the same
  enter       open it, or all there is to say about it
  tab         to the detail and back
  /           filter by words; escape shows all again
  t           light or dark
  ctrl+p      every command by its name
  q           quit
Inbox
  enter       answer; while the form is open, it is yours
  e           decline or deny, after a question
  h           what was asked before, and what is open
  g           the call that caused it
  r           approvals that are remembered
Servers
  a           add one, by a command or a URL
  c  d        connect, disconnect
  x           clear the queue
Calls and tasks
  a           answer the request it waits for
  c           call again, from a form filled in as before
  x           cancel
  X           clear the queue of the call's server
  g           from a call to its task, and back
Catalog
  enter       open a branch; call, read or get an entry
  r           have the hub fetch the lists again
Hosts
  a  g        answer what it waits for, show its call
  h           those that have probably gone, and without them
Agents
  a           answer what the session waits for
  c  x        go on with a prompt, stop the turn
  n           start a session
Events
  s  e        only of one server, only of one kind
  p           pause, go on
  c           clear
Forms
  enter       to the next field
  ctrl+s      send
  ctrl+e      as JSON, and back
  escape      leave it open, for others too
Approvals
  ctrl+s      approve
  f5          approve for a while
  ctrl+e      change the arguments, and back
  f8          deny, with a reason
  f7          what was called before
"""


class YesButton(Button, can_focus=False):
    """Says yes when it is clicked. No key leads to it, so that a word, Tab and Enter do not press it."""


class Confirm(ModalScreen[bool]):
    """Asks for yes or no. Yes is a key that no word has: a letter belongs to a word meant for something else."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+y", "yes", "Yes"),
        Binding("n,escape", "no", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            with Horizontal(classes="buttons"):
                yield YesButton("Yes (ctrl+y)", id="yes", variant="warning", compact=True)
                yield Button("No (n)", id="no", compact=True)

    def on_mount(self) -> None:
        """Focus the harmless answer, if it is there: a screen that opens while the program ends gets no widgets."""
        self.query("#no").focus()

    def on_key(self, event: Key) -> None:
        """Answer no at any letter but y. At y, which may be meant as yes, show the key that means yes."""
        if event.character == "y":
            event.stop()
            self.notify("ctrl+y means yes")
        elif event.is_printable and event.character not in (" ", "n"):
            event.stop()
            self.dismiss(False)

    @on(Button.Pressed)
    def _dismiss_pressed(self, event: Button.Pressed) -> None:
        """Close with the answer of the button."""
        self.dismiss(event.button.id == "yes")

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_no(self) -> None:
        self.dismiss(False)


class TextPrompt(ModalScreen[str | None]):
    """Asks for a line of text; None when dismissed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(self, question: str, value: str) -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Input(self._value, compact=True)
            yield Static("enter sends it, escape goes back", classes="note", markup=False)

    @on(Input.Submitted)
    def _dismiss_with_text(self, event: Input.Submitted) -> None:
        """Close with the text that was typed."""
        self.dismiss(event.value)


class Options(OptionList):
    """A list to choose from, with the keys of the other lists."""

    BINDINGS: ClassVar[list[BindingType]] = [*UP_DOWN]


class ChoicePrompt(ModalScreen[int | None]):
    """Asks for one of several; returns its index, None when dismissed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(self, question: str, choices: Sequence[str], current: int) -> None:
        super().__init__()
        self._question = question
        self._list = Options(*choices, markup=False, compact=True)
        self._list.highlighted = current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield self._list

    def on_mount(self) -> None:
        self._list.focus()

    @on(OptionList.OptionSelected)
    def _dismiss_with_choice(self, event: OptionList.OptionSelected) -> None:
        """Close with the index of the choice."""
        self.dismiss(event.option_index)


class Help(ModalScreen[None]):
    """Shows the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        with Scroll(classes="dialog help"):
            yield Static(KEYS, markup=False)
