"""The conditions of approval rules, in CEL (Common Expression Language, https://cel.dev).

They are compiled and checked once, when rules are loaded. The library bounds an evaluation itself: 10,000 steps of
loops, nesting of 32, and regular expressions that need linear time (RE2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cel_expr_python import cel

MAX_CONDITION_CHARS: Final = 10_000
MAX_ARGUMENT_BYTES: Final = 1024 * 1024
"""Larger arguments are not evaluated: to convert them would keep the event loop too long."""


WRITES: Final = "!has(hints.readOnlyHint) || hints.readOnlyHint != true"
"""The condition of `confirm = "writes"`. A tool without the hint counts as one that writes."""


class ConditionProblem(Exception):
    """Why a condition cannot be compiled, or why its evaluation has no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What conditions know of a call. `argument_bytes` is the length of `args` as JSON."""

    server: str
    tool: str
    args: Mapping[str, Any]
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
        self._expression: cel.Expression | None = None
        if text == WRITES:
            return  # what most hubs have, and all that they have: not worth the library's 20 MiB
        if len(text) > MAX_CONDITION_CHARS:
            raise ConditionProblem(f"is longer than {MAX_CONDITION_CHARS} characters")
        try:
            self._expression = _environment().compile(text)
        except RuntimeError as exc:
            raise ConditionProblem(_first_line(exc)) from None
        kind = self._expression.return_type().name()
        if kind not in ("BOOL", "DYN"):
            raise ConditionProblem(f"is of type {kind.lower()}, and a condition is true or false")

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def holds(self, values: "EvaluationContext") -> bool:
        """Return whether the condition is true of a call. Raises ConditionProblem where it has no result."""
        if self._expression is None:
            return values.facts.hints.get("readOnlyHint") is not True
        try:
            result = self._expression.eval(values.activation).value()
        except RuntimeError as exc:
            raise ConditionProblem(_first_line(exc)) from None
        if not isinstance(result, bool):
            raise ConditionProblem(str(result)[:200])
        return result


class EvaluationContext:
    """The facts of one call as the library reads them, made once for all the conditions of the rules."""

    def __init__(self, facts: CallFacts) -> None:
        self.facts = facts
        self._activation: cel.Activation | None = None

    @property
    def activation(self) -> "cel.Activation":
        """The variables. Raises ConditionProblem for arguments larger than MAX_ARGUMENT_BYTES."""
        facts = self.facts
        if facts.argument_bytes > MAX_ARGUMENT_BYTES:
            raise ConditionProblem(f"the arguments are larger than {MAX_ARGUMENT_BYTES} bytes")
        if self._activation is None:
            self._activation = _environment().Activation(
                {
                    "server": facts.server,
                    "tool": facts.tool,
                    "args": facts.args,
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
def _environment() -> "cel.Env":
    # Imported with the first condition: a hub without rules does not pay for it.
    from cel_expr_python import cel

    kinds = cel.Type
    return cel.NewEnv(
        variables={
            **dict.fromkeys(("server", "tool", "caller", "host", "profile"), kinds.STRING),
            **dict.fromkeys(("args", "hints"), kinds.Map(kinds.STRING, kinds.DYN)),
            "roles": kinds.List(kinds.STRING),
            "now": kinds.TIMESTAMP,
        }
    )


def _first_line(exc: RuntimeError) -> str:
    """Return what the library says of an error, without its drawing of the place."""
    text = str(exc).partition("\n")[0]
    return text.removeprefix("INVALID_ARGUMENT: ").removeprefix("ERROR: ").removeprefix("<input>:")
