"""Judges results of servers part by part: each entry of a list, each block of content and each message alone.

What is in order is validated in batches. A batch that is not is looked at entry by entry, and what is wrong is repaired
(`repair.py`). What cannot be mended costs the entry alone: `deviations.py` says what becomes of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Literal, cast, get_args, get_origin

from mcp_types import CancelTaskResult, GetTaskPayloadResult, GetTaskResult, ListTasksResult
from mcp_types import methods as tables
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel, TypeAdapter, ValidationError

from hubbubd import payload
from hubbubd.upstream.protocol import repair
from hubbubd.upstream.protocol.negotiation import TASKS_REVISION
from hubbubd.upstream.protocol.repair import Repairer, ResultFindings, validation_error
from hubbubd.upstream.protocol.schema_check import PIECE, Mismatch, check, weight

_SUPPLIES: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "tools/list": repair.supply_schemas,
    "resources/list": repair.supply_name,
    "resources/templates/list": repair.supply_name,
}


TASK_RESULTS: Final[dict[str, Any]] = {
    "tasks/get": GetTaskResult,
    "tasks/result": GetTaskPayloadResult,
    "tasks/cancel": CancelTaskResult,
    "tasks/list": ListTasksResult,
}
"""Result types of 2025-11-25 that the SDK's own tables leave out."""


def result_type(version: str, method: str) -> Any:
    """Return the type of a method's results, None when the revision does not define it."""
    shape: Any = tables.SERVER_RESULTS.get((method, version))
    return TASK_RESULTS.get(method) if shape is None and version == TASKS_REVISION else shape


@dataclass(frozen=True, slots=True)
class ResultShape:
    """What a method's results are made of: the `whole`, and the `member` with entries that are judged alone.

    `variants` are the types that an entry, or the content of a message, may have.
    """

    whole: TypeAdapter[Any]
    member: str
    one: TypeAdapter[Any]
    several: TypeAdapter[Any]
    variants: tuple[type[BaseModel], ...]

    @property
    def types(self) -> frozenset[str]:
        """The values that `type` may have in the variants."""
        return frozenset(kind for variant in self.variants for kind in _types(variant))

    def variant(self, entry: dict[str, Any]) -> type[BaseModel] | None:
        """Return the type that an entry is meant to have, by its `type` or by the members that it has."""
        for variant in self.variants:
            required = {each.alias or name for name, each in variant.model_fields.items() if each.is_required()}
            if entry.get("type") in kinds if (kinds := _types(variant)) else required <= entry.keys():
                return variant
        return None


@cache
def result_shape(version: str, method: str) -> ResultShape | None:
    """Return what the results of a list, or of `tools/call`, `prompts/get` and `resources/read`, are made of."""
    shape = result_type(version, method)
    if shape is None or not (method.endswith("/list") or method in ("tools/call", "prompts/get", "resources/read")):
        return None
    model = cast("type[BaseModel]", (get_args(shape) or (shape,))[0])
    for name, about in model.model_fields.items():
        entry: Any = get_args(about.annotation)[0] if get_origin(about.annotation) is list else None
        if entry is not None:
            inner = entry.model_fields["content"].annotation if method == "prompts/get" else entry
            variants = get_args(inner) or (inner,)
            return ResultShape(
                TypeAdapter(model),
                about.alias or name,
                TypeAdapter(entry),
                TypeAdapter(cast("Any", list)[entry]),
                variants,
            )
    return None


def _types(variant: type[BaseModel]) -> tuple[str, ...]:
    named = variant.model_fields.get("type")
    return get_args(named.annotation) if named is not None and get_origin(named.annotation) is Literal else ()


def check_list(
    version: str, method: str, parts: ResultShape, result: dict[str, Any], found: ResultFindings
) -> Iterator[None]:
    """Validate a list, mend or leave out its entries in place, and yield between the pieces. Raises Mismatch."""
    entries: Any = result.get(parts.member)
    if parts.member in result and entries in (None, {}):  # Go writes null for no entries, Lua an empty object
        entries = []
    if not isinstance(entries, list):
        raise Mismatch(f"{parts.member}: Input should be a valid list")
    result[parts.member] = []
    yield from check_frame(version, parts.whole, result, found)
    judge = _Judge(parts, method, None, found)
    yield from judge.all_of(cast("list[Any]", entries))
    result[parts.member] = judge.taken


def check_content(
    version: str,
    method: str,
    parts: ResultShape,
    result: dict[str, Any],
    found: ResultFindings,
    *,
    params: dict[str, Any] | None,
) -> Iterator[None]:
    """Mend a result of `tools/call`, `prompts/get` or `resources/read` that is invalid, in place. Raises Mismatch."""
    said: Any = result.get(parts.member)
    if method == "tools/call":
        said = _content(said, result, found)
    if isinstance(said, dict):  # an empty one stands for an empty list, as in lists
        said = [cast("dict[str, Any]", said)] if said else []
        found.mended.add(parts.member)
    if not isinstance(said, list):
        raise Mismatch(f"{parts.member}: Input should be a valid list")
    result[parts.member] = []
    yield from check_frame(version, parts.whole, result, found)
    judge = _Judge(parts, method, params, found)
    yield from judge.all_of(cast("list[Any]", said))
    result[parts.member] = judge.taken


def check_frame(
    version: str, adapter: TypeAdapter[Any], result: dict[str, Any], found: ResultFindings, *, members: bool = True
) -> Iterator[None]:
    """Validate a result whose long member is empty, if it has one, and mend it. Raises Mismatch.

    `members` as in `Repairer`.
    """

    def validate(piece: Any) -> object:
        return adapter.validate_python(piece, by_name=False)

    try:
        yield from check(validate, result)
    except Mismatch:
        if weight(result, repair.MENDABLE) >= repair.MENDABLE:
            raise
        if members and version == LATEST_MODERN_VERSION and repair.supply_caching(result):
            found.mended.add("its cache time")
        why = validation_error(validate, result)
        if why is not None and not Repairer(validate, members=members, vital=("isError",)).mend(
            result, why, found, "members of it"
        ):
            raise


def _content(said: Any, result: dict[str, Any], found: ResultFindings) -> Any:
    """Return a tool's content, if it is missing or no list; structured content that is no object becomes text."""
    if said is None and "task" not in result:
        said = []
        found.mended.add("content")
    if isinstance(said, str):
        said = [_text(said)]
        found.mended.add("content")
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict) and structured != []:
        del result["structuredContent"]
        found.mended.add("structuredContent")
        said = said or [_text(payload.dumps(structured).decode())]
    return said


class _Judge:
    """Judges entries; those that are `taken` are collected."""

    def __init__(self, parts: ResultShape, method: str, params: dict[str, Any] | None, found: ResultFindings) -> None:
        self.taken: list[Any] = []
        self._parts = parts
        self._method = method
        self._found = found
        self._params = params or {}
        self._of_list = method.endswith("/list")

    def _validate(self, entry: Any) -> object:
        return self._parts.one.validate_python(entry, by_name=False)

    def all_of(self, entries: list[Any]) -> Iterator[None]:
        """Judge all entries, yielding before each batch but the first."""
        for begin, end in _batches(entries):
            if begin:
                yield
            batch = entries[begin:end]
            if end - begin == 1 and weight(batch[0]) >= PIECE:
                yield from self._large(batch[0], begin)
                continue
            try:
                self._parts.several.validate_python(batch, by_name=False)
            except ValidationError:
                for at, entry in enumerate(batch, begin):
                    yield
                    self._one(entry, at)
            else:
                self.taken += batch

    def _large(self, entry: Any, at: int) -> Iterator[None]:
        try:
            yield from check(self._validate, entry)
        except Mismatch as problem:
            if self._is_of_unknown_type(entry):
                self.taken.append(entry)
            elif weight(entry, repair.MENDABLE) < repair.MENDABLE:
                yield
                self._one(entry, at)
            else:
                self._unmendable(entry, at, problem, payload.dumps(entry).decode())
        else:
            self.taken.append(entry)

    def _one(self, entry: Any, at: int) -> None:
        why = validation_error(self._validate, entry)
        if why is None:
            self.taken.append(entry)
            return
        name, counted = _name(entry, at), self._found.mended.count
        unmended = payload.dumps(entry).decode() if self._method == "tools/call" else ""
        supplied = isinstance(entry, dict) and self._supply(cast("dict[str, Any]", entry))
        if self._is_of_unknown_type(entry):
            self.taken.append(entry)
        elif self._is_mended(entry, name):
            if supplied and self._found.mended.count == counted:
                self._found.mended.add(name)
            self.taken.append(entry)
        else:
            self._unmendable(entry, at, Mismatch(f"{self._parts.member}.{at}: {_first(why)}"), unmended)

    def _supply(self, entry: dict[str, Any]) -> bool:
        if self._method == "resources/read" and not isinstance(entry.get("uri"), str):
            entry["uri"] = self._params.get("uri")
            return True
        if self._method == "prompts/get" and isinstance(entry.get("content"), str):
            entry["content"] = _text(entry["content"])
            return True
        supply = _SUPPLIES.get(self._method)
        return supply is not None and supply(entry)

    def _block(self, entry: Any) -> dict[str, Any] | None:
        """Return the content of a message, else the entry itself; None if that is no object."""
        if self._method == "prompts/get" and isinstance(entry, dict):
            entry = cast("dict[str, Any]", entry).get("content")
        return cast("dict[str, Any]", entry) if isinstance(entry, dict) else None

    def _is_of_unknown_type(self, entry: Any) -> bool:
        """Return whether this is content of a type that the revision does not have: others may know it."""
        types, block = self._parts.types, self._block(entry)
        kind = block.get("type") if block is not None else None
        if not types or not isinstance(kind, str) or kind in types:
            return False
        self._found.kept.add(kind)
        return True

    def _is_mended(self, entry: Any, name: str) -> bool:
        """Mend an entry, or the content of a message, by the type it is meant to have; return whether it is valid."""
        if not isinstance(entry, dict):
            return False
        if not self._of_list and (block := self._block(entry)) is not None and (kind := self._parts.variant(block)):
            validate = partial(kind.model_validate, by_name=False)
            why = validation_error(validate, block)
            if why is not None and not Repairer(validate, vital=("type",)).mend(block, why, self._found, name):
                return False
        why = validation_error(self._validate, entry)
        if why is None:
            return True
        return self._of_list and Repairer(self._validate, entries=True).mend(entry, why, self._found, name)

    def _unmendable(self, entry: Any, at: int, problem: Mismatch, unmended: str) -> None:
        """Leave out an entry of a list, and make the content of a tool text."""
        if self._of_list:
            self._found.left_out.add(_name(entry, at))
        elif self._method == "tools/call":
            self._found.mended.add(f"content {at + 1}")
            self.taken.append(_text(entry if isinstance(entry, str) else unmended))
        else:
            raise problem


def _batches(entries: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield where batches of about PIECE values begin and end; an entry with more is one by itself."""
    begin, filled = 0, 0
    for at, entry in enumerate(entries):
        more = weight(entry)
        if at > begin and filled + more >= PIECE:
            yield begin, at
            begin, filled = at, 0
        filled += more
    if begin < len(entries):
        yield begin, len(entries)


def _first(why: ValidationError) -> str:
    problem = why.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"[:300]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _name(entry: Any, at: int) -> str:
    """Return what a note calls an entry: its name, else its URI or id, else its place."""
    said = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    names = [said.get(member) for member in ("name", "uri", "uriTemplate", "taskId")]
    return next((name for name in names if isinstance(name, str) and name), f"no. {at + 1}")
