"""Conditions of rules on what a server sends: texts by patterns, proposed values by bounds. Pure.

Text of servers is not trusted. A pattern is searched in time that grows with the text alone, whatever the pattern, and
a text is cut at a bound first. What a form proposes, and the arguments of a call, are not cut: their end may matter.
"""

from collections.abc import Mapping
from functools import lru_cache
from posixpath import normpath
from typing import Any, Self, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from hubbub_client.data.agent_questions import AgentQuestion
from hubbub_client.data.records import PendingRequest
from hubbub_client.numbers import is_finite
from hubbub_client.payload import as_list, as_object, as_objects

MAX_TEXT_CHARS = 20_000
"""Characters of a server's text that a pattern is searched in."""

MAX_PATTERN_BYTES = 1024 * 1024
"""Memory that a compiled pattern may take."""


JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
}


class Pattern:
    """A regular expression to search texts for. Raises ValueError for an expression that cannot be used."""

    def __init__(self, pattern: str) -> None:
        import jsonschema_rs  # 3 MB; only rules with patterns need it

        # The engine has no backtracking, so that no text can make it slow. A schema is its way in.
        options = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES)
        try:
            self._checker = jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
        except ValueError:
            raise ValueError(
                f"not a regular expression that can be used: {pattern!r}; look-around and backreferences are not there"
            ) from None

    def matches(self, text: str) -> bool:
        """Return whether the pattern occurs in the first MAX_TEXT_CHARS of the text."""
        return self.matches_uncut(text[:MAX_TEXT_CHARS])

    def matches_uncut(self, text: str) -> bool:
        """Return whether the pattern occurs anywhere in the whole text; unlike `matches`, this cuts no text."""
        return self._checker.is_valid(text)


@lru_cache(maxsize=1000)
def compile_pattern(pattern: str) -> Pattern:
    """Return a compiled pattern. Raises ValueError."""
    return Pattern(_with_flag_group(pattern))


def _with_flag_group(pattern: str) -> str:
    """Return a pattern in which flags at the front are turned into a group, as the engine needs them."""
    # `(?i)` alone at the front is what most people write; the engine knows it as a group.
    for flags in ("(?i)", "(?s)", "(?is)", "(?si)", "(?m)", "(?im)"):
        if pattern.startswith(flags):
            return f"{flags[:-1]}:{pattern[len(flags) :]})"
    return pattern


class ValueCondition(BaseModel):
    """A condition on the value that a form proposes for a field (its default, or the only value that it allows), or on
    an argument of a call."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    equals: str | float | bool | None = None
    one_of: tuple[str | float | bool, ...] | None = None
    min: float | None = None
    max: float | None = None
    matches: str | None = None

    @field_validator("one_of", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        """Return a list as a tuple."""
        return tuple(as_list(cast("object", value))) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check_usable(self) -> Self:
        """Check that the condition has a part, and that its pattern can be used. Raises ValueError."""
        if not self.model_fields_set:
            raise ValueError("needs one of equals, one_of, min, max, matches")
        if self.matches is not None:
            compile_pattern(self.matches)
        return self

    def accepts(self, value: object) -> bool:
        """Return whether a proposed value meets each part of the condition."""
        if "equals" in self.model_fields_set and not _is_same_json(value, self.equals):
            return False
        if self.one_of is not None and not any(_is_same_json(value, each) for each in self.one_of):
            return False
        if self.min is not None and not (is_finite(value) and value >= self.min):
            return False
        if self.max is not None and not (is_finite(value) and value <= self.max):
            return False
        return self.matches is None or (isinstance(value, str) and compile_pattern(self.matches).matches_uncut(value))


def _is_same_json(one: object, other: object) -> bool:
    """Return whether two values are the same in JSON, where true differs from 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def request_text(request: PendingRequest) -> str:
    """Return the text of a pending request, cut at MAX_TEXT_CHARS.

    That is the message of an elicitation, or the texts of a sampling, a line each.
    """
    params = as_object(request.request)
    if request.kind != "sampling":
        return str(params.get("message", ""))[:MAX_TEXT_CHARS]
    texts = [str(params.get("systemPrompt", ""))]
    for message in as_objects(params.get("messages")):
        texts += [str(block.get("text", "")) for block in content_blocks(message.get("content"))]
    return "\n".join(filter(None, texts))[:MAX_TEXT_CHARS]


def content_blocks(content: object) -> list[Mapping[str, Any]]:
    """Return the content of a sampling message, one block or several, as a list."""
    return [*as_objects(cast("object", content) if isinstance(content, list) else [content])]


def form_titles(params: Mapping[str, Any]) -> list[str]:
    """Return the titles of a form and of its fields."""
    schema = as_object(params.get("requestedSchema"))
    titles = [schema.get("title"), *(as_object(each).get("title") for each in form_properties(params).values())]
    return [title for title in titles if isinstance(title, str)]


def form_properties(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a form, by name."""
    return as_object(as_object(params.get("requestedSchema")).get("properties"))


def proposed_values(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values that a form proposes, by field: the default, or the only value that is allowed.

    A field without either is left out.
    """
    values: dict[str, Any] = {}
    for name, spec in form_properties(params).items():
        field = as_object(spec)
        allowed = as_list(field.get("enum"))
        if field.get("default") is not None:
            values[name] = field["default"]
        elif "const" in field or len(allowed) == 1:
            values[name] = field.get("const", allowed[0] if allowed else None)
    return values


def agent_parts(question: AgentQuestion) -> Mapping[str, list[str]]:
    """Return the parts of an agent's question, by name (`AgentPart`): its command, or paths without `..`.

    A file that is moved has both its paths; a file without a path is `?`.
    """
    files = [path for each in question.changes for path in filter(None, (each.path or "?", each.moved_to))]
    return {
        "command": [question.command_line] if question.command else [],
        "folder": [normpath(question.folder)] if question.folder else [],
        "file": [normpath(path) for path in files],
        "grant": [normpath(question.grant)] if question.grant else [],
    }


def has_json_type(value: object, name: str) -> bool:
    """Return whether an argument of a call has the type that a rule names. A whole number is a number; true is not."""
    return name == "any" or (isinstance(value, JSON_TYPES[name]) and (name == "boolean" or not isinstance(value, bool)))


def page_host(params: Mapping[str, Any]) -> str:
    """Return the host of a page to visit, empty if there is none."""
    try:
        return urlsplit(str(params.get("url", ""))).hostname or ""
    except ValueError:
        return ""


def any_text_matches(pattern: str | None, texts: list[str]) -> bool:
    """Return whether a pattern occurs in one of the texts; without a pattern it always does."""
    return pattern is None or any(compile_pattern(pattern).matches(text) for text in texts)
