"""A form on the screen, made from the fields of a schema; or its content as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Select, SelectionList, Static, TextArea

from hubbub_client import payload
from hubbub_client.payload import as_list
from hubbub_frontend.display.text import editable_json, line, safe_text
from hubbub_frontend.forms import Field, check_bounds, parse_value, typed_text
from hubbub_shared.legible import is_clean
from hubbub_tui.widgets.part import UP_DOWN
from hubbub_tui.widgets.problem import InputProblem

# A form with more fields is answered as JSON, and a field with more choices is typed.
MAX_FIELDS = 60
MAX_CHOICES = 200
SHOWN_CHOICES = 6
MAX_DESCRIPTION_CHARS = 600
# The value of a field that is left out.
LEFT_OUT: Any = object()


class Incomplete(Exception):
    """The content cannot be sent; the fields say why."""


class ChoiceList(SelectionList[str]):
    """Choices to tick, with the keys of the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [*UP_DOWN]


class Question(Vertical):
    """One field: its title, its description, the control, its problem."""

    def __init__(self, field: Field) -> None:
        super().__init__(classes="question")
        self.field = field
        self._control = _make_control(field)
        self._problem = InputProblem()

    def compose(self) -> ComposeResult:
        """Yield the title, the description, the control and the problem."""
        field = self.field
        mark = Content.styled(" *", "$error") if field.required else Content("")
        hint = ", ".join(part for part in (field.hint, "" if field.required else "optional") if part)
        title = Content.assemble(Content.styled(line(field.title, 100), "bold"), mark)
        yield Static(Content.assemble(title, Content.styled(f"  {hint}", "dim")))
        if field.description:
            yield Static(Content.styled(safe_text(field.description, MAX_DESCRIPTION_CHARS), "dim"))
        yield self._control
        yield self._problem

    def value(self) -> Any:
        """Return the value of the field, LEFT_OUT if an optional field is empty. Raises ValueError with the problem."""
        value = self._control_value()
        if value is LEFT_OUT and self.field.required:
            raise ValueError("is required")
        return value

    def _control_value(self) -> Any:
        """Return the value of the control; LEFT_OUT if the control is empty. Raises ValueError with the problem."""
        control = self._control
        match control:
            case Input():
                return self._parse(control.value)
            case SelectionList():
                selected = cast("set[str]", set(cast("Any", control).selected))
                values = [value for value, _ in self.field.choices if value in selected]
                if not values:
                    return LEFT_OUT
                check_bounds(self.field, values)
                return values
            case _:
                value = cast("Any", control).value
                return LEFT_OUT if value is Select.NULL else value

    def show_problem(self, problem: str) -> None:
        """Show a problem at the field; an empty text removes the problem."""
        self._problem.set_problem(problem, limit=200)
        self.set_class(bool(problem), "wrong")

    def focus_control(self) -> None:
        """Put the focus on the control."""
        self._control.focus()

    def _parse(self, text: str) -> Any:
        """Return the value that a text stands for; LEFT_OUT for an empty text. Raises ValueError with the problem."""
        if not text:
            return LEFT_OUT
        return parse_value(self.field, text if self.field.kind == "string" else text.strip())

    @on(Input.Blurred)
    def _check_input(self, event: Input.Blurred) -> None:
        """Show what is wrong with a text when the person leaves its field."""
        try:
            self._parse(event.value)
        except ValueError as error:
            self.show_problem(str(error))
        else:
            self.show_problem("")

    @on(Select.Changed)
    @on(SelectionList.SelectedChanged)
    def _clear_problem(self) -> None:
        """Remove the problem once another choice is made."""
        self.show_problem("")


class Form(Vertical):
    """All fields of a form. With `values`, it is filled in with these: as JSON, where fields cannot show them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+e", "raw", "As JSON/Form", priority=True)]

    def __init__(self, fields: Sequence[Field], values: dict[str, Any] | None = None) -> None:
        super().__init__(classes="form")
        self._filled_in = values
        if values is not None:
            fields = [replace(field, default=values.get(field.name)) for field in fields]
        self._questions = [Question(field) for field in fields] if len(fields) <= MAX_FIELDS else []
        self._too_many = len(fields) > MAX_FIELDS
        self._as_json = self._too_many
        self._editor = TextArea(editable_json(values or {}), classes="raw", tab_behavior="focus", compact=True)
        self._editor.display = self._as_json
        self._problem = InputProblem()

    def compose(self) -> ComposeResult:
        """Yield the fields, the editor for JSON (either these or those are shown), and the problem."""
        if self._too_many:
            yield Static("This form is too large to be shown; answer it as JSON.", classes="note", markup=False)
        yield from self._questions
        yield self._editor
        yield self._problem

    def on_mount(self) -> None:
        """Show the initial values as JSON if fields would change or leave out any of them: a field has one line."""
        values = self._filled_in
        if not values or self._as_json:
            return
        has_several_lines = any(isinstance(value, str) and "\n" in value for value in values.values())
        if has_several_lines or self._valid_values() != values:
            self._switch_editor()
            self._editor.load_text(editable_json(values))

    def focus_first(self) -> bool:
        """Focus the first field, or the editor for JSON while it is shown; return False if the form has no fields."""
        if self._as_json:
            self._editor.focus()
        elif self._questions:
            self._questions[0].focus_control()
        return self._as_json or bool(self._questions)

    def values(self) -> dict[str, Any]:
        """Return the values of all fields. Raises Incomplete; the fields show why."""
        self._problem.set_problem("")
        if self._as_json:
            return self._parse_json()
        values: dict[str, Any] = {}
        wrong: list[Question] = []
        for question in self._questions:
            question.show_problem("")
            try:
                value = question.value()
            except ValueError as error:
                question.show_problem(str(error))
                wrong.append(question)
            else:
                if value is not LEFT_OUT:
                    values[question.field.name] = value
        if wrong:
            wrong[0].focus_control()
            raise Incomplete
        return values

    def show_violations(self, violations: Iterable[tuple[str, str]]) -> None:
        """Show each problem at its field, or below the form if it has no field; focus the first wrong field."""
        questions = {} if self._as_json else {question.field.name: question for question in self._questions}
        elsewhere: list[str] = []
        first_wrong: Question | None = None
        for path, problem in violations:
            question = questions.get(_violated_field(path, questions))
            if question is None:
                elsewhere.append(f"{path}: {problem}")
            else:
                question.show_problem(problem)
                first_wrong = first_wrong or question
        self._problem.set_problem("; ".join(elsewhere))
        if first_wrong is not None:
            first_wrong.focus_control()

    def action_raw(self) -> None:
        """Switch between the fields and their content as JSON."""
        if self._too_many:
            return
        if not self._as_json:
            self._editor.load_text(editable_json(self._valid_values()))
        self._switch_editor()
        self.focus_first()

    @on(Input.Submitted)
    def _go_to_next(self, event: Input.Submitted) -> None:
        """Go to the next field. After the last, only notify of the key that sends: a second Enter must not send."""
        questions = self._questions
        index = next((index for index, each in enumerate(questions) if event.input in each.children), len(questions))
        if index + 1 < len(questions):
            questions[index + 1].focus_control()
        else:
            self.notify("ctrl+s sends it")

    def _switch_editor(self) -> None:
        """Show the JSON in place of the fields, or the fields in place of the JSON."""
        self._as_json = not self._as_json
        self._editor.display = self._as_json
        for question in self._questions:
            question.display = not self._as_json

    def _valid_values(self) -> Mapping[str, Any]:
        """Return the values of the fields that are filled in and valid, by name."""
        values: dict[str, Any] = {}
        for question in self._questions:
            try:
                value = question.value()
            except ValueError:
                continue
            if value is not LEFT_OUT:
                values[question.field.name] = value
        return values

    def _parse_json(self) -> dict[str, Any]:
        """Return the object in the editor. Raises Incomplete."""
        try:
            value = payload.loads(self._editor.text.encode())
            payload.dumps(value)  # raises ValueError for what can be read but not sent, such as NaN
        except (ValueError, RecursionError) as error:
            self._problem.set_problem(f"this is not JSON: {error}")
            raise Incomplete from None
        if not isinstance(value, dict):
            self._problem.set_problem("a JSON object is needed")
            raise Incomplete
        return cast("dict[str, Any]", value)


def _violated_field(path: str, names: Iterable[str]) -> str:
    """Return the field of a violation, by a path such as `content.age`, `content.tags.0` or `age`; empty for none."""
    for start in (path, path.partition(".")[2]):
        for name in names:
            if start == name or start.startswith(f"{name}."):
                return name
    return ""


def _make_control(field: Field) -> Widget:
    """Make the widget in which a person gives the value of a field."""
    default = field.default
    prompt = "choose" if field.required else "left out"
    match field.kind:
        case "boolean":
            value = default if isinstance(default, bool) else Select.NULL
            return Select([("yes", True), ("no", False)], prompt=prompt, value=value, compact=True)
        case "choice" if len(field.choices) <= MAX_CHOICES:
            options = [(Content(line(title, 100)), value) for value, title in field.choices]
            is_choice = isinstance(default, str) and default in dict(field.choices)
            return Select(options, prompt=prompt, value=default if is_choice else Select.NULL, compact=True)
        case "choices" if len(field.choices) <= MAX_CHOICES:
            selected = {str(each) for each in as_list(default)}
            options = [(Content(line(title, 100)), value, value in selected) for value, title in field.choices]
            choices = ChoiceList(*options, compact=True)
            choices.styles.height = min(len(options), SHOWN_CHOICES)
            return choices
        case _:
            text = "" if default is None else typed_text(default)
            if not is_clean(text):
                return Input(placeholder="has a default that cannot be shown; leave it out to take it", compact=True)
            return Input(text, compact=True, select_on_focus=False)
