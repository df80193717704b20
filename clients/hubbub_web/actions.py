"""Actions of a page, one function each: the session and checked JSON values in, a JSON value out."""

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from hubbub_client.data.approvals import ApproveOptions
from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.data.literals import CatalogKind
from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.data.specs import ServerSpec
from hubbub_client.errors import FailedPrecondition, HubbubError, InvalidArgument, PermissionDenied
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_frontend.arguments import parse_pairs
from hubbub_frontend.as_task import call_modes
from hubbub_frontend.display.hosts import EMPTY, MAX_HOSTS, OTHERS, PASTE, REFUSED, fetch_waiting_host, host_name
from hubbub_frontend.display.records import call_state, outcome
from hubbub_frontend.display.timeline import build_timeline
from hubbub_web.access.sessions import Session
from hubbub_web.records.agent import agent_json
from hubbub_web.records.approval import approval_json, call_approval_json, parse_arguments
from hubbub_web.records.brief import brief, question_excerpt, whole_host_json
from hubbub_web.records.search import search
from hubbub_web.registry import Action, Id, register

JsonObject = dict[str, JsonValue]
ClaimId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,64}$")]
"""Id of a claim, chosen by a window: two windows of one person are two claims."""

CLAIM_S = 60.0
"""Seconds until the claim of a window that disappeared lapses; the page renews it more often."""

MAX_NAME_CHARS = 64
LOG_LINES = 200
MAX_REQUESTS = 200

MAX_SEARCH_CHARS = 200
"""Characters of a search."""

FIELD_BY_REASON = {
    "COMMAND_NOT_ALLOWED": "command",
    "HOST_NOT_ALLOWED": "url",
    "VARIABLE_NOT_ALLOWED": "variables",
    "SERVER_EXISTS": "name",
}
"""The field that a refusal to add a server is about, by its reason."""

ACTIONS: dict[str, Action] = {}

action = partial(register, ACTIONS)


@action
async def me(session: Session) -> Any:
    """Return the name under which this browser acts, null while the person has given none; `fixed` is true if the hub
    lets this bridge act in no other name.
    """
    if session.name is None:
        caller = await (await session.hub()).admin.whoami()
        if not caller.may_name_others:
            return {"name": caller.name, "fixed": True}
    return {"name": session.name, "fixed": False}


@action
async def rename(session: Session, name: str) -> Any:
    """Set the name under which this browser claims and answers; its claims under the old name are released.

    Return the name as the hub knows it. Raises HubbubError if the hub does not accept it.
    """
    rule = f"has 1 to {MAX_NAME_CHARS} characters that can be printed"
    name = name.strip()
    if not name:
        raise InvalidArgument("a name is needed", violations=(("name", rule),))
    try:
        accepted_name = (await (await session.people.hub(name)).admin.whoami()).name
    except InvalidArgument:
        raise InvalidArgument(f"a name {rule}", violations=(("name", rule),)) from None
    await _release_all(session)
    session.name = accepted_name
    return {"name": accepted_name}


@action
async def request(session: Session, id: Id) -> Any:  # noqa: A002 - the field's name
    """Return a whole pending request."""
    return await _whole_request(session, await (await session.hub()).inbox.get(id))


@action
async def claim(session: Session, id: Id, claim_id: ClaimId, take_over: bool = False) -> Any:  # noqa: A002
    """Claim a pending request for a window, or renew its claim; with `take_over` also from another window of the same
    person."""
    hub = await session.hub()
    async with session.claim_lock:
        if claim_id in session.closed_claims:
            raise FailedPrecondition("this window has left the request", reason="CLAIM_LOST")
        session.remember_claim(id, claim_id)  # before the RPC: if its response is lost, there may be a claim
        return _request_json(await hub.inbox.claim(id, CLAIM_S, claim_id=claim_id, take_over=take_over))


@action
async def release(session: Session, id: Id, claim_id: ClaimId) -> Any:  # noqa: A002
    """Release a window's claim for good: a late request for the same claim is refused."""
    async with session.claim_lock:
        session.close_claim(claim_id)
        with contextlib.suppress(FailedPrecondition):  # the claim has ended already
            await (await session.hub()).inbox.release(id, claim_id)
    return {}


@action
async def answer(
    session: Session,
    id: Id,  # noqa: A002
    answer_id: Id,
    claim_id: ClaimId | None = None,
    accept: JsonObject | None = None,
    visit: bool = False,
    decline: bool = False,
    cancel: bool = False,
    text: str | None = None,
    result: JsonObject | None = None,
    reject: str | None = None,
    approve: str | None = None,
    arguments: str | None = None,
    remember_s: int = 0,
    same_arguments: bool = False,
    suggestions: Annotated[list[int], Field(max_length=100)] | None = None,
    comment: str = "",
    deny: str | None = None,
) -> Any:
    """Answer a pending request, under the window's claim if it has one. `visit` accepts a page to visit. `approve` is
    the digest of a call's arguments as they were shown, and `arguments` is the JSON to send in their place.

    Return the whole request. If the window's claim was lost, the answer is sent without a claim.
    """
    inbox = (await session.hub()).inbox
    content = True if visit else accept
    approval: ApproveOptions | bool = False
    if approve is not None:
        approval = {"digest": approve, "remember_s": remember_s, "same_arguments": same_arguments}
        approval |= {"suggestions": suggestions or (), "comment": comment}
        if arguments is not None:
            approval["arguments"] = parse_arguments(arguments)

    async def send(under_claim: str | None) -> PendingRequest:
        """Send the answer under a claim, or under none; return the request as it is then."""
        return await inbox.answer(
            id,
            accept=False if content is None else content,
            decline=decline,
            cancel=cancel,
            text=text,
            result=result,
            reject=reject,
            approve=approval,
            deny=deny,
            claim_id=under_claim,
            answer_id=answer_id,
        )

    async with session.claim_lock:
        try:
            record = await send(claim_id)
        except FailedPrecondition as error:
            if claim_id is None or error.reason != "CLAIM_LOST":
                raise
            record = await send(None)
        if claim_id is not None:
            session.claims.pop(claim_id, None)
    return await _whole_request(session, record)


@action
async def call(session: Session, id: Id) -> Any:  # noqa: A002
    """Return a whole call, its pending requests, and where its time went."""
    record, requests, timeline = await _fetch_with_timeline(await session.hub(), id)
    return {
        "call": record.to_json() | {"outcome": call_state(record), "approval": call_approval_json(record, requests)},
        "requests": [_request_json(each) for each in reversed(requests)],
        "timeline": timeline,
    }


@action
async def sent(session: Session, id: Id) -> Any:  # noqa: A002
    """Return the MCP method and params that a call was sent with."""
    record = await (await session.hub()).calls.get(id)
    return {"method": record.method, "params": record.params}


@action
async def call_time(session: Session, id: Id) -> Any:  # noqa: A002
    """Return where the time of a call went."""
    _, _, timeline = await _fetch_with_timeline(await session.hub(), id)
    return timeline


@action
async def start(
    session: Session, server: Id, method: Id, params: JsonObject | None = None, as_task: bool = False
) -> Any:
    """Start a detached call, and return it."""
    handle = await (await session.hub()).start(server, method, params, as_task=as_task)
    return (handle.started or await handle.get()).to_json()


@action
async def cancel_call(session: Session, id: Id) -> Any:  # noqa: A002
    """Cancel a call, also one that was sent to its server already; return it."""
    return (await (await session.hub()).calls.cancel(id, abort=True)).to_json()


@action
async def task(session: Session, id: Id) -> Any:  # noqa: A002
    """Return a task with its `result`, or the `error` that says why there is no result; both null while it goes on."""
    hub = await session.hub()
    record = await hub.tasks.get(id)
    outcome: dict[str, Any] = {"result": None, "error": None}
    if record.status in ("completed", "failed", "cancelled"):
        try:
            outcome["result"] = await hub.tasks.result(id)
        except HubbubError as error:
            outcome["error"] = error.to_json()
    return {"task": record.to_json(), **outcome}


@action
async def cancel_task(session: Session, id: Id) -> Any:  # noqa: A002
    """Cancel a task, and return it."""
    return (await (await session.hub()).tasks.cancel(id)).to_json()


@action
async def server(session: Session, name: Id) -> Any:
    """Return a whole server, and the last lines of its log."""
    hub = await session.hub()
    record = await hub.servers.get(name)
    lines = await hub.events.logs(name, lines=LOG_LINES)
    return {"server": record.to_json(), "logs": [each.to_json() for each in lines]}


@action
async def set_server(session: Session, name: Id, to: Literal["connected", "disconnected"]) -> Any:
    """Connect or disconnect a server, and return it."""
    servers = (await session.hub()).servers
    server = await (servers.connect(name) if to == "connected" else servers.disconnect(name))
    return server.to_json()


@action
async def may_add(session: Session) -> Any:
    """Return whether this person is an administrator, who may add servers, and how the `command` to add one begins."""
    caller = await (await session.hub()).admin.whoami()
    return {
        "may": any(grant.role == "admin" for grant in caller.grants),
        "command": f"{session.people.command} servers add",
    }


@action
async def add_server(
    session: Session, name: str, command: str = "", url: str = "", variables: str = "", headers: str = ""
) -> Any:
    """Add a server that is started by a command line, or is at a URL. Violations name the argument that is wrong.

    `variables` has a NAME=VALUE a line, `headers` a NAME: VALUE a line.
    """
    name, url, words = name.strip(), url.strip(), _split_command(command)
    endpoint_field = "url" if url else "command"
    if not name:
        raise InvalidArgument("a name is needed", violations=(("name", "please give a name"),))
    if bool(words) == bool(url):
        advice = "please give a command or a URL" + (", not both" if url else "")
        raise InvalidArgument("one endpoint is needed", violations=((endpoint_field, advice),))
    spec = ServerSpec(
        name=name,
        command=words[0] if words else None,
        args=words[1:] or None,
        url=url or None,
        env=_parse_pairs(variables, "=", "variables"),
        headers=_parse_pairs(headers, ":", "headers"),
    )
    try:
        added = await (await session.hub()).servers.add(spec)
    except HubbubError as error:
        violations = tuple((_find_page_field(path, endpoint_field), text) for path, text in error.violations)
        if not violations and error.reason in FIELD_BY_REASON:
            violations = ((FIELD_BY_REASON[error.reason], error.message),)
        if not violations:
            raise
        raise InvalidArgument(error.message, reason=error.reason, violations=violations) from None
    return added.to_json()


@action
async def login_code(session: Session) -> Any:
    """Return a new code with which this person lets a host log in."""
    return (await (await session.hub()).hosts.create_login_code()).to_json()


@action
async def hosts(session: Session) -> Any:
    """Return the newest connected `hosts`, and whether there are `more`; or `refused`: why this person sees none."""
    try:
        records = await (await session.hub()).hosts.list(limit=MAX_HOSTS + 1)
    except PermissionDenied:
        return {"refused": REFUSED}
    texts = {"empty": EMPTY, "paste": PASTE, "others": OTHERS}
    return {"hosts": [brief(each) for each in records[:MAX_HOSTS]], "more": len(records) > MAX_HOSTS, **texts}


@action
async def host(session: Session, id: Id) -> Any:  # noqa: A002 - the field's name
    """Return a whole `host`, null if it is not connected any more; or `refused`: why this person may not see hosts."""
    try:
        records = await (await session.hub()).hosts.list(ids=[id])
    except PermissionDenied:
        return {"refused": REFUSED}
    return {"host": whole_host_json(records[0]) if records else None}


@action
async def waiting_host(session: Session, call_id: Id) -> Any:
    """Return the id and the name of the host that waits for a call; `host` is null if no host does."""
    waiting = await fetch_waiting_host(await session.hub(), call_id)
    return {"host": {"id": waiting.id, "name": host_name(waiting)} if waiting else None}


@action
async def find(session: Session, text: Annotated[str, Field(min_length=1, max_length=MAX_SEARCH_CHARS)]) -> Any:
    """Return the entries of all servers' catalogs that have all words of a text, and how `many` there are."""
    entries, count = await search(await session.hub(), text)
    return {"entries": entries, "many": count}


@action
async def catalog(session: Session, server: Id, kind: CatalogKind) -> Any:
    """Return what a server offers of one kind; for tools, also the `ways` to call them."""
    hub = await session.hub()
    entries, lists = await hub.catalog.read(kind, server)
    modes: list[dict[str, Any]] = []
    if kind == "tool":
        record = await hub.servers.get(server)
        modes = [asdict(call_modes(record, entry.object)) for entry in entries]
    return {
        "entries": [entry.object if kind != "skill" else _skill_object(entry) for entry in entries],
        "ways": modes,
        "lists": [entry_list.to_json() for entry_list in lists],
    }


def _skill_object(skill: CatalogEntry) -> dict[str, Any]:
    """Return a skill's definition with `name` and `description` at its top, where all other kinds have them."""
    return {**as_object(skill.object), "name": skill.name, "description": skill.description}


def _split_command(line: str) -> list[str]:
    """Return the words of a command line. Raises InvalidArgument."""
    try:
        return shlex.split(line)
    except ValueError:
        problem = "has a quotation mark that is not closed"
        raise InvalidArgument("the command cannot be read", violations=(("command", problem),)) from None


def _parse_pairs(text: str, mark: str, field: str) -> dict[str, str] | None:
    """Return the names and values that the lines give; None without any. Raises InvalidArgument about `field`."""
    try:
        return parse_pairs(text, mark)
    except ValueError as error:
        raise InvalidArgument("a line cannot be read", violations=((field, str(error)),)) from None


def _find_page_field(path: str, endpoint_field: str) -> str:
    """Return the field of the page for a path in a server's spec; `endpoint_field` for a path without a field."""
    fields = {"name": "name", "env": "variables", "headers": "headers"}
    return next((fields[part] for part in path.split(".") if part in fields), endpoint_field)


async def _release_all(session: Session) -> None:
    """Release the claims of a browser: they belong to a name, and cannot be used under another one."""
    async with session.claim_lock:
        while session.claims:
            claim_id, request_id = session.claims.popitem(last=False)
            with contextlib.suppress(HubbubError):  # a claim that is not released lapses after CLAIM_S
                await (await session.hub()).inbox.release(request_id, claim_id)


async def _fetch_with_timeline(hub: Hub, call_id: str) -> tuple[Call, Sequence[PendingRequest], dict[str, Any]]:
    """Return a call, its pending requests, and its timeline. Raises HubbubError."""
    record = await hub.calls.get(call_id)
    requests = await hub.inbox.list(call_id=call_id, limit=MAX_REQUESTS)
    return record, requests, build_timeline(record, requests, datetime.now(UTC)).to_json()


async def _whole_request(session: Session, record: PendingRequest) -> dict[str, Any]:
    """Return a pending request as JSON; if it is a call to approve, with all that the page shows of the call."""
    if record.approval is None:
        return _request_json(record)
    approval = approval_json(record, await (await session.hub()).admin.whoami())
    return _request_json(record) | ({"approval": approval} if approval else {})


def _request_json(record: PendingRequest) -> dict[str, Any]:
    """Return a pending request as JSON, with its question in a line, without the id of its claim: that is a secret."""
    fields: dict[str, Any] = record.to_json() | {"question": question_excerpt(record), "outcome": outcome(record)}
    if fields["claim"]:
        fields["claim"]["id"] = None
    if record.kind != "approval":
        fields["agent"] = agent_json(record)
    if record.kind == "approval":  # arguments may be a mebibyte, and the page gets them as `approval` already
        fields |= {"request": None, "changed_arguments": None}
    return fields
