"""Specs of servers under the keys of a configuration file, and their conversion to and from the API.

The API groups the same options. The option `config_key` of each field names its key, so one table converts both ways.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from typing import Any, get_args

from hubbub.v1 import server_pb2
from hubbub_client import payload
from hubbub_client.data import conversion
from hubbub_client.data.records import Server, Transport
from hubbub_client.data.spec_options import Roots, SpecOptions
from hubbub_client.errors import Aborted
from hubbub_shared.spec_fields import SPEC_FIELDS, SPEC_PATHS

TRANSPORTS: tuple[str, ...] = get_args(Transport)
ENDPOINTS: Mapping[str, str] = {"stdio": "a stdio server", "http": "a server over HTTP"}


@dataclass(frozen=True, kw_only=True)
class ServerSpec(SpecOptions):
    """A server's configuration; None stands for an option's default (docs/configuration.md). `*_s` are in seconds.

    A `command` or a `url` is needed. `withheld` names the values that the hub does not show: an update leaves them as
    they are if the endpoint stays the same.
    """

    withheld: tuple[str, ...] = dataclass_field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the options that are set, by key."""
        # An empty `withheld` is its default; other options are set also by an empty value, as their default is None.
        options = super().to_json()
        return {key: value for key, value in options.items() if value is not None and (key != "withheld" or value)}


KEYS = tuple(each.name for each in fields(ServerSpec) if each.name != "withheld")
WORDS: Mapping[str, str] = {"roots": "ask", "confirm": "writes"}
"""The word that an option takes in place of a list."""

TEXT_KEYS = frozenset(each.name for each in fields(ServerSpec) if each.type in (str, str | None))


@dataclass(frozen=True, kw_only=True)
class ConfiguredServer(Server):
    """A server, with its spec if the caller may administer it."""

    spec: ServerSpec | None = None


class RevisionConflict(Aborted):
    """The server has changed since it was read, so the hub changed nothing.

    `revision`, `spec` and `roots` are the current ones. `spec` and `roots` are None if they did not fit into the error,
    or if the caller may not see them.
    """

    revision: int = 0
    spec: ServerSpec | None = None
    roots: Roots | None = None


@contextmanager
def raise_conflicts() -> Generator[None]:
    """Raise a RevisionConflict in place of an Aborted that has the current state of the server."""
    try:
        yield
    except Aborted as refusal:
        if refusal.conflict is None:
            raise
        current = server_pb2.RevisionConflict.FromString(refusal.conflict)
        error = RevisionConflict(
            refusal.message, reason=refusal.reason, metadata=refusal.metadata, help_url=refusal.help_url
        )
        error.revision = current.revision
        error.spec = from_message(current.spec, current.withheld) if current.HasField("spec") else None
        error.roots = read_roots(current.roots) if current.HasField("roots") else None
        raise error from None


def to_message(spec: ServerSpec) -> server_pb2.ServerSpec:
    """Return the spec as a message of the API. Raises ValueError for values that no field takes."""
    message = server_pb2.ServerSpec()
    if spec.transport not in (None, *TRANSPORTS):
        raise ValueError(f"transport: {spec.transport!r} is not one of {', '.join(TRANSPORTS)}")
    if spec.transport == "stdio" and spec.url is not None:
        raise ValueError(f"url is not an option of {ENDPOINTS['stdio']}")
    if spec.url is not None or spec.transport in ("http", "sse"):
        message.http.SetInParent()
        if spec.transport == "sse":
            message.http.variant = server_pb2.HttpEndpoint.VARIANT_SSE
    for key, field in SPEC_FIELDS.items():
        value: Any = getattr(spec, key)
        if value is None or (key == "protocol" and value == "auto"):  # the API has no word for auto: it is the default
            continue
        if key == "confirm" and value == WORDS[key]:
            value = [value]  # as in a configuration file
        endpoint = message.WhichOneof("endpoint")
        group = field.steps[0]
        if group in ENDPOINTS and endpoint not in (None, group):
            raise ValueError(f"{key} is not an option of {ENDPOINTS[endpoint]}")
        try:
            field.set_value(message, value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"{key}: {error}") from None
    if spec.roots is not None:
        message.roots.CopyFrom(roots_message(spec.roots))
    return message


def from_message(message: server_pb2.ServerSpec, withheld: Sequence[str] = ()) -> ServerSpec:
    """Return the spec of a message. Raises nothing, whatever the hub sends."""
    values: dict[str, Any] = {key: field.get_value(message) for key, field in SPEC_FIELDS.items()}
    if message.WhichOneof("endpoint") == "http":
        values["transport"] = "sse" if message.http.variant == server_pb2.HttpEndpoint.VARIANT_SSE else "http"
    if message.HasField("roots"):
        values["roots"] = read_roots(message.roots)
    values["name"], values["withheld"] = message.name, tuple(withheld)
    return ServerSpec(**values)


def read_roots(message: server_pb2.Roots) -> Roots:
    """Return the roots of a message: a list of MCP roots, or `ask`."""
    if message.WhichOneof("choice") == "ask":
        return "ask"
    return [payload.as_object(conversion.read_document(each)) for each in message.fixed.roots]


def roots_message(roots: Roots) -> server_pb2.Roots:
    """Return the roots as a message of the API. Raises ValueError for a string other than `ask`."""
    if isinstance(roots, str):
        if roots != "ask":
            raise ValueError("roots: must be `ask`, or a list of MCP roots")
        return server_pb2.Roots(ask=server_pb2.Roots.Ask())
    return server_pb2.Roots(fixed=server_pb2.Roots.Fixed(roots=[payload.dumps(each) for each in roots]))


def field_paths(*keys: str) -> list[str]:
    """Return the field paths of keys, for an update mask. Raises ValueError for an unknown key."""
    unknown = [key for key in keys if key not in SPEC_PATHS]
    if unknown:
        raise ValueError(f"unknown option of a server: {', '.join(unknown)}")
    return [SPEC_PATHS[key] for key in keys]
