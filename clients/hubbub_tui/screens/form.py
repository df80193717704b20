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

# A form with more fields is answered as JSON, and a field with more choices is typed.
MAX_FIELDS = 60
MAX_CHOICES = 200
SHOWN_CHOICES = 6
MAX_DESCRIPTION_CHARS = 600
NOTHING: Any = object()


class Incomplete(Exception):
    """The content cannot be sent; the fields say why."""


class Several(SelectionList[str]):
    """Choices to tick, with the keys of the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [*UP_DOWN]


class Question(Vertical):
    """One field: its title, its description, the control, its problem."""

    def __init__(self, field: Field) -> None:
        super().__init__(classes="question")
        self.field = field
        self._control = _control(field)

    def compose(self) -> ComposeResult:
        field = self.field
        mark = Content.styled(" *", "$error") if field.required else Content("")
        hint = ", ".join(part for part in (field.hint, "" if field.required else "optional") if part)
        title = Content.assemble(Content.styled(line(field.title, 100), "bold"), mark)
        yield Static(Content.assemble(title, Content.styled(f"  {hint}", "dim")))
        if field.description:
            yield Static(Content.styled(safe_text(field.description, MAX_DESCRIPTION_CHARS), "dim"))
        yield self._control
        problem = Static(classes="problem", markup=False)
        problem.display = False
        yield problem

    def value(self) -> Any:
        """Return the value, NOTHING if it was left out. Raises ValueError."""
        control = self._control
        match control:
            case Input():
                given: Any = self._typed(control.value)
            case SelectionList():
                chosen = cast("set[str]", set(cast("Any", control).selected))
                given = [value for value, _ in self.field.choices if value in chosen] or NOTHING
                if given is not NOTHING:
                    check_bounds(self.field, given)
            case _:
                chosen = cast("Any", control).value
                given = NOTHING if chosen is Select.NULL else chosen
        if given is NOTHING and self.field.required:
            raise ValueError("is required")
        return given

    def complain(self, problem: str) -> None:
        """Show a problem; an empty one clears it."""
        said = self.query_one(".problem", Static)
        said.update(f"✗ {safe_text(problem, 200)}" if problem else "")
        said.display = bool(problem)
        self.set_class(bool(problem), "wrong")

    def focus_control(self) -> None:
        """Focus the control."""
        self._control.focus()

    def _typed(self, typed: str) -> Any:
        if not typed:
            return NOTHING
        return parse_value(self.field, typed if self.field.kind == "string" else typed.strip())

    @on(Input.Blurred)
    def _left(self, event: Input.Blurred) -> None:
        try:
            self._typed(event.value)
        except ValueError as error:
            self.complain(str(error))
        else:
            self.complain("")

    @on(Select.Changed)
    @on(SelectionList.SelectedChanged)
    def _chosen(self) -> None:
        self.complain("")


class Form(Vertical):
    """All fields of a form. With `given`, it is filled in with these values: as JSON, where fields cannot show them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+e", "raw", "As JSON/Form", priority=True)]

    def __init__(self, fields: Sequence[Field], given: dict[str, Any] | None = None) -> None:
        super().__init__(classes="form")
        self._given = given
        if given is not None:
            fields = [replace(field, default=given.get(field.name)) for field in fields]
        self._fields = fields[:MAX_FIELDS]
        self._too_many = len(fields) > MAX_FIELDS
        self._raw = self._too_many

    def compose(self) -> ComposeResult:
        if self._too_many:
            yield Static("This form is too large to be shown; answer it as JSON.", classes="note", markup=False)
        else:
            for field in self._fields:
                yield Question(field)
        editor = TextArea(editable_json(self._given or {}), classes="raw", tab_behavior="focus", compact=True)
        editor.display = self._raw
        yield editor
        problem = Static(classes="problem", markup=False)
        problem.display = False
        yield problem

    def on_mount(self) -> None:
        """Show as JSON what the fields would change or leave out."""
        if self._given and not self._raw and (self._lenient() != self._given or _has_lines(self._given)):
            self._turn()
            self.query_one(".raw", TextArea).load_text(editable_json(self._given))

    def focus_first(self) -> bool:
        """Focus the first field, or the JSON that takes the place of the fields; return whether there is either."""
        if self._raw:
            self.query_one(".raw", TextArea).focus()
        elif self._questions:
            self._questions[0].focus_control()
        return self._raw or bool(self._questions)

    def values(self) -> dict[str, Any]:
        """Return the values of all fields. Raises Incomplete."""
        self._complain("")
        if self._raw:
            return self._typed()
        found: dict[str, Any] = {}
        wrong: list[Question] = []
        for question in self._questions:
            question.complain("")
            try:
                value = question.value()
            except ValueError as error:
                question.complain(str(error))
                wrong.append(question)
            else:
                if value is not NOTHING:
                    found[question.field.name] = value
        if wrong:
            wrong[0].focus_control()
            raise Incomplete
        return found

    def show_violations(self, violations: Iterable[tuple[str, str]]) -> None:
        """Show each problem at its field, and those of no field below the form."""
        questions = {question.field.name: question for question in self._questions} if not self._raw else {}
        rest: list[str] = []
        first: Question | None = None
        for path, problem in violations:
            question = questions.get(_field_of(path, questions))
            if question is None:
                rest.append(f"{path}: {problem}")
            else:
                question.complain(problem)
                first = first or question
        self._complain("; ".join(rest))
        if first is not None:
            first.focus_control()

    def action_raw(self) -> None:
        """Switch between the fields and their content as JSON."""
        if self._too_many:
            return
        editor = self.query_one(".raw", TextArea)
        if not self._raw:
            editor.load_text(editable_json(self._lenient()))
        self._turn()
        self.focus_first()

    @on(Input.Submitted)
    def _next(self, event: Input.Submitted) -> None:
        """Go to the next field. The last one does not lead to the button that sends: Enter, pressed again, would."""
        questions = self._questions
        at = next((number for number, each in enumerate(questions) if event.input in each.children), len(questions))
        if at + 1 < len(questions):
            questions[at + 1].focus_control()
        else:
            self.notify("ctrl+s sends it")

    def _turn(self) -> None:
        self._raw = not self._raw
        self.query_one(".raw", TextArea).display = self._raw
        for question in self._questions:
            question.display = not self._raw

    @property
    def _questions(self) -> list[Question]:
        return list(self.query(Question))

    def _lenient(self) -> Mapping[str, Any]:
        """Return the valid values so far."""
        found: dict[str, Any] = {}
        for question in self._questions:
            try:
                value = question.value()
            except ValueError:
                continue
            if value is not NOTHING:
                found[question.field.name] = value
        return found

    def _typed(self) -> dict[str, Any]:
        try:
            value = payload.loads(self.query_one(".raw", TextArea).text.encode())
            payload.dumps(value)  # NaN is read and cannot be sent
        except (ValueError, RecursionError) as error:
            self._complain(f"this is not JSON: {error}")
            raise Incomplete from None
        if not isinstance(value, dict):
            self._complain("a JSON object is needed")
            raise Incomplete
        return cast("dict[str, Any]", value)

    def _complain(self, problem: str) -> None:
        said = self.query_children(".problem").only_one(Static)
        said.update(f"✗ {safe_text(problem, 1000)}" if problem else "")
        said.display = bool(problem)


def _has_lines(given: Mapping[str, Any]) -> bool:
    """Return whether a text has several lines: a field has one."""
    return any(isinstance(each, str) and "\n" in each for each in given.values())


def _field_of(path: str, names: Mapping[str, object]) -> str:
    """Return the field of a violation, of a path such as `content.age`, `content.tags.0` or `age`."""
    for start in (path, path.partition(".")[2]):
        for name in names:
            if start == name or start.startswith(f"{name}."):
                return name
    return ""


def _control(field: Field) -> Widget:
    default = field.default
    match field.kind:
        case "boolean":
            given = default if isinstance(default, bool) else Select.NULL
            return Select([("yes", True), ("no", False)], prompt=_prompt(field), value=given, compact=True)
        case "choice" if len(field.choices) <= MAX_CHOICES:
            options = [(Content(line(title, 100)), value) for value, title in field.choices]
            known = isinstance(default, str) and default in dict(field.choices)
            return Select(options, prompt=_prompt(field), value=default if known else Select.NULL, compact=True)
        case "choices" if len(field.choices) <= MAX_CHOICES:
            given = {str(each) for each in as_list(default)}
            chosen = [(Content(line(title, 100)), value, value in given) for value, title in field.choices]
            several = Several(*chosen, compact=True)
            several.styles.height = min(len(chosen), SHOWN_CHOICES)
            return several
        case _:
            given = "" if default is None else typed_text(default)
            if not is_clean(given):
                return Input(placeholder="has a default that cannot be shown; leave it out to take it", compact=True)
            return Input(given, compact=True, select_on_focus=False)


def _prompt(field: Field) -> str:
    return "choose" if field.required else "left out"
