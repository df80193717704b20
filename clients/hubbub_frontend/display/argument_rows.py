"""The arguments of a call as rows to read: titles by the tool's schema, code as code, old and new text as a change.

Nothing is left out here; who draws the rows decides how much of each is shown.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from hubbub_client.payload import as_list, as_object
from hubbub_frontend.forms import normalized_schema
from hubbub_shared.legible import clean, escape_json

RowKind = Literal["text", "code", "json", "change", "patch"]

SHORT_CHARS = 80
"""The longest text that stands beside its title."""

MAX_DEPTH = 3
"""How deep objects within the arguments are taken apart."""

MAX_ROWS = 500
"""How many rows the arguments are taken apart into."""

MAX_INDENTED_CHARS = 100_000
"""The longest JSON that is indented: that is slow, and nobody reads more."""

MAX_DIFF_COST = 20_000_000
"""The most steps that comparing two texts may take, at most half a second; a text can be made to take hours."""

PAIRS = (("old_string", "new_string"), ("old_text", "new_text"), ("oldText", "newText"), ("before", "after"))
"""Arguments that are an old and a new text, in tools that edit."""

PATCHES = ("diff", "patch")
WITHIN = " / "
"""Between the title of an argument and that of a part of it."""

_HUNK_HEADER = re.compile(
    r"@@ (?:-(?P<old>\d{1,9})(?:,\d+)? \+(?P<new>\d{1,9})|line (?P<line>\d{1,9})(?:, now (?P<now>\d{1,9}))?)"
)
"""The header of a hunk, as patches have it, and as `_describe_hunk_header` writes it."""

UNKNOWN: Mapping[str, Any] = {}
"""The schema of an argument that no schema names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRow:
    """One argument, or a part of one; `title` and the texts are a server's and a model's, made harmless.

    `kind` selects the drawing: a short `text`, `code` of several lines, `json`, a `change` from `old` to `new`, or a
    `patch`, whose text is a diff.
    """

    path: str
    title: str
    kind: RowKind
    text: str = ""
    old: str = ""
    new: str = ""


def argument_rows(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[ArgumentRow, ...]:
    """Return the arguments in the order of the schema, and after them those that the schema does not name.

    Beyond MAX_ROWS rows, one last row has all arguments as JSON.
    """
    rows = tuple(islice(_walk_object(arguments, schema, schema, "", "", MAX_DEPTH), MAX_ROWS + 1))
    if len(rows) <= MAX_ROWS:
        return rows
    return (*rows[:MAX_ROWS], ArgumentRow(path="", title="All arguments", kind="json", text=_json_text(arguments)))


def _walk_object(
    value: Mapping[str, Any], spec: Mapping[str, Any], form: Mapping[str, Any], path: str, title: str, depth: int
) -> Iterator[ArgumentRow]:
    """Yield the rows of an object. `spec` is the schema of the object, `form` the schema of all arguments.

    `path` and `title` are those of the value around the object; `depth` is how many more levels are followed.
    """
    properties = as_object(spec.get("properties"))
    ordered = [*(name for name in properties if name in value), *(name for name in value if name not in properties)]
    change_names = _find_change_names(value)
    for name in ordered:
        own_path, own_spec = f"{path}{name}", _property_schema(properties, name, form)
        own_title = title + _argument_title(name, own_spec)
        if change_names is not None and name in change_names:
            if name == next(each for each in ordered if each in change_names):  # one row, in the place of the first
                old, new = change_names
                titles = " → ".join(
                    _argument_title(each, _property_schema(properties, each, form)) for each in change_names
                )
                yield ArgumentRow(
                    path=clean(f"{path}{new}"),
                    title=title.removesuffix(WITHIN) or titles,
                    kind="change",
                    old=clean(value[old]),
                    new=clean(value[new]),
                )
            continue
        yield from _walk_value(name, value[name], own_spec, form, own_path, own_title, depth)


def _walk_value(
    name: str,
    value: object,
    spec: Mapping[str, Any],
    form: Mapping[str, Any],
    path: str,
    title: str,
    depth: int,
) -> Iterator[ArgumentRow]:
    """Yield the rows of one argument: those of its parts if it is an object or a list of edits, else a single row."""
    inner = as_object(value)
    if depth and inner and (as_object(spec.get("properties")) or _find_change_names(inner)):
        yield from _walk_object(inner, spec, form, f"{path}.", f"{title}{WITHIN}", depth - 1)
        return
    edits = as_list(value)
    if depth and edits and all(_find_change_names(as_object(each)) for each in edits):
        item_spec = normalized_schema(spec.get("items"), form)
        for index, each in enumerate(edits):
            yield from _walk_object(
                as_object(each), item_spec, form, f"{path}.{index}.", f"{title} {index + 1}{WITHIN}", depth - 1
            )
        return
    kind, text = _describe_value(name, value)
    yield ArgumentRow(path=clean(path), title=title, kind=kind, text=text)


def _describe_value(name: str, value: object) -> tuple[RowKind, str]:
    """Return the kind of row that shows a value, and its text; a blank text is shown in quotation marks."""
    match value:
        case bool():
            return "text", "yes" if value else "no"
        case str() if "\n" in value.strip():
            return ("patch" if name.lower() in PATCHES else "code"), clean(value)
        case str():
            text = clean(value)
            return ("code" if len(text) > SHORT_CHARS else "text"), text if text.strip() else json.dumps(text)
        case _:
            text = _json_text(value)
            return ("text" if "\n" not in text and len(text) <= SHORT_CHARS else "json"), text


def _json_text(value: object) -> str:
    """Return a value as JSON: on one line if it is short or very long, else indented."""
    try:
        compact = json.dumps(value, ensure_ascii=False)
        if SHORT_CHARS < len(compact) <= MAX_INDENTED_CHARS:
            compact = json.dumps(value, ensure_ascii=False, indent=2)
    except RecursionError:
        return "it nests too deep to be shown"
    return escape_json(compact)


def _find_change_names(value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the names of an old and a new text, if an object has both (see PAIRS); None otherwise."""
    for old, new in PAIRS:
        texts = value.get(old), value.get(new)
        if all(isinstance(each, str) for each in texts):
            # `before` and `after` with one line each are more likely the ends of a span of time than a change.
            is_change = old != "before" or any("\n" in str(each).strip() for each in texts)
            return (old, new) if is_change else None
    return None


def _property_schema(properties: Mapping[str, Any], name: str, form: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of one property of an object; UNKNOWN (empty) if the object has no such property."""
    return normalized_schema(properties[name], form) if name in properties else UNKNOWN


def _argument_title(name: str, spec: Mapping[str, Any]) -> str:
    """Return the title of a property, or else its name."""
    title = spec.get("title")
    text = title if isinstance(title, str) and title.strip() else name
    return clean(" ".join(text[:100].split()))


def change_lines(old: str, new: str, max_cost: int = MAX_DIFF_COST) -> Sequence[str]:
    """Return a change as the lines of a unified diff without its head: each begins with ` `, `-`, `+` or `@@`.

    Texts that cannot be compared within `max_cost` steps are shown whole, the old before the new.
    """
    before, after = old.splitlines(), new.splitlines()
    if before == after and old != new:
        return (*(f" {each}" for each in before[-1:]), "@@ only the end of the lines is different")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    removed, added = before[start : len(before) - end], after[start : len(after) - end]
    if _diff_cost(removed, added) > max_cost:
        return (*(f"-{each}" for each in removed), *(f"+{each}" for each in added))
    # Equal lines at both ends are not compared again; three of them are shown as context.
    skipped_start, skipped_end = max(start - 3, 0), max(end - 3, 0)
    lines = difflib.unified_diff(
        before[skipped_start : len(before) - skipped_end], after[skipped_start : len(after) - skipped_end], lineterm=""
    )
    return [
        _describe_hunk_header(line, skipped_start) if line.startswith("@@") else line for line in islice(lines, 2, None)
    ]


def _describe_hunk_header(header: str, skipped: int) -> str:
    """Return the header of a hunk in words: its first line in the old text; also in the new text, if different.

    `skipped` is how many equal lines before the hunk were not compared.
    """
    old, new = (max(int(each), 1) + skipped for each in _hunk_positions(header))
    return f"@@ line {old}" if old == new else f"@@ line {old}, now {new}"


def line_numbers(lines: Sequence[str]) -> Iterator[int | None]:
    """Yield the line number of each line of a diff: in the old text for a removed line, in the new text for others.

    Yield None for the header of a hunk, and where the numbers are unknown.
    """
    old: int | None = None
    new: int | None = None
    for each in lines:
        if each.startswith("@@"):
            old, new = (int(number) for number in _hunk_positions(each)) if _HUNK_HEADER.match(each) else (None, None)
            yield None
            continue
        yield old if each.startswith("-") else new
        old = old + 1 if old is not None and not each.startswith("+") else old
        new = new + 1 if new is not None and not each.startswith("-") else new


def _hunk_positions(header: str) -> tuple[str, str]:
    """Return the first lines in the old and the new text that the header of a hunk names; else "1", "1"."""
    match = _HUNK_HEADER.match(header)
    if match is None:
        return "1", "1"
    return match["old"] or match["line"], match["new"] or match["now"] or match["line"]


def _diff_cost(before: Sequence[str], after: Sequence[str]) -> int:
    """Estimate the most steps that difflib takes: it looks at each pair of equal lines again for each match."""
    # difflib does not look for lines that occur more often than this (`autojunk`).
    popular = 1 + len(after) // 100 if len(after) >= 200 else len(after)
    counts = Counter(after)
    pairs = sum(counts[each] for each in before if counts[each] <= popular)
    return (len(before) + pairs) * min(len(before), len(after), max(pairs, 1))
