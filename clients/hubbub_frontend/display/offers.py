"""One tool, prompt, resource or template in full."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from hubbub_client.payload import as_object, as_objects
from hubbub_frontend.display import text
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.forms import Field, nested_fields, typed_text

MAX_FIELDS = 100
MAX_CHOICES = 20

HINTS = {
    "readOnlyHint": ("changes nothing", "may change something"),
    "destructiveHint": ("may destroy something", "destroys nothing"),
    "idempotentHint": ("safe to repeat", "not safe to repeat"),
    "openWorldHint": ("reaches out to the world", "stays within its server"),
}
"""What a tool says of itself (MCP server/tools: ToolAnnotations), if it is true and if not."""


def render_offer(server: str, kind: str, shape: Mapping[str, Any]) -> Text:
    """Render it: what it is, its arguments, and what it gives."""
    name = str(shape.get("name") or "")
    annotations = as_object(shape.get("annotations"))
    page = DetailText().paragraph(Text.assemble((text.line(name, 200), "bold"), f"  a {kind} of {text.line(server)}"))
    title = str(shape.get("title") or annotations.get("title") or "")
    if title not in ("", name):
        page.paragraph(title)
    page.paragraph(shape.get("description"))
    for fact, value in (("uri", shape.get("uri") or shape.get("uriTemplate")), ("type", shape.get("mimeType"))):
        page.fact(fact, value)
    said = [words[not annotations[each]] for each, words in HINTS.items() if isinstance(annotations.get(each), bool)]
    page.fact("it says", ", ".join(said))
    if kind == "tool":
        _add_fields(page, "Arguments", nested_fields(shape.get("inputSchema")))
        _add_fields(page, "Result", nested_fields(shape.get("outputSchema")))
    elif kind == "prompt":
        _add_fields(page, "Arguments", [_prompt_field(each) for each in as_objects(shape.get("arguments"))])
    return page.text


def _prompt_field(shape: Mapping[str, Any]) -> Field:
    name = str(shape.get("name") or "-")
    description = shape.get("description")
    return Field(
        name=name,
        title=name,
        kind="string",
        description=str(description) if description else None,
        required=shape.get("required") is True,
    )


def _add_fields(page: DetailText, heading: str, found: Sequence[Field]) -> None:
    if not found:
        return
    page.heading(heading)
    for each in found[:MAX_FIELDS]:
        words = Text.assemble("• ", (text.line(each.name, 100), "bold"), ("*" if each.required else "", "red"))
        words.append(f"  {_describe_values(each)}", style="dim")
        if each.default is not None:
            words.append(f"  default: {text.line(typed_text(each.default), 60)}", style="dim")
        if each.description or each.title != each.name:
            words.append(f"  {text.line(each.description or each.title, 300)}")
        page.paragraph(words)
    if len(found) > MAX_FIELDS:
        page.paragraph(f"and {len(found) - MAX_FIELDS} more", "dim")


def _describe_values(field: Field) -> str:
    values = [text.line(value, 40) for value, _ in field.choices[:MAX_CHOICES]]
    if len(field.choices) > MAX_CHOICES:
        values.append(f"and {len(field.choices) - MAX_CHOICES} more")
    if values:
        return f"{'any of ' if field.kind == 'choices' else ''}{' | '.join(values)}"
    name = f"list of {field.item.kind}s" if field.item else "text" if field.kind == "string" else field.kind
    hint = field.hint.removeprefix("whole number, ").removeprefix("number, ")
    return f"{name}, {hint}" if hint and hint not in ("whole number", "number", "JSON") else name
