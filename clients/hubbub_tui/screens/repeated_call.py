"""What was called, as an entry of the catalog: to make a call again, from a form filled in as before."""

from typing import Any

from hubbub_client.data.records import Call, CatalogEntry, CatalogKind
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_frontend.display.text import line

# What each method uses, and the param that names it.
USED: dict[str, tuple[CatalogKind, str]] = {
    "tools/call": ("tool", "name"),
    "resources/read": ("resource", "uri"),
    "prompts/get": ("prompt", "name"),
}


class NotAgain(Exception):
    """A call cannot be made again; the words say why."""


async def made_again(hub: Hub, id_: str) -> tuple[CatalogEntry, dict[str, Any]]:
    """Return what a call used, and the arguments that it was sent with. Raises NotAgain and HubbubError."""
    call = await hub.calls.get(id_)
    params = as_object(call.params)
    kind, naming = USED.get(call.method, (None, ""))
    named = params.get(naming)
    if not call.ended:
        raise NotAgain("this call has not ended")
    if kind is None or not isinstance(named, str):
        raise NotAgain("such a call cannot be made again here")
    found = await _offered(hub, call, kind, named)
    if found is not None:
        return found, dict(as_object(params.get("arguments")))
    if kind == "resource":  # it was read by a template, so no list has it
        return CatalogEntry(server=call.server, kind=kind, object={"uri": named, "name": named}), {}
    raise NotAgain(f"{line(call.server)} does not offer {line(named)}, or not any more")


async def _offered(hub: Hub, call: Call, kind: CatalogKind, named: str) -> CatalogEntry | None:
    try:
        entries, _ = await hub.catalog.read(kind, call.server)
    except HubbubError as error:
        raise NotAgain(error.message) from None
    return next((each for each in entries if named == (each.uri if kind == "resource" else each.name)), None)
