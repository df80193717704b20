"""Converts specs of the API to server configurations and back; secrets are withheld on the way out."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from pydantic import SecretStr, ValidationError

from hubbub.v1 import server_pb2
from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.config.servers.server import WITHHELD, Roots
from hubbubd.core.inbox import forms
from hubbubd.errors import InvalidArgument, InvalidServerConfig
from hubbubd.rpc.spec_fields import FIELDS, PATHS

MAX_ENTRIES = 1000
"""The most entries of a list or map in a spec: each invalid one costs several errors."""

MAX_PATHS = 100
"""The most paths of an update mask."""

SECRETS = ("env", "headers")
"""Maps whose values are withheld; of the url, the query is."""


def config(spec: server_pb2.ServerSpec, before: ServerConfig | None = None) -> ServerConfig:
    """Return the configuration for a spec; omitted options take their defaults.

    Withheld values are taken from `before`, if the endpoint is the same. Raises InvalidArgument.
    """
    return _valid(_restored(_given(spec), before))


def check(spec: server_pb2.ServerSpec) -> None:
    """Raise InvalidArgument for an invalid spec, whatever server it is for."""
    _valid(_given(spec))


def _given(spec: server_pb2.ServerSpec) -> dict[str, Any]:
    given = {key: value for key, field in FIELDS.items() if (value := field.value(spec)) is not None}
    for key, value in given.items():
        if isinstance(value, list | dict) and len(cast("list[Any]", value)) > MAX_ENTRIES:
            raise InvalidArgument.field(f"spec.{PATHS[key]}", f"may have at most {MAX_ENTRIES} entries")
    if spec.HasField("roots"):
        given["roots"] = roots(spec.roots, "spec.roots")
    match spec.WhichOneof("endpoint"):
        case "http" if spec.http.variant not in server_pb2.HttpEndpoint.Variant.values():
            raise InvalidArgument.field("spec.http.variant", f"{spec.http.variant} is no known value")
        case "http":
            given["transport"] = "sse" if spec.http.variant == server_pb2.HttpEndpoint.VARIANT_SSE else "http"
        case _:
            given["transport"] = "stdio"
    return given


def changed(before: ServerConfig, spec: server_pb2.ServerSpec, mask: FieldMask | None) -> ServerConfig:
    """Return the configuration after an update: of the mask's paths, or of the whole spec. Raises InvalidArgument."""
    if mask is None:
        return config(spec, before)
    if len(mask.paths) > MAX_PATHS:
        raise InvalidArgument.field("update_mask", f"may have at most {MAX_PATHS} paths")
    whole, _ = shown(before)
    for path in mask.paths:
        _take(whole, spec, path)
    return config(whole, before)


def shown(configured: ServerConfig) -> tuple[server_pb2.ServerSpec, list[str]]:
    """Return a configuration's spec with its secrets withheld, and the paths of these.

    Options at their default are left out.
    """
    spec, withheld = server_pb2.ServerSpec(), list[str]()
    if configured.transport == "stdio":
        spec.stdio.SetInParent()
    else:
        spec.http.variant = (
            server_pb2.HttpEndpoint.VARIANT_SSE
            if configured.transport == "sse"
            else server_pb2.HttpEndpoint.VARIANT_STREAMABLE
        )
    for key, field in FIELDS.items():
        value = getattr(configured, key)
        if value is None or value == ServerConfig.model_fields[key].get_default(call_default_factory=True):
            continue
        if key in SECRETS:
            withheld += [f"{field.path}.{name}" for name in sorted(value)]
            value = dict.fromkeys(value, WITHHELD)
        elif key == "url" and (hidden := _without_query(value)) != value:
            withheld.append(f"{field.path}?")
            value = hidden
        field.put(spec, value)
    if configured.roots != ():
        spec.roots.CopyFrom(shown_roots(configured.roots))
    return spec, withheld


def roots(given: server_pb2.Roots, field: str) -> Roots:
    """Return the roots of a server (MCP roots, or "ask"). Raises InvalidArgument."""
    if given.WhichOneof("choice") == "ask":
        return "ask"
    if given.WhichOneof("choice") is None:
        raise InvalidArgument.field(field, "must be one of ask, fixed")
    if len(given.fixed.roots) > MAX_ENTRIES:
        raise InvalidArgument.field(f"{field}.fixed.roots", f"may have at most {MAX_ENTRIES} entries")
    return tuple(_root(each, f"{field}.fixed.roots.{at}") for at, each in enumerate(given.fixed.roots))


def shown_roots(own: Roots) -> server_pb2.Roots:
    """Return a server's roots as a message."""
    if isinstance(own, str):
        return server_pb2.Roots(ask=server_pb2.Roots.Ask())
    return server_pb2.Roots(fixed=server_pb2.Roots.Fixed(roots=map(payload.dumps, own)))


def _root(raw: bytes, field: str) -> dict[str, Any]:
    found = payload.loads_object(raw, field)
    if not str(found.get("uri")).startswith("file://") or not isinstance(found.get("name", ""), str):
        raise InvalidArgument.field(field, "must be an object with a `uri` that is file://")
    return found


def _valid(given: Mapping[str, Any]) -> ServerConfig:
    try:
        return ServerConfig.model_validate(given)
    except ValidationError as exc:
        found = exc.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidArgument.fields(
            tuple((_path(error["loc"]), error["msg"]) for error in found[: forms.MAX_VIOLATIONS])
        ) from None


@contextmanager
def by_path() -> Generator[None]:
    """Name fields of the spec, not keys of the configuration, where the block is refused for them."""
    try:
        yield
    except InvalidServerConfig as exc:
        raise InvalidArgument.fields(
            tuple((_path(key.split(".", 1)), problem) for key, problem in exc.violations)
        ) from None


def _path(loc: Sequence[int | str]) -> str:
    """Return the path in the spec for an error in the configuration."""
    key, *rest = loc or ("",)
    return ".".join(["spec", *filter(None, [PATHS.get(str(key), str(key))]), *map(str, rest)])


def _without_query(url: str) -> str:
    head, mark, rest = url.partition("?")
    return f"{head}?{WITHHELD}{''.join(rest.partition('#')[1:])}" if mark else url


def _endpoint(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what must be unchanged for withheld secrets to be kept."""
    url = given.get("url")
    return (
        given.get("transport"),
        given.get("command"),
        list(given.get("args") or ()),
        given.get("cwd"),
        url and url.partition("?")[0],
    )


def _restored(given: dict[str, Any], before: ServerConfig | None) -> dict[str, Any]:
    """Put the previous secrets in place of withheld ones. Raises InvalidArgument where there are none."""
    same = before is not None and _endpoint(given) == _endpoint(before.model_dump(include=set(_ENDPOINT)))
    lacking: list[tuple[str, str]] = []
    restored = dict(given)
    for key in SECRETS:
        known: Mapping[str, SecretStr] = getattr(before, key) if before is not None and same else {}
        values = dict(given.get(key) or {})
        for name in [name for name, value in values.items() if value == WITHHELD]:
            if name in known:
                values[name] = known[name].get_secret_value()
            else:
                lacking.append((f"spec.{PATHS[key]}.{name}", _LACKING))
        if values:
            restored[key] = values
    url = given.get("url")
    if url and f"?{WITHHELD}" in url:
        if before is not None and same and before.url and url == _without_query(before.url):
            restored["url"] = before.url
        else:
            lacking.append((f"spec.{PATHS['url']}", _LACKING))
    if lacking:
        raise InvalidArgument.fields(tuple(lacking[: forms.MAX_VIOLATIONS]))
    return restored


_ENDPOINT = ("transport", "command", "args", "cwd", "url")
_LACKING = "was withheld, and is kept only while the endpoint stays the same: give the value"


def _take(whole: server_pb2.ServerSpec, spec: server_pb2.ServerSpec, path: str) -> None:
    """Copy one path of a spec into another. Raises InvalidArgument."""
    *groups, name = path.split(".")
    into: Any = whole
    source: Any = spec
    for group in groups:
        field = into.DESCRIPTOR.fields_by_name.get(group)
        if field is None or field.message_type is None or field.is_repeated:
            raise _no_path(path)
        into, source = _step(into, group), (source if source and source.HasField(group) else None)
        source = getattr(source, group) if source is not None else None
    field = into.DESCRIPTOR.fields_by_name.get(name)
    if field is None or path == "name":
        raise _no_path(path)
    into.ClearField(name)
    if source is None or (field.has_presence and not source.HasField(name)):
        return
    value: Any = getattr(source, name)
    if field.is_repeated or field.message_type is not None:
        into.MergeFrom(_only(source, name))
    else:
        setattr(into, name, value)


def _step(into: Any, group: str) -> Any:
    found = getattr(into, group)
    found.SetInParent()
    return found


def _only(source: Message, name: str) -> Message:
    """Return a message with only one of its fields."""
    copy = type(source)()
    copy.CopyFrom(source)
    for field, _ in source.ListFields():
        if field.name != name:
            copy.ClearField(field.name)
    return copy


def _no_path(path: str) -> InvalidArgument:
    return InvalidArgument.field("update_mask", f"{path[:100]!r} is no part of a spec that can be changed")
