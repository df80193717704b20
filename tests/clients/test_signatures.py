"""Who uses the library meets its own types, and none that were generated for the wire."""

import inspect
from dataclasses import is_dataclass
from typing import Any, get_type_hints

import hubbub_client
from hubbub_client import sync
from hubbub_client.services.calls import Calls
from hubbub_client.services.inbox import Inbox


def parts_of(annotation: Any) -> set[type]:
    """The classes that an annotation is made of."""
    if isinstance(annotation, list):  # the parameters of a Callable
        return {part for each in list[Any](annotation) for part in parts_of(each)}
    within = {part for each in getattr(annotation, "__args__", ()) for part in parts_of(each)}
    origin = getattr(annotation, "__origin__", annotation)
    return within | ({origin} if inspect.isclass(origin) else set())


def annotations_of(kind: type) -> list[Any]:
    """Those of its fields, and of its public methods and properties."""
    functions = [it.fget if isinstance(it, property) else it for name, it in vars(kind).items() if name[0] != "_"]
    made = [] if is_dataclass(kind) else [vars(kind).get("__init__")]
    found = [
        get_type_hints(each) for each in (kind, *functions, *made) if inspect.isclass(each) or inspect.isfunction(each)
    ]
    return [annotation for hints in found for annotation in hints.values()]


def test_no_generated_type_stands_in_a_public_signature() -> None:
    waiting = [
        each
        for module in (hubbub_client, sync)
        for name in module.__all__
        if inspect.isclass(each := getattr(module, name))
    ]
    waiting += [each for each in vars(sync).values() if inspect.isclass(each)]  # the parts of a hub, and their facades
    functions = [hubbub_client.connect, sync.connect]
    seen: set[type] = set()
    signatures = [(each.__name__, annotation) for each in functions for annotation in get_type_hints(each).values()]
    while waiting:
        kind = waiting.pop()
        if (
            kind not in seen
            and kind.__module__.startswith("hubbub_client")
            and kind.__module__ != "hubbub_client.transport.connection"
        ):
            seen.add(kind)
            signatures += [(kind.__name__, annotation) for annotation in annotations_of(kind)]
            waiting += [part for annotation in annotations_of(kind) for part in parts_of(annotation)]
    generated = {
        (name, part.__name__)
        for name, annotation in signatures
        for part in parts_of(annotation)
        if part.__module__.startswith(("hubbub.", "google."))
    }
    assert generated == set()
    assert {hubbub_client.Hub, hubbub_client.CallHandle, hubbub_client.ServerSpec, Calls, Inbox} <= seen
    assert len(signatures) > 500
