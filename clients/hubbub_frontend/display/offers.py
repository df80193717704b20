"""One tool, prompt, resource, template or skill in full."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.text import Text

from hubbub_client.payload import as_object, as_objects, labels_of
from hubbub_frontend.display import text
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.forms import Field, nested_fields, prompt_fields, typed_text

MAX_FIELDS = 100
MAX_CHOICES = 20
MAX_FILES = 20

HINTS = {
    "readOnlyHint": ("changes nothing", "may change something"),
    "destructiveHint": ("may destroy something", "destroys nothing"),
    "idempotentHint": ("safe to repeat", "not safe to repeat"),
    "openWorldHint": ("reaches out to the world", "stays within its server"),
}
"""What a tool says of itself (MCP server/tools: ToolAnnotations): in words for true, and for false."""


def render_offer(server: str, kind: str, definition: Mapping[str, Any]) -> Text:
    """Render a tool, prompt, resource, template or skill of a server in full, for a terminal."""
    labels = labels_of(kind, definition)
    name = str(labels.get("name") or "")
    annotations = as_object(definition.get("annotations"))
    page = DetailText().paragraph(Text.assemble((text.line(name, 200), "bold"), f"  a {kind} of {text.line(server)}"))
    title = str(definition.get("title") or annotations.get("title") or "")
    if title not in ("", name):
        page.paragraph(title)
    page.paragraph(labels.get("description"))
    page.fact("uri", definition.get("uri") or definition.get("uriTemplate"))
    page.fact("type", definition.get("mimeType"))
    hints = [
        if_true if annotations[hint] else if_false
        for hint, (if_true, if_false) in HINTS.items()
        if isinstance(annotations.get(hint), bool)
    ]
    page.fact("it says", ", ".join(hints))
    if kind == "tool":
        _add_fields(page, "Arguments", nested_fields(definition.get("inputSchema")))
        _add_fields(page, "Result", nested_fields(definition.get("outputSchema")))
    elif kind == "prompt":
        _add_fields(page, "Arguments", prompt_fields(definition))
    elif kind == "skill":
        page.fact("files", _list_files(definition.get("resources")))
    return page.text


def _list_files(resources: object) -> str:
    """Return the URIs of a skill's files in one line; a skill without a list makes its files when they are read."""
    if not isinstance(resources, list):
        return "made when they are read"
    uris = [str(each.get("uri") or "") for each in as_objects(cast("list[object]", resources))]
    more = f" and {len(uris) - MAX_FILES} more" if len(uris) > MAX_FILES else ""
    return ", ".join(uris[:MAX_FILES]) + more


def _add_fields(page: DetailText, heading: str, fields: Sequence[Field]) -> None:
    """Add the fields of arguments or of a result, one per line; nothing if there are none."""
    if not fields:
        return
    page.heading(heading)
    for field in fields[:MAX_FIELDS]:
        row = Text.assemble("• ", (text.line(field.name, 100), "bold"), ("*" if field.required else "", "red"))
        row.append(f"  {_describe_values(field)}", style="dim")
        if field.default is not None:
            row.append(f"  default: {text.line(typed_text(field.default), 60)}", style="dim")
        if field.description or field.title != field.name:
            row.append(f"  {text.line(field.description or field.title, 300)}")
        page.paragraph(row)
    if len(fields) > MAX_FIELDS:
        page.paragraph(f"and {len(fields) - MAX_FIELDS} more", "dim")


def _describe_values(field: Field) -> str:
    """Return the choices of a field, or else its type and bounds."""
    values = [text.line(value, 40) for value, _ in field.choices[:MAX_CHOICES]]
    if len(field.choices) > MAX_CHOICES:
        values.append(f"and {len(field.choices) - MAX_CHOICES} more")
    if values:
        return f"{'any of ' if field.kind == 'choices' else ''}{' | '.join(values)}"
    type_name = "text" if field.kind == "string" else field.kind
    if field.item:
        type_name = f"list of {field.item.kind}s"
    # The hint begins with the type in words, which `type_name` says already.
    bounds = field.hint.removeprefix("whole number, ").removeprefix("number, ")
    return f"{type_name}, {bounds}" if bounds not in ("", "whole number", "number", "JSON") else type_name
