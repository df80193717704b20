"""Bodies of the answer screen: one per kind of pending request."""

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Button, Input, Static, TextArea

from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_object
from hubbub_frontend.display import text
from hubbub_frontend.display.agents import render_agent
from hubbub_frontend.display.approvals import render_approval
from hubbub_frontend.display.decisions import decision_choices
from hubbub_frontend.display.questions import add_sampling
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.forms import fields, parse_json
from hubbub_tui.screens.form import Form, Incomplete
from hubbub_tui.screens.question import fits_title
from hubbub_tui.widgets.part import AbstractWidget, Part
from hubbub_tui.widgets.problem import InputProblem

# The model's name in a reply that a person has written.
HUMAN = "human"
# What the elicitation ids of the hub's own requests begin with. These ask a person to log in at a server; the answer
# may be the address where the browser ended.
AUTHORIZATION = "auth_"


class Body(Part, Vertical, metaclass=AbstractWidget):
    """Shows what is asked, and takes the answer."""

    def __init__(self, request: PendingRequest) -> None:
        super().__init__(classes="body")
        self.request = request
        self.params = as_object(request.request)
        self.problem = InputProblem()

    @property
    def verb(self) -> str:
        """Return the label of the button that answers."""
        return "Send"

    @abstractmethod
    def answer(self) -> dict[str, Any]:
        """Return the answer as keywords of `inbox.answer`. Raises Incomplete, and then the body shows the reason."""

    def show_violations(self, violations: Iterable[tuple[str, str]]) -> None:
        """Show what the hub refused, as pairs of a path and a problem."""
        self.problem.set_problem("; ".join(f"{path}: {problem}" for path, problem in violations))

    def follow_up(self) -> str | None:
        """Return what the person still has to do after the answer is accepted; None for nothing."""
        return None

    def reject_answer(self, problem: str) -> NoReturn:
        """Show why there is no answer yet. Raises Incomplete."""
        self.problem.set_problem(problem)
        raise Incomplete

    def compose_message(self) -> ComposeResult:
        """Yield the question, unless the headline has the whole of it."""
        if fits_title(self.request):
            yield Static(classes="gap")
        else:
            yield Static(text.safe_text(self.params.get("message", ""), 4000), classes="message", markup=False)


def create_body(request: PendingRequest) -> Body:
    """Return the body for a kind of pending request."""
    kinds = {
        "elicitation_form": FormBody,
        "elicitation_url": PageBody,
        "sampling": SamplingBody,
        "approval": ApprovalBody,
    }
    return kinds.get(request.kind, RootsBody)(request)


class FormBody(Body):
    """A message, and a form below it."""

    def __init__(self, request: PendingRequest) -> None:
        super().__init__(request)
        self._form = Form(fields(self.params.get("requestedSchema")))

    def compose(self) -> ComposeResult:
        """Yield the question, what an agent would do, and the form; an agent's own options are buttons elsewhere."""
        yield from self.compose_message()
        page = DetailText()
        render_agent(page, self.request)
        options = [each for each in decision_choices(self.request) if each.is_field]
        for each in options:
            page.paragraph(each.note and f"“{each.label}” is meant {each.note}.", "yellow")
        if page.text:
            yield Static(page.text, classes="message", markup=False)
        if options:  # AnswerScreen shows them as buttons, so the form is not needed
            yield self.problem
        else:
            yield self._form

    @property
    def verb(self) -> str:
        """Return the label of the button that answers: an agent's first decision, or Send."""
        choices = decision_choices(self.request)
        return choices[0].label if choices else "Send"

    def answer(self) -> dict[str, Any]:
        """Return the content of the form. Raises Incomplete; the fields show why."""
        return {"accept": self._form.values()}

    def show_violations(self, violations: Iterable[tuple[str, str]]) -> None:
        """Show what the hub refused at the fields, or below the question if no form is shown."""
        if self._form.is_attached:
            self._form.show_violations(violations)
        else:
            super().show_violations(violations)


class Consent(Static, can_focus=True):
    """A sentence to agree to by ticking it; readable without colours."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space,enter", "tick", "Agree/Not")]

    agreed = reactive(False)

    class Changed(Message):
        """The box was ticked or cleared."""

    def __init__(self, sentence: str, **options: Any) -> None:
        super().__init__(markup=False, **options)
        self._sentence = sentence

    def render(self) -> str:
        return f"[{'x' if self.agreed else ' '}] {self._sentence}"

    def on_click(self) -> None:
        self.action_tick()

    def action_tick(self) -> None:
        """Tick the box or clear it, and post `Changed` to the body."""
        self.agreed = not self.agreed
        self.post_message(self.Changed())


class PageBody(Body):
    """A page to visit: the whole url, and consent. The page is never opened from here."""

    def __init__(self, request: PendingRequest) -> None:
        super().__init__(request)
        self._url = str(self.params.get("url", ""))
        self._is_hub_login = str(self.params.get("elicitationId", "")).startswith(AUTHORIZATION)

    def compose(self) -> ComposeResult:
        """Yield the question, the address, and the box to tick.

        If the hub is to be logged in at a server, yield a field for the address where the browser ended, and no box.
        """
        yield from self.compose_message()
        yield Static(text.render_url(self._url), classes="location", markup=False)
        yield Button("Copy the address", id="copy", compact=True)
        if self._is_hub_login:
            yield Static(
                "If the browser could not reach the hub: the address where it ended", classes="note", markup=False
            )
            yield Input(id="redirect", compact=True)
        else:
            yield Consent("I have read where this leads, and agree to visit it", id="consent")
        yield self.problem

    def answer(self) -> dict[str, Any]:
        """Return the consent, or the address where the browser ended. Raises Incomplete if the person gave neither.

        The address is required where the hub is to be logged in at a server, and consent for other pages.
        """
        if self._is_hub_login:
            redirect_url = self.query_one("#redirect", Input).value.strip()
            if not redirect_url:
                self.reject_answer(
                    "open the address; if the browser ends at a page that does not load, paste its address"
                )
            return {"accept": {"redirect_url": redirect_url}}
        if not self.query_one(Consent).agreed:
            self.reject_answer("agree to it first, or decline")
        return {"accept": True}

    @property
    def verb(self) -> str:
        """Return the label of the button that answers."""
        return "Send" if self._is_hub_login else "Agree"

    def follow_up(self) -> str | None:
        """Return that a person who agreed has to open the page now.

        None for a page on which the person logs the hub in at a server: the answer says where that page ended.
        """
        return None if self._is_hub_login else "You agreed to visit the page: now open its address yourself."

    @on(Consent.Changed)
    def _clear_problem(self) -> None:
        """Remove the problem once the box is ticked."""
        self.problem.set_problem("")

    @on(Button.Pressed, "#copy")
    def _copy(self, event: Button.Pressed) -> None:
        """Copy the address of the page."""
        event.stop()
        self.hub_app.copy_to_clipboard(self._url)
        self.notify("copied; where the terminal cannot do that, select the address with the mouse")


class SamplingBody(Body):
    """A conversation, and the reply to write; or the whole result as JSON."""

    def compose(self) -> ComposeResult:
        page = DetailText()
        add_sampling(page, self.params)
        yield Static(page.text, classes="message", markup=False)
        yield Static("Reply", classes="title", markup=False)
        yield TextArea("", id="reply", tab_behavior="focus", compact=True)
        yield Static("Written by (the model's name)", classes="title", markup=False)
        yield Input(HUMAN, id="model", compact=True)
        yield self.problem

    def answer(self) -> dict[str, Any]:
        """Return the reply; with another model's name, as a whole result. Raises Incomplete without a reply."""
        reply, model = self.query_one("#reply", TextArea).text, self.query_one("#model", Input).value.strip()
        if not reply:
            self.reject_answer("write a reply, or refuse")
        if model in ("", HUMAN):
            return {"text": reply}
        content = {"type": "text", "text": reply}
        return {"result": {"role": "assistant", "content": content, "model": model, "stopReason": "endTurn"}}


class RootsBody(Body):
    """Directories, one per line."""

    def compose(self) -> ComposeResult:
        yield Static("One file:// address to each line.", classes="message", markup=False)
        yield TextArea("", id="roots", tab_behavior="focus", compact=True)
        yield self.problem

    def answer(self) -> dict[str, Any]:
        """Return the directories, of which there may be none."""
        lines = self.query_one("#roots", TextArea).text.split("\n")
        return {"result": {"roots": [{"uri": line.strip()} for line in lines if line.strip()]}}


class ApprovalBody(Body):
    """A call to approve, as it was asked or as somebody has changed it; or its arguments as JSON, to be changed."""

    def __init__(self, request: PendingRequest) -> None:
        super().__init__(request)
        self._text = Static(classes="message", markup=False)
        self._note = Static("Changed arguments are sent in place of those that were asked for.", classes="note")
        self._editor = TextArea("", id="arguments", tab_behavior="focus", compact=True)
        self._editor.display = self._note.display = False

    def compose(self) -> ComposeResult:
        yield self._text
        yield self._note
        yield self._editor
        yield self.problem

    def on_mount(self) -> None:
        """Show the call."""
        self.show_request(self.request)

    @property
    def verb(self) -> str:
        """Return the label of the button that answers."""
        return "Approve"

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments that are to be approved, as they are shown."""
        approval = self.request.approval
        return approval.current_arguments if approval is not None else {}

    def show_request(self, request: PendingRequest) -> None:
        """Show the call as it is now; what a person has changed here is kept."""
        self.request = request
        page = DetailText()
        render_approval(page, request)
        self._text.update(page.text)

    def switch_editor(self) -> None:
        """Switch between the call and its arguments as JSON."""
        editing = not self._editor.display
        if editing:
            self._editor.load_text(text.editable_json(self.arguments))
        self._editor.display = self._note.display = editing
        self._text.display = not editing
        self.problem.set_problem("")
        if editing:
            self._editor.focus()

    def answer(self) -> dict[str, Any]:
        """Return the approval: the digest of the arguments that are shown, and changed arguments. Raises Incomplete."""
        self.problem.set_problem("")
        decision: dict[str, Any] = {"digest": self.request.arguments_digest or ""}
        if self._editor.display:
            try:
                arguments: object = parse_json(self._editor.text)
            except ValueError as error:
                self.reject_answer(f"this is not JSON: {error}")
            if not isinstance(arguments, dict):
                self.reject_answer("a JSON object is needed")
            if not _is_same_json(cast("object", arguments), self.arguments):
                decision["arguments"] = cast("dict[str, Any]", arguments)
        return {"approve": decision}


def _is_same_json(one: object, other: object) -> bool:
    """Return whether two values are the same JSON: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
