"""The problem of a file of rules in one line: the rule, its line, the key, and a similar key for an unknown one."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from hubbub_client.numbers import whole_text
from hubbub_client.payload import as_list, as_object

RULE = re.compile(r"^\s*\[\[\s*rule\s*\]\]", re.MULTILINE)


class ConfigProblem(Exception):
    """The rules are wrong; the message begins with the key."""


class AnswerProblem(Exception):
    """A program or model gave no usable answer."""


def describe_error(
    error: ValidationError,
    document: Mapping[str, Any],
    models_by_table: Mapping[str, type[BaseModel]],
    source: str | None,
) -> str:
    """Return the first error in one line.

    `models_by_table` has the model of each table by name, under "" the model of the whole document. `source` is the
    text of the file; without it no line is named.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    steps = [str(part) for part in first["loc"] if not str(part).startswith(("dict[", "literal["))]
    why = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        why = _unknown_key(
            steps[-1], models_by_table[steps[0]].model_fields if len(steps) > 1 and steps[0] in models_by_table else ()
        )
        if len(steps) == 1:
            why = _unknown_key(steps[0], models_by_table[""].model_fields)
    elif first["type"] == "missing":
        why = "is required"
    where = describe_place(steps, document, source)
    return f"{where}: {why}" if where else why


def describe_place(steps: Sequence[str], document: Mapping[str, Any], source: str | None) -> str:
    """Return the place of a key in the document: `rule 'lunch' (line 3).says`; rules are counted from 1."""
    index = whole_text(steps[1]) if len(steps) > 1 and steps[0] == "rule" else None
    if index is None:
        return ".".join(steps)
    return ".".join((rule_name(index, document, source), *steps[2:]))


def rule_name(index: int, document: Mapping[str, Any], source: str | None) -> str:
    """Return the name of a rule in messages, by its index from 0: its name or number, and its line if known."""
    rules = as_list(document.get("rule"))
    name = as_object(rules[index] if index < len(rules) else None).get("name")
    label = f"rule {name!r}" if isinstance(name, str) and name else f"rule {index + 1}"
    starts = [source.count("\n", 0, each.end()) + 1 for each in RULE.finditer(source)] if source else []
    return f"{label} (line {starts[index]})" if len(starts) == len(rules) and index < len(starts) else label


def _unknown_key(name: str, known_keys: Iterable[str]) -> str:
    """Return that a key is unknown, and the known key that is similar to it."""
    similar = get_close_matches(name, list(known_keys), n=1)
    return f"unknown key; did you mean {similar[0]!r}?" if similar else "unknown key; docs/agents.md lists all keys"
