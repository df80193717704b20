"""Results and notifications of servers: validated against the revision, otherwise passed on unchanged.

What deviates from MCP in results is noted for the operator.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, cast, get_args

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import CreateTaskResult, InputRequiredResult
from mcp_types import methods as tables
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails

from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.protocol import schema_check
from hubbubd.upstream.protocol.entry_check import check_content, check_frame, check_list, result_shape, result_type
from hubbubd.upstream.protocol.negotiation import TASKS_REVISION, Revision, StatelessRevision
from hubbubd.upstream.protocol.repair import ResultFindings, fill_in_log_message
from hubbubd.upstream.protocol.skills import SKILLS_LIST, ListSkillsResult
from hubbubd.upstream.protocol.tool_headers import HeaderNames

MAX_META: Final = 1000
"""The most members of `_meta` in a notification: the only part that a schema goes through entry by entry."""

STEP: Final = 500
"""Tools whose headers are examined per turn of the event loop."""

LISTS: Final = frozenset(
    {"tools/list", "resources/list", "resources/templates/list", "prompts/list", "tasks/list", "skills/list"}
)
"""Methods whose pages are noted together. Callers may ask for others of such a name, as many as they like."""


class _Task(BaseModel):
    """Members of every task of the extension (SEP-2663, Task)."""

    model_config = ConfigDict(alias_generator=to_camel)

    task_id: Annotated[str, Field(min_length=1)]
    status_message: str | None = None
    ttl_ms: Annotated[int, Field(ge=0)] | None = None
    poll_interval_ms: Annotated[int, Field(ge=0)] | None = None


class _CreatedTask(_Task):
    """The task that a request was answered with."""

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]


class _OpenTask(_Task):
    """A task that has neither a result nor a question."""

    status: Literal["working", "cancelled"]


class _AskingTask(_Task):
    """A task that waits for the answers to its requests."""

    status: Literal["input_required"]
    input_requests: dict[str, dict[str, Any]]


class _CompletedTask(_Task):
    status: Literal["completed"]
    result: dict[str, Any]


class _FailedTask(_Task):
    status: Literal["failed"]
    error: "_TaskError"


class _TaskError(BaseModel):
    """The JSON-RPC error of a failed task."""

    code: int
    message: str


_CREATED: Final[TypeAdapter[Any]] = TypeAdapter(_CreatedTask)
_EXTENSION_RESULTS: Final[dict[str, TypeAdapter[Any]]] = {
    "tasks/get": TypeAdapter(
        Annotated[_OpenTask | _AskingTask | _CompletedTask | _FailedTask, Field(discriminator="status")]
    ),
    SKILLS_LIST: TypeAdapter(ListSkillsResult),
}
"""Result types of the extensions for tasks (2026-07-28) and skills, which the SDK does not have."""


class ResultNotes:
    """Notes about results. A note about a list covers all its pages, and is withdrawn once the list is in order."""

    def __init__(self, note: Callable[[str, str | None], None]) -> None:
        self._note = note
        self._lists: dict[str, ResultFindings] = {}

    def findings_for(self, method: str, params: dict[str, Any] | None) -> ResultFindings:
        """Return where to collect what deviates in a result of this request; the pages of a list share one."""
        if method not in LISTS:
            return ResultFindings()
        if not (params or {}).get("cursor"):
            self._lists[method] = ResultFindings()
        return self._lists.setdefault(method, ResultFindings())

    def note_introduction(self, findings: ResultFindings) -> None:
        """Note what was found in the server's introduction."""
        self._note_empty_list(findings)
        if findings.repaired.count:
            self._note(Deviation.INTRODUCTION_MENDED, describe_deviation(Deviation.INTRODUCTION_MENDED))

    def note_result(self, method: str, result: dict[str, Any], findings: ResultFindings) -> None:
        """Note what was found in a result."""
        self._note_empty_list(findings)
        if method not in LISTS:
            if findings.repaired.count:
                self._note(
                    Deviation.RESULT_MENDED,
                    describe_deviation(Deviation.RESULT_MENDED, f"{method}: {findings.repaired}"),
                )
            if findings.unknown_types.count:
                self._note(
                    Deviation.CONTENT_UNKNOWN,
                    describe_deviation(Deviation.CONTENT_UNKNOWN, f"{method}: {findings.unknown_types}"),
                )
            return
        is_last_page = not result.get("nextCursor")
        for deviation, names in (
            (Deviation.ENTRY_MENDED, findings.repaired),
            (Deviation.ENTRY_LEFT_OUT, findings.dropped),
        ):
            if names.count:
                self._note(f"{deviation}/{method}", describe_deviation(deviation, f"{method}: {names}"))
            elif is_last_page:
                self._note(f"{deviation}/{method}", None)

    def _note_empty_list(self, findings: ResultFindings) -> None:
        """Note that empty lists were taken as empty objects, if any were."""
        if findings.has_empty_list:
            self._note(Deviation.EMPTY_LIST, describe_deviation(Deviation.EMPTY_LIST))


def is_in_other_revision_only(version: str, method: str) -> bool:
    """Return whether the method exists in other revisions, but not in this one."""
    if (method, version) in tables.SERVER_RESULTS:
        return False
    is_former_task_method = version == LATEST_MODERN_VERSION and method in ("tasks/list", "tasks/result")
    return is_former_task_method or any(known == method for known, _ in tables.SERVER_RESULTS)


def check_result(
    revision: Revision, method: str, params: dict[str, Any] | None, result: dict[str, Any], findings: ResultFindings
) -> Iterator[None]:
    """Validate a result, and repair it in place where that does no harm; `findings` gets what deviates.

    Results of methods unknown to the revision pass. Yields between the pieces of a long one. Raises Mismatch.
    """
    version, shape = revision.version, result_shape(revision.version, method)
    try:
        adapter = _result_adapter(revision, method, params, result)
    except ValidationError as exc:
        raise schema_check.Mismatch(schema_check.describe_problems(exc)) from None
    if adapter is None:
        return
    if version == TASKS_REVISION:
        _fill_in_ttl(result)
    must_keep_members = _must_keep_members(method, result)
    if shape is None or must_keep_members:
        yield from check_frame(version, adapter, result, findings, members=not must_keep_members)
    elif method.endswith("/list"):
        yield from check_list(version, method, shape, result, findings)
    else:
        try:
            yield from schema_check.check(lambda piece: adapter.validate_python(piece, by_name=False), result)
        except schema_check.Mismatch:
            yield from check_content(version, method, shape, result, findings, params=params)


def _must_keep_members(method: str, result: dict[str, Any]) -> bool:
    """Return whether a result asks something or is about a task: then none of its members may be left out."""
    is_about_task = "task" in result or (method.startswith("tasks/") and method != "tasks/list")
    return is_about_task or result.get("resultType", "complete") != "complete"


def check_notification(version: str, method: str, params: dict[str, Any]) -> None:
    """Validate a notification. This does not yield: notifications must stay in order, and none of them has a list.

    Raises Mismatch, and KeyError for one that the revision does not define.
    """
    meta = params.get("_meta")
    if isinstance(meta, dict) and len(cast("dict[str, Any]", meta)) > MAX_META:
        raise schema_check.Mismatch(f"_meta: it has more than {MAX_META} members")
    try:
        tables.parse_server_notification(method, version, params)
    except ValidationError as exc:
        raise schema_check.Mismatch(schema_check.describe_problems(exc)) from None


def repair_notification(version: str, method: str, params: dict[str, Any]) -> bool:
    """Repair a notification in place, and return whether it is valid now.

    A log message gets a valid level and data; `_meta` becomes an object.
    """
    if method == "notifications/message":
        fill_in_log_message(params)
    params["_meta"] = params.get("_meta") or {}
    try:
        check_notification(version, method, params)
    except schema_check.Mismatch:
        return False
    return True


def _result_adapter(
    revision: Revision, method: str, params: dict[str, Any] | None, result: dict[str, Any]
) -> TypeAdapter[Any] | None:
    """Return what validates a result; None when the revision does not define the method. Raises ValidationError."""
    if isinstance(revision, StatelessRevision):
        return _stateless_adapter(revision, method, result)
    return _handshake_adapter(revision.version, method, bool(params and "task" in params))


def learn_tool_headers(
    revision: StatelessRevision, listing: dict[str, Any], cursor: str | None, findings: ResultFindings
) -> Iterator[None]:
    """Learn which arguments of a page's tools are repeated as headers; drop tools whose annotation of that is invalid.

    A client must do the latter (2026-07-28, tools, x-mcp-header). `cursor` is the one the page was requested with.
    `findings` gets the names of the dropped ones. Yields after each STEP.
    """
    valid_tools: list[dict[str, Any]] = []
    header_names: dict[str, HeaderNames] = {}
    for index, tool in enumerate(cast("list[dict[str, Any]]", listing["tools"])):
        if index and index % STEP == 0:
            yield
        problem = find_invalid_x_mcp_header(tool.get("inputSchema"))
        if problem is not None:
            findings.dropped.add(f"{tool['name']} ({problem})")
            continue
        header_names[tool["name"]] = x_mcp_header_map(tool.get("inputSchema"))
        valid_tools.append(tool)
    listing["tools"] = valid_tools
    revision.tool_headers.add_page(cursor, header_names, listing.get("nextCursor") or None)


def _fill_in_ttl(result: dict[str, Any]) -> None:
    """Add a missing `ttl` of null, which servers on the SDK's first generation leave out."""
    tasks = result.get("tasks")
    listed_tasks = cast("list[Any]", tasks) if isinstance(tasks, list) else []
    for task in (result, result.get("task"), *listed_tasks):
        if isinstance(task, dict) and "taskId" in task:
            cast("dict[str, Any]", task).setdefault("ttl", None)


def _stateless_adapter(revision: StatelessRevision, method: str, result: dict[str, Any]) -> TypeAdapter[Any] | None:
    """Return what validates a result of its resultType, which is filled in first; None for an unknown method.

    Raises ValidationError for a resultType that the method does not have (basic, results).
    """
    adapters = _adapters_by_type(revision.version, method)
    if not adapters:
        return _EXTENSION_RESULTS.get(method)
    revision.normalize_result(result)
    kind = result["resultType"]
    if not isinstance(kind, str) or kind not in adapters:
        expected = " or ".join(map(repr, adapters))
        problem = InitErrorDetails(
            type="literal_error", loc=("resultType",), input=cast("object", kind), ctx={"expected": expected}
        )
        raise ValidationError.from_exception_data("Result", [problem])
    return adapters[kind]


@cache
def _adapters_by_type(version: str, method: str) -> Mapping[str, TypeAdapter[Any]]:
    """Return the types of a method's result by resultType; none when the revision does not define the method."""
    shape: Any = tables.SERVER_RESULTS.get((method, version))
    if shape is None:
        return {}
    complete, *others = get_args(shape) or (shape,)
    adapters = {"complete": TypeAdapter[Any](complete)}
    if others:
        adapters["input_required"] = TypeAdapter(InputRequiredResult)  # also requires that it asks for something
    if method == "tools/call":
        adapters["task"] = _CREATED
    return adapters


@cache
def _handshake_adapter(version: str, method: str, as_task: bool) -> TypeAdapter[Any] | None:
    """Return what validates a result in a revision with a handshake; with `as_task` it may also be a new task.

    None when the revision does not define the method.
    """
    shape = result_type(version, method)
    if version == TASKS_REVISION and as_task and shape is not None:
        shape = CreateTaskResult | shape  # the server may answer at once instead
    return TypeAdapter(shape) if shape is not None else None
