"""The conditions of approval rules, in CEL (Common Expression Language, https://cel.dev).

They are compiled and checked once, when rules are loaded. The library bounds an evaluation itself: 10,000 steps of
loops, nesting of 32, and regular expressions that need linear time (RE2). Sizes of arguments are bounded here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from cel_expr_python import cel

MAX_CONDITION_CHARS: Final = 10_000
MAX_ARGUMENT_BYTES: Final = 1024 * 1024
"""Larger arguments are not evaluated: to convert them would keep the event loop too long."""

MAX_LOOPED: Final = 500
"""The longest array or object of a call that a condition loops over: the time of a loop grows with its square."""

MAX_COMBINED: Final = 20
"""Conditions that are evaluated in one go: each nests the next one, and the library takes 32 levels."""

WRITES: Final = "!has(hints.readOnlyHint) || hints.readOnlyHint != true"
"""The condition of `confirm = "writes"`. A tool without the hint counts as one that writes."""


_LOOP: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(")
_CODE: Final = re.compile(r"^(?:[A-Z_]{4,}: )+(?:<input>:)?|<input>:| \(in container ''\)| \[[A-Z_]+\]$")
"""The codes and places that the library puts around its messages."""


class ConditionProblem(Exception):
    """Why a condition cannot be compiled, or why its evaluation has no result."""


class NoConditions(ConditionProblem):
    """The library of conditions is not installed: it is an extra."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What conditions know of a call. `argument_bytes` is the length of `args` as JSON; `args` should be an object."""

    server: str
    tool: str
    args: object
    argument_bytes: int
    hints: Mapping[str, Any]
    caller: str
    roles: tuple[str, ...]
    host: str
    profile: str
    now: datetime


class Condition:
    """One compiled condition. Two with the same text are equal."""

    def __init__(self, text: str) -> None:
        """Compile the condition. Raises ConditionProblem, which says where it is wrong."""
        self.text = text
        self.has_loop = _LOOP.search(text) is not None
        self._expression: cel.Expression | None = None
        if text == WRITES:
            return  # what most hubs have, and all that they have: not worth the library's 20 MiB
        if len(text) > MAX_CONDITION_CHARS:
            raise ConditionProblem(f"is longer than {MAX_CONDITION_CHARS} characters")
        self._expression = _compile(text)
        kind = self._expression.return_type().name()
        if kind not in ("BOOL", "DYN"):
            raise ConditionProblem(f"is of type {kind.lower()}, and a condition is true or false")

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def holds(self, context: "EvaluationContext") -> bool:
        """Return whether the condition is true of a call. Raises ConditionProblem where it has no result."""
        if self._expression is None:  # WRITES is built in, and needs no compiler
            return context.facts.hints.get("readOnlyHint") is not True
        if self.has_loop:
            context.require_short()
        result = _evaluate(self._expression, context)
        if not isinstance(result, bool):
            raise ConditionProblem(_first_line(result))
        return result


class Conditions:
    """Up to MAX_COMBINED conditions, compiled as one: a call of the library takes ten times as long as a condition."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        """Compile the conditions. Raises ConditionProblem if they do not fit into one."""
        source = "-1"
        for index, condition in reversed(list(enumerate(conditions))):
            source = f"({condition.text}\n) ? {index} : {source}"  # the line feed ends a comment in the condition
        self._has_loop = any(condition.has_loop for condition in conditions)
        self._expression = _compile(source)
        self._disjunction = _compile(" || ".join(f"({condition.text}\n)" for condition in conditions))

    def find_first(self, context: "EvaluationContext") -> int | None:
        """Return the index of the first condition that holds; None if none does.

        Raises ConditionProblem if a condition before that one fails.
        """
        if self._has_loop:
            context.require_short()
        result = _evaluate(self._expression, context)
        if not isinstance(result, int):
            raise ConditionProblem(_first_line(result))
        return None if result < 0 else result

    def none_can_hold(self, context: "EvaluationContext") -> bool:
        """Return whether it is certain that no condition holds, though some cannot be evaluated. False: not certain.

        In CEL, `a || b || ...` is true as soon as one condition is true, even if others fail. So if it is not true,
        none holds.
        """
        if self._has_loop:  # together they may need more steps than each by itself
            return False
        try:
            context.require_small()
            _ = context.activation
        except ConditionProblem:  # evaluated one by one, each condition fails for this reason
            return False
        try:
            return _evaluate(self._disjunction, context) is not True
        except ConditionProblem:  # it has no result, so none of the conditions is true
            return True


class EvaluationContext:
    """The facts of one call as the library reads them, converted once for all conditions of the rules."""

    def __init__(self, facts: CallFacts) -> None:
        """Keep the facts of a call; they are converted for the library when a condition first needs them."""
        self.facts = facts
        self._activation: cel.Activation | None = None
        self._is_short: bool | None = None

    def require_small(self) -> dict[str, Any]:
        """Return the arguments of the call, once checked to be small enough to evaluate conditions on them.

        Raises ConditionProblem if they are longer than MAX_ARGUMENT_BYTES as JSON, or no object.
        """
        args = self.facts.args
        if not isinstance(args, dict):
            raise ConditionProblem("the arguments are not an object")
        if self.facts.argument_bytes > MAX_ARGUMENT_BYTES:
            raise ConditionProblem(f"the arguments are larger than {MAX_ARGUMENT_BYTES} bytes")
        return cast("dict[str, Any]", args)

    def require_short(self) -> None:
        """Raise ConditionProblem if an array or object in the call is too long to loop over, or as `require_small`."""
        args = self.require_small()
        if self._is_short is None:
            self._is_short = all(len(each) <= MAX_LOOPED for each in _iterate_containers([args, self.facts.hints]))
        if not self._is_short:
            raise ConditionProblem(f"it loops, and the call has more than {MAX_LOOPED} values in an array or object")

    @property
    def activation(self) -> "cel.Activation":
        """The call's facts as variables of the library. Raises ConditionProblem for arguments that are too large."""
        facts, args = self.facts, self.require_small()
        if self._activation is None:
            self._activation = _cel_environment().Activation(
                {
                    "server": facts.server,
                    "tool": facts.tool,
                    "args": args,
                    "hints": facts.hints,
                    "caller": facts.caller,
                    "roles": list(facts.roles),
                    "host": facts.host,
                    "profile": facts.profile,
                    "now": facts.now,
                }
            )
        return self._activation


@cache
def _cel_environment() -> "cel.Env":
    """Return the library's environment with the variables of conditions. Raises NoConditions if it is not installed."""
    # Imported with the first condition: a hub without rules does not pay for it.
    try:
        from cel_expr_python import cel
    except ModuleNotFoundError:
        raise NoConditions("conditions need the library `cel-expr-python`, which is not installed") from None

    types = cel.Type
    return cel.NewEnv(
        variables={
            **dict.fromkeys(("server", "tool", "caller", "host", "profile"), types.STRING),
            **dict.fromkeys(("args", "hints"), types.Map(types.STRING, types.DYN)),
            "roles": types.List(types.STRING),
            "now": types.TIMESTAMP,
        }
    )


def _iterate_containers(values: list[object]) -> Iterator[Sized]:
    """Yield each array and object in these values, at any depth. Empties `values`."""
    while values:
        value = values.pop()
        if isinstance(value, dict | list):
            container = cast("dict[str, object] | list[object]", value)
            yield container
            values.extend(container.values() if isinstance(container, dict) else container)


def _compile(text: str) -> "cel.Expression":
    """Return a condition as the library has compiled it. Raises ConditionProblem."""
    try:
        return _cel_environment().compile(text)
    except (RuntimeError, ValueError) as exc:  # ValueError: text that is not Unicode
        raise ConditionProblem(_first_line(exc)) from None


def _evaluate(expression: "cel.Expression", context: EvaluationContext) -> object:
    """Return the value of an expression for a call. Raises ConditionProblem if it has none."""
    try:
        return expression.eval(context.activation).value()
    except (RuntimeError, ValueError, TypeError) as exc:
        raise ConditionProblem(_first_line(exc)) from None


def _first_line(exc: object) -> str:
    """Return the library's message of an error, without its codes and the lines that point at the place."""
    return _CODE.sub("", str(exc).partition("\n")[0])[:500]
