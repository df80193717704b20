"""What was called, as an entry of the catalog: to make a call again, from a form filled in as before."""

from typing import Any

from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.data.literals import CatalogKind
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_frontend.display.text import line

# What each method uses, and the param that names it.
USED_BY_METHOD: dict[str, tuple[CatalogKind, str]] = {
    "tools/call": ("tool", "name"),
    "resources/read": ("resource", "uri"),
    "prompts/get": ("prompt", "name"),
}


class NotRepeatable(Exception):
    """A call cannot be made again; the message says why."""


async def find_repeated_call(hub: Hub, id_: str) -> tuple[CatalogEntry, dict[str, Any]]:
    """Return what a call used, and the arguments that it was sent with. Raises NotRepeatable and HubbubError."""
    call = await hub.calls.get(id_)
    params = as_object(call.params)
    kind, name_param = USED_BY_METHOD.get(call.method, (None, ""))
    name = params.get(name_param)
    if not call.ended:
        raise NotRepeatable("this call has not ended")
    if kind is None or not isinstance(name, str):
        raise NotRepeatable("such a call cannot be made again here")
    entry = await _find_entry(hub, call.server, kind, name)
    if entry is not None:
        return entry, dict(as_object(params.get("arguments")))
    if kind == "resource":  # a resource that was read by a template is in no list
        return CatalogEntry(server=call.server, kind=kind, object={"uri": name, "name": name}), {}
    raise NotRepeatable(f"{line(call.server)} does not offer {line(name)}, or not any more")


async def _find_entry(hub: Hub, server: str, kind: CatalogKind, name: str) -> CatalogEntry | None:
    """Return the entry with a name, or with a URI for a resource. Raises NotRepeatable."""
    try:
        entries, _ = await hub.catalog.read(kind, server)
    except HubbubError as error:
        raise NotRepeatable(error.message) from None
    return next((entry for entry in entries if name == (entry.uri if kind == "resource" else entry.name)), None)
