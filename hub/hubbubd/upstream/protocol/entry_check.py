"""Validates results of servers part by part: each entry of a list, each block of content and each message alone.

Entries are validated in batches. An invalid batch is validated entry by entry, and what is wrong is repaired
(`repair.py`). What cannot be repaired costs the entry alone: `deviations.py` says what becomes of it.
"""

from collections.abc import Iterator
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
from hubbubd.upstream.protocol.schema_check import PIECE, Mismatch, check, count_values
from hubbubd.upstream.protocol.skills import SKILLS_LIST, ListSkillsResult

TASK_RESULTS: Final[dict[str, Any]] = {
    "tasks/get": GetTaskResult,
    "tasks/result": GetTaskPayloadResult,
    "tasks/cancel": CancelTaskResult,
    "tasks/list": ListTasksResult,
}
"""Result types of 2025-11-25 that the SDK's own tables leave out."""


def result_type(version: str, method: str) -> Any:
    """Return the type of a method's results, None when the revision does not define it."""
    model: Any = tables.SERVER_RESULTS.get((method, version))
    if method == SKILLS_LIST:
        return ListSkillsResult
    return TASK_RESULTS.get(method) if model is None and version == TASKS_REVISION else model


@dataclass(frozen=True, slots=True)
class ResultShape:
    """What a method's results are made of: the `whole`, and the `member` with entries that are validated alone.

    `entry` validates one entry, `batch` a list of them. `variants` are the types that an entry, or the content of a
    message, may have.
    """

    whole: TypeAdapter[Any]
    member: str
    entry: TypeAdapter[Any]
    batch: TypeAdapter[Any]
    variants: tuple[type[BaseModel], ...]

    @property
    def type_names(self) -> frozenset[str]:
        """The values that `type` may have in the variants."""
        return frozenset(name for variant in self.variants for name in _type_names(variant))

    def find_variant(self, entry: dict[str, Any]) -> type[BaseModel] | None:
        """Return the type that an entry is meant to have, by its `type` or by the members that it has; None if none."""
        for variant in self.variants:
            type_names = _type_names(variant)
            required = {field.alias or name for name, field in variant.model_fields.items() if field.is_required()}
            if entry.get("type") in type_names or (not type_names and required <= entry.keys()):
                return variant
        return None


@cache
def result_shape(version: str, method: str) -> ResultShape | None:
    """Return what the results of a list, or of `tools/call`, `prompts/get` and `resources/read`, are made of.

    None for other methods, and for those that the revision does not define.
    """
    result_model = result_type(version, method)
    has_entries = method.endswith("/list") or method in ("tools/call", "prompts/get", "resources/read")
    if result_model is None or not has_entries:
        return None
    model = cast("type[BaseModel]", (get_args(result_model) or (result_model,))[0])  # of a union, the complete result
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is list:
            entry: Any = get_args(field.annotation)[0]
            inner = entry.model_fields["content"].annotation if method == "prompts/get" else entry
            return ResultShape(
                whole=TypeAdapter(model),
                member=field.alias or name,
                entry=TypeAdapter(entry),
                batch=TypeAdapter(cast("Any", list)[entry]),
                variants=get_args(inner) or (inner,),
            )
    return None


def _type_names(variant: type[BaseModel]) -> tuple[str, ...]:
    """Return the values that a type allows for its member `type`; none without such a member."""
    field = variant.model_fields.get("type")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


def check_list(
    version: str, method: str, shape: ResultShape, result: dict[str, Any], findings: ResultFindings
) -> Iterator[None]:
    """Validate a list, repair or leave out its entries in place, and yield between the pieces. Raises Mismatch."""
    entries: Any = result.get(shape.member)
    if shape.member in result and entries in (None, {}):  # Go writes null for no entries, Lua an empty object
        entries = []
    yield from _check_frame_and_entries(
        version, shape, result, entries, _EntryChecker(shape, method, None, findings), findings
    )


def check_content(
    version: str,
    method: str,
    shape: ResultShape,
    result: dict[str, Any],
    findings: ResultFindings,
    *,
    params: dict[str, Any] | None,
) -> Iterator[None]:
    """Repair an invalid result of `tools/call`, `prompts/get` or `resources/read` in place.

    `params` are those of the request: what is missing is filled in from them. Yields between the pieces. Raises
    Mismatch.
    """
    content: Any = result.get(shape.member)
    if method == "tools/call":
        content = _repair_tool_content(content, result, findings)
    if isinstance(content, dict):  # an empty one stands for an empty list, as in lists
        content = [cast("dict[str, Any]", content)] if content else []
        findings.repaired.add(shape.member)
    yield from _check_frame_and_entries(
        version, shape, result, content, _EntryChecker(shape, method, params, findings), findings
    )


def _check_frame_and_entries(
    version: str,
    shape: ResultShape,
    result: dict[str, Any],
    entries: object,
    checker: "_EntryChecker",
    findings: ResultFindings,
) -> Iterator[None]:
    """Check a result without its long list, then each of its entries; put the accepted ones into the result.

    Yields between the pieces. Raises Mismatch.
    """
    if not isinstance(entries, list):
        raise Mismatch(f"{shape.member}: Input should be a valid list")
    result[shape.member] = []
    yield from check_frame(version, shape.whole, result, findings)
    yield from checker.check_entries(cast("list[Any]", entries))
    result[shape.member] = checker.accepted


def check_frame(
    version: str, adapter: TypeAdapter[Any], result: dict[str, Any], findings: ResultFindings, *, members: bool = True
) -> Iterator[None]:
    """Validate a result without its long list, whose entries are checked elsewhere, and repair it. Raises Mismatch.

    Yields between pieces of work, so that others get their turn. With `members`, members that are invalid are left out.
    """

    def validate(piece: Any) -> object:
        return adapter.validate_python(piece, by_name=False)

    try:
        yield from check(validate, result)
    except Mismatch:
        if count_values(result, repair.REPAIRABLE_VALUES) >= repair.REPAIRABLE_VALUES:
            raise
        if members and version == LATEST_MODERN_VERSION and repair.fill_in_caching(result):
            findings.repaired.add("its cache time")
        error = validation_error(validate, result)
        if error is not None and not Repairer(validate, members=members, vital=("isError",)).repair(
            result, error, findings, "members of it"
        ):
            raise


def _repair_tool_content(content: Any, result: dict[str, Any], findings: ResultFindings) -> Any:
    """Return the content of a tool's result as a list, if it is missing or a text; as it is otherwise.

    Structured content that is no object is taken out of the result, and becomes the content if there is none. An empty
    list stays: it stands for an empty object.
    """
    if content is None and "task" not in result:
        content = []
        findings.repaired.add("content")
    if isinstance(content, str):
        content = [_text_block(content)]
        findings.repaired.add("content")
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict) and structured != []:
        del result["structuredContent"]
        findings.repaired.add("structuredContent")
        content = content or [_text_block(payload.dumps(structured).decode())]
    return content


class _EntryChecker:
    """Validates and repairs the entries of one result, and collects those that are `accepted`."""

    def __init__(
        self, shape: ResultShape, method: str, params: dict[str, Any] | None, findings: ResultFindings
    ) -> None:
        self.accepted: list[Any] = []
        self._shape = shape
        self._method = method
        self._found = findings
        self._params = params or {}
        self._is_list = method.endswith("/list")

    def _validate(self, entry: Any) -> object:
        """Validate one entry by the schema. Raises ValidationError."""
        return self._shape.entry.validate_python(entry, by_name=False)

    def check_entries(self, entries: list[Any]) -> Iterator[None]:
        """Check all entries, yielding before each batch but the first."""
        for start, end in _batch_ranges(entries):
            if start:
                yield
            batch = entries[start:end]
            if end - start == 1 and count_values(batch[0]) >= PIECE:
                yield from self._check_large_entry(batch[0], start)
                continue
            try:
                self._shape.batch.validate_python(batch, by_name=False)
            except ValidationError:
                for index, entry in enumerate(batch, start):
                    yield
                    self._check_entry(entry, index)
            else:
                self.accepted += batch

    def _check_large_entry(self, entry: Any, index: int) -> Iterator[None]:
        """Check an entry that is longer than a batch; it is repaired only if it is not too long to repair."""
        try:
            yield from check(self._validate, entry)
        except Mismatch as problem:
            if self._is_of_unknown_type(entry):
                self.accepted.append(entry)
            elif count_values(entry, repair.REPAIRABLE_VALUES) < repair.REPAIRABLE_VALUES:
                yield
                self._check_entry(entry, index)
            else:
                self._give_up_entry(entry, index, problem, payload.dumps(entry).decode())
        else:
            self.accepted.append(entry)

    def _check_entry(self, entry: Any, index: int) -> None:
        """Accept an entry, repaired if need be; one that cannot be repaired is for `_give_up_entry`."""
        error = validation_error(self._validate, entry)
        if error is None:
            self.accepted.append(entry)
            return
        name, repaired_before = _entry_name(entry, index), self._found.repaired.count
        original = payload.dumps(entry).decode() if self._method == "tools/call" else ""
        is_filled_in = isinstance(entry, dict) and self._fill_in(cast("dict[str, Any]", entry))
        if self._is_of_unknown_type(entry):
            self.accepted.append(entry)
        elif self._try_repair(entry, name):
            if is_filled_in and self._found.repaired.count == repaired_before:
                self._found.repaired.add(name)
            self.accepted.append(entry)
        else:
            problem = Mismatch(f"{self._shape.member}.{index}: {_first_problem(error)}")
            self._give_up_entry(entry, index, problem, original)

    def _fill_in(self, entry: dict[str, Any]) -> bool:
        """Fill in what an entry lacks, where it is known; return whether anything was filled in."""
        if self._method == "resources/read" and not isinstance(entry.get("uri"), str):
            entry["uri"] = self._params.get("uri")
            return True
        if self._method == "prompts/get" and isinstance(entry.get("content"), str):
            entry["content"] = _text_block(entry["content"])
            return True
        match self._method:
            case "tools/list":
                return repair.fill_in_tool_schemas(entry)
            case "resources/list" | "resources/templates/list":
                return repair.fill_in_resource_name(entry)
            case _:
                return False

    def _content_block(self, entry: Any) -> dict[str, Any] | None:
        """Return the content of a message, else the entry itself; None if that is no object."""
        if self._method == "prompts/get" and isinstance(entry, dict):
            entry = cast("dict[str, Any]", entry).get("content")
        return cast("dict[str, Any]", entry) if isinstance(entry, dict) else None

    def _is_of_unknown_type(self, entry: Any) -> bool:
        """Return whether this is content of a type that the revision does not have; if so, note the type."""
        known_types, block = self._shape.type_names, self._content_block(entry)
        type_name = block.get("type") if block is not None else None
        if not known_types or not isinstance(type_name, str) or type_name in known_types:
            return False
        self._found.unknown_types.add(type_name)
        return True

    def _try_repair(self, entry: Any, name: str) -> bool:
        """Repair an entry, or the content of a message, by the type it is meant to have; return whether it is valid.

        A skill has digests of all its files: it is taken as it is, or not at all.
        """
        if not isinstance(entry, dict) or self._method == SKILLS_LIST:
            return False
        block = None if self._is_list else self._content_block(entry)
        variant = self._shape.find_variant(block) if block is not None else None
        if variant is not None:
            validate = partial(variant.model_validate, by_name=False)
            error = validation_error(validate, block)
            if error is not None and not Repairer(validate, vital=("type",)).repair(block, error, self._found, name):
                return False
        error = validation_error(self._validate, entry)
        if error is None:
            return True
        return self._is_list and Repairer(self._validate, entries=True).repair(entry, error, self._found, name)

    def _give_up_entry(self, entry: Any, index: int, problem: Mismatch, original: str) -> None:
        """Leave out an entry of a list, or make it text if it is the content of a tool; else raise the problem.

        `original` is the entry as JSON, as it was before repairs.
        """
        if self._is_list:
            self._found.dropped.add(_entry_name(entry, index))
        elif self._method == "tools/call":
            self._found.repaired.add(f"content {index + 1}")
            self.accepted.append(_text_block(entry if isinstance(entry, str) else original))
        else:
            raise problem


def _batch_ranges(entries: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield start and end of batches of about PIECE values; an entry with more is a batch by itself."""
    start, batch_weight = 0, 0
    for index, entry in enumerate(entries):
        entry_weight = count_values(entry)
        if index > start and batch_weight + entry_weight >= PIECE:
            yield start, index
            start, batch_weight = index, 0
        batch_weight += entry_weight
    if start < len(entries):
        yield start, len(entries)


def _first_problem(error: ValidationError) -> str:
    """Return the path and the message of the first error."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"[:300]


def _text_block(text: str) -> dict[str, Any]:
    """Return a content block of type text."""
    return {"type": "text", "text": text}


def _entry_name(entry: Any, index: int) -> str:
    """Return what a note calls an entry: its name, else its URI or id, else its number."""
    members = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    for member in ("name", "uri", "uriTemplate", "taskId"):
        name = members.get(member)
        if isinstance(name, str) and name:
            return name
    return f"no. {index + 1}"
