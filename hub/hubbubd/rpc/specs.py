"""Converts specs of the API to server configurations and back; secrets are withheld on the way out."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from google.protobuf.field_mask_pb2 import FieldMask
from pydantic import SecretStr, ValidationError

from hubbub.v1 import server_pb2
from hubbub_shared.spec_fields import SPEC_FIELDS, SPEC_PATHS
from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.config.servers.options import FILES_ONLY
from hubbubd.config.servers.server import OPTIONS, Roots
from hubbubd.config.servers.urls import WITHHELD, withhold_query
from hubbubd.core.inbox import forms
from hubbubd.errors import InvalidArgument, InvalidServerConfig
from hubbubd.rpc.status import copy_only_field

MAX_ENTRIES = 1000
"""The most entries of a list or map in a spec: each invalid one costs several errors."""

MAX_PATHS = 100
"""The most paths of an update mask."""

SECRETS = ("env", "headers")
"""Maps whose values are withheld. Of the url only the query is withheld."""

_GIVE_AGAIN = "was withheld, and is kept only while the endpoint stays the same: give the value"

_FOR_CALLERS = {key for key, option in OPTIONS.items() if option.limit is not FILES_ONLY}
assert set(SPEC_PATHS) == _FOR_CALLERS, (
    f"in one of server.proto and ServerConfig only: {SPEC_PATHS.keys() ^ _FOR_CALLERS}"
)


def config_of(spec: server_pb2.ServerSpec, before: ServerConfig | None = None) -> ServerConfig:
    """Return the configuration for a spec; omitted options take their defaults.

    Secrets that callers are not shown (withheld) come back as placeholders. Their values are taken from `before`, if
    the endpoint is the same. Raises InvalidArgument.
    """
    return _validate(_restore_secrets(_read_options(spec), before))


def check_spec(spec: server_pb2.ServerSpec) -> None:
    """Raise InvalidArgument for an invalid spec, whatever server it is for."""
    _validate(_read_options(spec))


def apply_update(before: ServerConfig, spec: server_pb2.ServerSpec, mask: FieldMask | None) -> ServerConfig:
    """Return the configuration after an update: of the mask's paths, or of the whole spec. Raises InvalidArgument."""
    if mask is None:
        return config_of(spec, before)
    if len(mask.paths) > MAX_PATHS:
        raise InvalidArgument.field("update_mask", f"may have at most {MAX_PATHS} paths")
    updated = render_spec(before).spec
    for path in mask.paths:
        _copy_path(updated, spec, path)
    return config_of(updated, before)


class RenderedSpec(NamedTuple):
    """A spec for callers, and the paths of the secrets that it does not show."""

    spec: server_pb2.ServerSpec
    withheld: list[str]


def render_spec(config: ServerConfig) -> RenderedSpec:
    """Return a configuration's spec with placeholders for its secrets. Options at their default are left out."""
    spec = server_pb2.ServerSpec()
    withheld: list[str] = []
    match config.transport:
        case "stdio":
            # Marks the endpoint as stdio even if none of its fields is set.
            spec.stdio.SetInParent()
        case "sse":
            spec.http.variant = server_pb2.HttpEndpoint.VARIANT_SSE
        case _:
            spec.http.variant = server_pb2.HttpEndpoint.VARIANT_STREAMABLE
    for key, field in SPEC_FIELDS.items():
        value = getattr(config, key)
        if value is None or config.is_default(key):
            continue
        if key in SECRETS:
            withheld += [f"{field.path}.{name}" for name in sorted(value)]
            value = dict.fromkeys(value, WITHHELD)
        elif key == "url" and "?" in value:
            withheld.append(f"{field.path}?")
            value = withhold_query(value)
        field.set_value(spec, value)
    if config.roots != ():
        spec.roots.CopyFrom(render_roots(config.roots))
    return RenderedSpec(spec, withheld)


def parse_roots(roots: server_pb2.Roots, field: str) -> Roots:
    """Return the roots of a server (MCP roots, or "ask"). Raises InvalidArgument, which names the `field`."""
    choice = roots.WhichOneof("choice")
    if choice == "ask":
        return "ask"
    if choice is None:
        raise InvalidArgument.field(field, "must be one of ask, fixed")
    if len(roots.fixed.roots) > MAX_ENTRIES:
        raise InvalidArgument.field(f"{field}.fixed.roots", f"may have at most {MAX_ENTRIES} entries")
    return tuple(_parse_root(root, f"{field}.fixed.roots.{index}") for index, root in enumerate(roots.fixed.roots))


def render_roots(roots: Roots) -> server_pb2.Roots:
    """Return a server's roots as a message."""
    if isinstance(roots, str):
        return server_pb2.Roots(ask=server_pb2.Roots.Ask())
    return server_pb2.Roots(fixed=server_pb2.Roots.Fixed(roots=map(payload.dumps, roots)))


@contextmanager
def name_spec_fields() -> Generator[None]:
    """Turn an InvalidServerConfig that the block raises into an InvalidArgument, which names fields of the spec."""
    try:
        yield
    except InvalidServerConfig as exc:
        raise InvalidArgument.fields(
            tuple((_spec_path(key.split(".", 1)), problem) for key, problem in exc.violations)
        ) from None


def _read_options(spec: server_pb2.ServerSpec) -> dict[str, Any]:
    """Return the options that a spec has, by key of the configuration and not validated. Raises InvalidArgument."""
    options: dict[str, Any] = {}
    for key, field in SPEC_FIELDS.items():
        value = field.get_value(spec)
        if value is None:
            continue
        if isinstance(value, list | dict) and len(cast("list[Any]", value)) > MAX_ENTRIES:
            raise InvalidArgument.field(f"spec.{field.path}", f"may have at most {MAX_ENTRIES} entries")
        options[key] = value
    if spec.HasField("roots"):
        options["roots"] = parse_roots(spec.roots, "spec.roots")
    options["transport"] = "stdio"
    if spec.WhichOneof("endpoint") == "http":
        variants = server_pb2.HttpEndpoint.Variant
        if spec.http.variant not in variants.values():
            raise InvalidArgument.field("spec.http.variant", f"{spec.http.variant} is no known value")
        options["transport"] = "sse" if spec.http.variant == server_pb2.HttpEndpoint.VARIANT_SSE else "http"
    return options


def _parse_root(document: bytes, field: str) -> dict[str, Any]:
    """Return one MCP root from its JSON. Raises InvalidArgument, which names the `field`."""
    root = payload.loads_object(document, field)
    if not str(root.get("uri")).startswith("file://") or not isinstance(root.get("name", ""), str):
        raise InvalidArgument.field(field, "must be an object with a `uri` that is file://")
    return root


def _validate(options: Mapping[str, Any]) -> ServerConfig:
    """Return the configuration with these options. Raises InvalidArgument, which names fields of the spec."""
    try:
        return ServerConfig.model_validate(options)
    except ValidationError as exc:
        problems = exc.errors(include_url=False, include_context=False, include_input=False)[: forms.MAX_VIOLATIONS]
        raise InvalidArgument.fields(tuple((_spec_path(each["loc"]), each["msg"]) for each in problems)) from None


def _spec_path(location: Sequence[int | str]) -> str:
    """Return the path in the spec for a place in the configuration: `spec.stdio.args.2` for `("args", 2)`.

    No key, or an empty one, is the whole spec.
    """
    if not location or not location[0]:
        return "spec"
    key, *inner = map(str, location)
    return ".".join(["spec", SPEC_PATHS.get(key, key), *inner])


def _identify_endpoint(options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the options that identify the endpoint: a change of one of them drops the withheld secrets."""
    url = options.get("url")
    return (
        options.get("transport"),
        options.get("command"),
        list(options.get("args") or ()),
        options.get("cwd"),
        url and url.partition("?")[0],
    )


def _restore_secrets(options: dict[str, Any], before: ServerConfig | None) -> dict[str, Any]:
    """Return options with the secrets of `before` in place of their placeholders.

    Another endpoint gets no secret of `before`. Raises InvalidArgument for placeholders without a known secret.
    """
    secrets_source = before
    if before is not None and _identify_endpoint(options) != _identify_endpoint(before.model_dump()):
        secrets_source = None
    missing: list[str] = []
    restored = dict(options)
    for key in SECRETS:
        stored: Mapping[str, SecretStr] = {} if secrets_source is None else getattr(secrets_source, key)
        values = dict(options.get(key) or {})
        for name in [name for name, value in values.items() if value == WITHHELD]:
            if name in stored:
                values[name] = stored[name].get_secret_value()
            else:
                missing.append(f"spec.{SPEC_PATHS[key]}.{name}")
        if values:
            restored[key] = values
    url = options.get("url")
    if url and f"?{WITHHELD}" in url:
        if secrets_source is not None and secrets_source.url and url == withhold_query(secrets_source.url):
            restored["url"] = secrets_source.url
        else:
            missing.append(f"spec.{SPEC_PATHS['url']}")
    if missing:
        raise InvalidArgument.fields(tuple((path, _GIVE_AGAIN) for path in missing[: forms.MAX_VIOLATIONS]))
    return restored


def _copy_path(target: server_pb2.ServerSpec, spec: server_pb2.ServerSpec, path: str) -> None:
    """Copy one field of a spec into `target`, by its dotted path; clear it if the spec leaves it out.

    Raises InvalidArgument for a path that is no field, or may not be changed.
    """
    *groups, name = path.split(".")
    holder: Any = target
    source: Any = spec
    for group in groups:
        field = holder.DESCRIPTOR.fields_by_name.get(group)
        if field is None or field.message_type is None or field.is_repeated:
            raise _unknown_path(path)
        holder = getattr(holder, group)
        holder.SetInParent()
        source = getattr(source, group) if source is not None and source.HasField(group) else None
    field = holder.DESCRIPTOR.fields_by_name.get(name)
    if field is None or path == "name":  # a server keeps its name
        raise _unknown_path(path)
    holder.ClearField(name)
    if source is None or (field.has_presence and not source.HasField(name)):
        return
    if field.is_repeated or field.message_type is not None:
        holder.MergeFrom(copy_only_field(source, name))
    else:
        setattr(holder, name, getattr(source, name))


def _unknown_path(path: str) -> InvalidArgument:
    return InvalidArgument.field("update_mask", f"{path[:100]!r} is no part of a spec that can be changed")
