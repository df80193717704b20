"""Settings of approvals: `[approvals]` and `[[approvals.rules]]`, which say what calls a person has to approve."""

import re
import tomllib
from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Any, Final, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_settings import NoDecode

from hubbubd.conditions import Condition, ConditionProblem, NoConditions
from hubbubd.config.sections.mcp import Patterns
from hubbubd.config.sections.network import CERT, OIDC, OIDC_ROLE
from hubbubd.config.servers.confirmed import Confirm
from hubbubd.config.servers.server import Seconds
from hubbubd.config.validation import NO_TABLE, make_config_error, make_unknown_key_error
from hubbubd.errors import ConfigError
from hubbubd.process import installation

APPROVALS: Final = "approvals"
"""The setting that has the approvals."""

MAX_RULES: Final = 1000
MAX_NEEDED: Final = 20
MAX_REMEMBERED_S: Final = 30 * 86_400.0

CONFIRM: Final = "confirm"
"""The name of the rule that the hub's preset makes; those of servers are called `confirm of SERVER`."""

_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,9}) ?([smhd])")
_RULE_HEADER: Final = re.compile(r"\s*\[\[\s*(?:approvals\s*\.\s*)?rules\s*\]\]")


class Action(IntEnum):
    """What is done with a call. The greater of two actions is the stricter one."""

    ALLOW = 0
    ASK = 1
    DENY = 2


def _parse_action(value: object) -> object:
    """Return the action whose name is `value`, in lower case; an `Action` is returned as it is. Raises ValueError."""
    if isinstance(value, Action):
        return value
    if isinstance(value, str) and value in (actions := {action.name.lower(): action for action in Action}):
        return actions[value]
    raise ValueError('must be "allow", "ask" or "deny"')


def _parse_condition(value: object) -> object:
    """Compile a condition in CEL; None and a `Condition` are returned as they are. Raises ValueError."""
    if value is None or isinstance(value, Condition):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a text, a condition in CEL")
    try:
        return Condition(value)
    except NoConditions:
        raise ValueError(
            f"needs a package that is not installed: {installation.make_extra_install_command('conditions')}"
        ) from None
    except ConditionProblem as exc:
        raise ValueError(str(exc)) from None


def _parse_duration_s(value: object) -> float:
    """Return the seconds of a duration such as "30m", or of a number of seconds. Raises ValueError."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        value = int(match[1]) * _UNIT_SECONDS[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MAX_REMEMBERED_S:
        return float(value)
    raise ValueError('must be a time such as "90s", "30m", "1h" or "1d", or seconds, at most 30 days')


def _check_name(name: str) -> str:
    """Return the name of a rule. Raises ValueError if it is not printable, or reserved for rules of `confirm`."""
    if not name.isprintable() or name.strip() != name:
        raise ValueError("has characters that are not printed, or spaces around it")
    if name.partition(" of ")[0] == CONFIRM:
        raise ValueError(f"{name!r} is the name of a rule that `confirm` makes")
    return name


def _check_approver(approver: str) -> str:
    """Return the approver: a plain name, or AUTHORITY:NAME as in `who` of grants. Raises ValueError."""
    authority, colon, name = approver.partition(":")
    if colon and (authority not in (CERT, OIDC, OIDC_ROLE) or not name):
        raise ValueError(f"must be NAME, {CERT}:NAME, {OIDC}:NAME or {OIDC_ROLE}:VALUE, not {approver!r}")
    return approver


Approver = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_check_approver)]
RememberedS = Annotated[float, BeforeValidator(_parse_duration_s)]


class ApprovalRule(BaseModel):
    """A rule. The first one that matches a call counts."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, arbitrary_types_allowed=True)

    name: Annotated[str, Field(max_length=64), AfterValidator(_check_name)] = ""
    """Its name, unique; without one it is `rule N`, by its number."""

    servers: Annotated[Patterns, Field(min_length=1)] = ("*",)
    """Patterns of the servers."""

    tools: Annotated[Patterns, Field(min_length=1)] = ("*",)
    """Patterns of the tools, by the names that their server gives them."""

    when: Annotated[
        Condition | None, BeforeValidator(_parse_condition), WithJsonSchema({"type": ["string", "null"]})
    ] = None
    """A condition in CEL."""

    action: Annotated[Action, BeforeValidator(_parse_action)] = Action.ASK
    """`allow`, `ask` or `deny`."""

    needed: Annotated[int, Field(ge=1, le=MAX_NEEDED)] = 1
    """How many different people have to approve, at most 20."""

    not_by_caller: bool = False
    """Whether the caller's approval does not count."""

    approvers: Annotated[tuple[Approver, ...], Field(max_length=1000)] = ()
    """Who counts, of those with the permission `approve` for the server: names, or as `who` of [grants](#the-hub)."""

    edit: bool = True
    """Whether the arguments may be changed."""

    remember: Annotated[tuple[RememberedS, ...], Field(max_length=10)] = ()
    """For how long an approval may hold for later calls, too: `1h`, `1d` or seconds, at most 30 days."""

    message: Annotated[str, Field(max_length=2000)] = ""
    """What it says to people."""

    @property
    def preset(self) -> str:
        """The option that made the rule: `confirm`, or `servers.NAME.confirm`; empty for a rule of the file."""
        prefix, of, server = self.name.partition(" of ")
        if prefix != CONFIRM:
            return ""
        return f"servers.{server}.{CONFIRM}" if of else CONFIRM

    @model_validator(mode="after")
    def _check_approvers_suffice(self) -> Self:
        """Raise ValueError if `approvers` are plain names, and fewer than `needed`."""
        if self.approvers and not any(map(_may_match_several, self.approvers)):
            count = len(set(self.approvers))
            if self.needed > count:
                raise ValueError(f"needed = {self.needed}, but approvers has {count}: more people could never say yes")
        return self


def _may_match_several(approver: str) -> bool:
    """Return whether an approver may match several principals: a role, or a name with wildcards."""
    authority, colon, name = approver.partition(":")
    return bool(colon) and (authority == OIDC_ROLE or any(wildcard in name for wildcard in "*?["))


def _name_rules(rules: tuple[ApprovalRule, ...]) -> tuple[ApprovalRule, ...]:
    """Return the rules, those without a name named `rule N`. Raises ValueError if two have the same name."""
    numbers_by_name: dict[str, int] = {}
    named_rules: list[ApprovalRule] = []
    for number, rule in enumerate(rules, start=1):
        name = rule.name or f"rule {number}"
        if name in numbers_by_name:
            raise ValueError(f"rule {number} has the name {name!r} of rule {numbers_by_name[name]}; give it another")
        numbers_by_name[name] = number
        named_rules.append(rule if rule.name else rule.model_copy(update={"name": name}))
    return tuple(named_rules)


class ApprovalSettings(BaseModel):
    """Which calls a person has to approve."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    default: Annotated[Action, BeforeValidator(_parse_action)] = Action.ALLOW
    """What becomes of a call that no rule matches: `allow`, `ask` or `deny`."""

    confirm: Annotated[Confirm, NoDecode] = ()
    """As `confirm` of a server, for all servers."""

    expires_after_s: Seconds = 86_400.0
    """How long people may take; then the call is denied."""

    rules: Annotated[tuple[ApprovalRule, ...], Field(max_length=MAX_RULES), AfterValidator(_name_rules)] = ()
    """The tables `[[approvals.rules]]`."""


def read_approvals(table: Mapping[str, Any], where: str, text: str) -> dict[str, Any]:
    """Return the validated values of a table `[approvals]`, of the keys that it has.

    `where` names the table in errors. Raises ConfigError with the wrong rule and, if it is found in `text`, the text of
    the file, its line.
    """
    try:
        settings = ApprovalSettings.model_validate(table)
    except ValidationError as exc:
        raise _make_rule_error(exc, table, where, text) from None
    return {key: getattr(settings, key) for key in table}


def parse_approvals(text: str, where: str) -> ApprovalSettings:
    """Return the settings of a TOML document: its table `[approvals]`, or the document itself if it has no such table.

    `where` names the document in errors. Raises ConfigError with the wrong rule and, if it is found, its line.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(where, f"is not valid TOML: {exc}") from None
    table: object = document.get(APPROVALS, document)
    if not isinstance(table, dict):
        raise ConfigError(where, f"{APPROVALS}: {NO_TABLE}")
    approvals = cast("dict[str, Any]", table)
    for key in approvals.keys() - ApprovalSettings.model_fields.keys():
        raise make_unknown_key_error(f"{where}: {key}", key, ApprovalSettings.model_fields)
    return ApprovalSettings(**read_approvals(approvals, f"{where}: {APPROVALS}", text))


def _make_rule_error(exc: ValidationError, table: Mapping[str, Any], where: str, text: str) -> ConfigError:
    """Return the error for invalid settings; that of a rule has the rule's number, name and line."""
    error = make_config_error(exc, table, "", ApprovalRule.model_fields)
    match exc.errors(include_url=False, include_context=False)[0]["loc"]:
        case ("rules", int(index), *inner):
            rule: object = table["rules"][index]
            name = cast("dict[str, object]", rule).get("name") if isinstance(rule, dict) else None
            key = str(inner[0]) if inner else ""
            line = _find_line(text, index, key, len(table["rules"]))
            place = ", ".join(
                (
                    f"rule {index + 1}",
                    *([repr(name)] if isinstance(name, str) else ()),
                    *([f"line {line}"] if line else ()),
                )
            )
            inner_key = error.key.removeprefix(f"rules.{index}").removeprefix(".")
            return ConfigError(f"{where}.rules", f"{place}: {f'{inner_key}: ' if inner_key else ''}{error.problem}")
        case _:
            same_name = re.match(r"rule ([0-9]+) ", error.problem)  # a name that two rules have: see `_name_rules`
            line = _find_line(text, int(same_name[1]) - 1, "name", len(table["rules"])) if same_name else None
            problem = f"line {line}: {error.problem}" if line else error.problem
            return ConfigError(f"{where}.{error.key}".removesuffix("."), problem)


def _find_line(text: str, index: int, key: str, rule_count: int) -> int | None:
    """Return the line, from 1 on, of a key of the rule `index`, or of the rule's header if it lacks the key.

    Returns None if the text does not have `rule_count` headers `[[rules]]`, as with rules in an inline list.
    """
    lines = text.splitlines()
    tables = [number for number, line in enumerate(lines, start=1) if _RULE_HEADER.match(line)]
    if len(tables) != rule_count:
        return None
    for number, line in enumerate(lines[tables[index] :], start=tables[index] + 1):
        if line.lstrip().startswith("["):
            break
        if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line) and key:
            return number
    return tables[index]
