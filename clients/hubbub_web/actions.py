"""Actions of a page, one function each: the session and checked JSON values in, a JSON value out."""

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, validate_call

from hubbub_client.data.records import Call, PendingRequest
from hubbub_client.data.specs import ServerSpec
from hubbub_client.errors import FailedPrecondition, HubbubError, InvalidArgument, PermissionDenied
from hubbub_client.hub import Hub
from hubbub_frontend.as_task import call_modes
from hubbub_frontend.display.hosts import EMPTY, MAX_HOSTS, OTHERS, PASTE, REFUSED, fetch_waiting_host, host_name
from hubbub_frontend.display.records import call_state, outcome
from hubbub_frontend.display.timeline import build_timeline
from hubbub_web.access.sessions import Session
from hubbub_web.records.brief import brief, question, whole_host
from hubbub_web.records.search import search

Action = Callable[..., Awaitable[Any]]
Object = dict[str, JsonValue]
Id = Annotated[str, Field(min_length=1, max_length=128)]
ClaimId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,64}$")]
"""Id of a claim, chosen by a window: two windows of one person are two claims."""

CLAIM_S = 60.0
"""Seconds until the claim of a window that disappeared lapses; the page renews it more often."""

MAX_NAME = 64
LOG_LINES = 200
MAX_ASKED = 200

MAX_SEARCH = 200
"""Characters of a search."""

FIELDS_OF = {
    "COMMAND_NOT_ALLOWED": "command",
    "HOST_NOT_ALLOWED": "url",
    "VARIABLE_NOT_ALLOWED": "variables",
    "SERVER_EXISTS": "name",
}
"""The field that a refusal to add a server is about, by its reason."""

ACTIONS: dict[str, Action] = {}


def action(function: Action) -> Action:
    """Register a function as an action, under its name."""
    checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(function)
    ACTIONS[function.__name__] = checked
    return checked


@action
async def me(who: Session) -> Any:
    """Return the name of this browser; `fixed` if the hub lets this bridge speak for nobody but itself."""
    if who.name is None:
        caller = await (await who.hub()).admin.whoami()
        if not caller.may_name_others:
            return {"name": caller.name, "fixed": True}
    return {"name": who.name, "fixed": False}


@action
async def rename(who: Session, name: str) -> Any:
    """Set the name under which this browser claims and answers, if the hub accepts it."""
    wanted = f"has 1 to {MAX_NAME} characters that can be printed"
    name = name.strip()
    if not name:
        raise InvalidArgument("a name is needed", violations=(("name", wanted),))
    try:
        named = (await (await who.people.hub(name)).admin.whoami()).name
    except InvalidArgument:
        raise InvalidArgument(f"a name {wanted}", violations=(("name", wanted),)) from None
    await _release_all(who)
    who.name = named
    return {"name": named}


@action
async def request(who: Session, id: Id) -> Any:  # noqa: A002 - the field's name
    """Return a whole pending request."""
    return _shown(await (await who.hub()).inbox.get(id))


@action
async def claim(who: Session, id: Id, claim_id: ClaimId, take_over: bool = False) -> Any:  # noqa: A002
    """Claim a pending request for a window, or renew its claim; with `take_over` also from another window of the same
    person."""
    hub = await who.hub()
    async with who.turn:
        if claim_id in who.left:
            raise FailedPrecondition("this window has left the request", reason="CLAIM_LOST")
        who.keep(id, claim_id)  # before the RPC, as its response may get lost
        return _shown(await hub.inbox.claim(id, CLAIM_S, claim_id=claim_id, take_over=take_over))


@action
async def release(who: Session, id: Id, claim_id: ClaimId) -> Any:  # noqa: A002
    """Release a window's claim for good: a late request for the same claim is refused."""
    async with who.turn:
        who.leave(claim_id)
        with contextlib.suppress(FailedPrecondition):
            await (await who.hub()).inbox.release(id, claim_id)
    return {}


@action
async def answer(
    who: Session,
    id: Id,  # noqa: A002
    answer_id: Id,
    claim_id: ClaimId | None = None,
    accept: Object | None = None,
    visit: bool = False,
    decline: bool = False,
    cancel: bool = False,
    text: str | None = None,
    result: Object | None = None,
    reject: str | None = None,
) -> Any:
    """Answer a pending request, under the window's claim if it has one. `visit` accepts a page to visit."""
    inbox = (await who.hub()).inbox

    async def give(claimed: str | None) -> PendingRequest:
        return await inbox.answer(
            id,
            accept=True if visit else accept if accept is not None else False,
            decline=decline,
            cancel=cancel,
            text=text,
            result=result,
            reject=reject,
            claim_id=claimed,
            answer_id=answer_id,
        )

    async with who.turn:
        try:
            record = await give(claim_id)
        except FailedPrecondition as error:
            if claim_id is None or error.reason != "CLAIM_LOST":
                raise
            record = await give(None)
        if claim_id is not None:
            who.claims.pop(claim_id, None)
    return _shown(record)


@action
async def call(who: Session, id: Id) -> Any:  # noqa: A002
    """Return a whole call, its pending requests, and where its time went."""
    found, asked, spent = await _with_time(await who.hub(), id)
    shape = found.to_json() | {"outcome": call_state(found)}
    return {"call": shape, "requests": [_shown(each) for each in reversed(asked)], "timeline": spent}


@action
async def sent(who: Session, id: Id) -> Any:  # noqa: A002
    """Return what a call was sent with."""
    found = await (await who.hub()).calls.get(id)
    return {"method": found.method, "params": found.params}


@action
async def call_time(who: Session, id: Id) -> Any:  # noqa: A002
    """Return where the time of a call went."""
    _, _, spent = await _with_time(await who.hub(), id)
    return spent


@action
async def start(who: Session, server: Id, method: Id, params: Object | None = None, as_task: bool = False) -> Any:
    """Start a detached call."""
    handle = await (await who.hub()).start(server, method, params, as_task=as_task)
    return (handle.started or await handle.get()).to_json()


@action
async def cancel_call(who: Session, id: Id) -> Any:  # noqa: A002
    """Cancel a call, even on the wire."""
    return (await (await who.hub()).calls.cancel(id, abort=True)).to_json()


@action
async def task(who: Session, id: Id) -> Any:  # noqa: A002
    """Return a task, and its result or why there is none."""
    hub = await who.hub()
    found = await hub.tasks.get(id)
    outcome: dict[str, Any] = {"result": None, "error": None}
    if found.status in ("completed", "failed", "cancelled"):
        try:
            outcome["result"] = await hub.tasks.result(id)
        except HubbubError as error:
            outcome["error"] = error.to_json()
    return {"task": found.to_json(), **outcome}


@action
async def cancel_task(who: Session, id: Id) -> Any:  # noqa: A002
    """Cancel a task."""
    return (await (await who.hub()).tasks.cancel(id)).to_json()


@action
async def server(who: Session, name: Id) -> Any:
    """Return a whole server, and the last lines of its log."""
    hub = await who.hub()
    found = await hub.servers.get(name)
    lines = await hub.events.logs(name, lines=LOG_LINES)
    return {"server": found.to_json(), "logs": [each.to_json() for each in lines]}


@action
async def set_server(who: Session, name: Id, to: Literal["connected", "disconnected"]) -> Any:
    """Connect or disconnect a server."""
    servers = (await who.hub()).servers
    return (await (servers.connect(name) if to == "connected" else servers.disconnect(name))).to_json()


@action
async def may_add(who: Session) -> Any:
    """Return whether this person may add servers, as administrator of any, and the `command` that adds each of them."""
    caller = await (await who.hub()).admin.whoami()
    return {
        "may": any(grant.role == "admin" for grant in caller.grants),
        "command": f"{who.people.command} servers add",
    }


@action
async def add_server(
    who: Session, name: str, command: str = "", url: str = "", variables: str = "", headers: str = ""
) -> Any:
    """Add a server that is started by a command line, or is at a URL. Violations name the argument that is wrong.

    `variables` has a NAME=VALUE a line, `headers` a NAME: VALUE a line.
    """
    name, url, words = name.strip(), url.strip(), _command(command)
    place = "url" if url else "command"
    if not name:
        raise InvalidArgument("a name is needed", violations=(("name", "please give a name"),))
    if bool(words) == bool(url):
        wanted = "please give a command or a URL"
        raise InvalidArgument("one endpoint is needed", violations=((place, f"{wanted}, not both" if url else wanted),))
    spec = ServerSpec(
        name=name,
        command=words[0] if words else None,
        args=words[1:] or None,
        url=url or None,
        env=_pairs(variables, "=", "variables"),
        headers=_pairs(headers, ":", "headers"),
    )
    try:
        added = await (await who.hub()).servers.add(spec)
    except HubbubError as error:
        if error.reason in FIELDS_OF or error.violations:
            found = tuple((_field(at, place), text) for at, text in error.violations)
            blamed = ((FIELDS_OF.get(error.reason or "") or place, error.message),)
            raise InvalidArgument(error.message, reason=error.reason, violations=found or blamed) from None
        raise
    return added.to_json()


@action
async def hosts(who: Session) -> Any:
    """Return the newest hosts that are connected, and whether there are `more`; or `refused`, why there are none."""
    try:
        found = await (await who.hub()).hosts.list(limit=MAX_HOSTS + 1)
    except PermissionDenied:
        return {"refused": REFUSED}
    words = {"empty": EMPTY, "paste": PASTE, "others": OTHERS}
    return {"hosts": [brief(each) for each in found[:MAX_HOSTS]], "more": len(found) > MAX_HOSTS, **words}


@action
async def host(who: Session, id: Id) -> Any:  # noqa: A002 - the field's name
    """Return a whole host; none if it is not connected any more."""
    try:
        found = await (await who.hub()).hosts.list(ids=[id])
    except PermissionDenied:
        return {"refused": REFUSED}
    return {"host": whole_host(found[0]) if found else None}


@action
async def waiting_host(who: Session, call_id: Id) -> Any:
    """Return the id and the name of the host that waits for a call, if one does."""
    found = await fetch_waiting_host(await who.hub(), call_id)
    return {"host": {"id": found.id, "name": host_name(found)} if found else None}


@action
async def find(who: Session, text: Annotated[str, Field(min_length=1, max_length=MAX_SEARCH)]) -> Any:
    """Return the entries of all servers' catalogs that have all words of a text, and how `many` there are."""
    found, many = await search(await who.hub(), text)
    return {"entries": found, "many": many}


@action
async def catalog(who: Session, server: Id, kind: Literal["tool", "resource", "template", "prompt"]) -> Any:
    """Return what a server offers of one kind; for tools, also the `ways` to call them."""
    hub = await who.hub()
    entries, lists = await hub.catalog.read(kind, server)
    of = await hub.servers.get(server) if kind == "tool" else None
    found = [asdict(call_modes(of, each.object)) for each in entries] if of else []
    return {"entries": [each.object for each in entries], "ways": found, "lists": [each.to_json() for each in lists]}


def _command(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        problem = "has a quotation mark that is not closed"
        raise InvalidArgument("the command cannot be read", violations=(("command", problem),)) from None


def _pairs(text: str, mark: str, field: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, marked, value = line.partition(mark)
        if name.strip() and marked:
            found[name.strip()] = value.strip()
        elif line.strip():
            problem = f"line {number} is not NAME{mark}VALUE"
            raise InvalidArgument("a line cannot be read", violations=((field, problem),))
    return found or None


def _field(place: str, endpoint: str) -> str:
    """Return the field of the page for a place in a spec; `endpoint` is the field for all that is not named."""
    words = place.split(".")
    known = {"name": "name", "env": "variables", "headers": "headers"}
    return next((known[word] for word in words if word in known), endpoint)


async def _release_all(who: Session) -> None:
    """Claims belong to a name; under another one they cannot be used."""
    async with who.turn:
        while who.claims:
            claim_id, request_id = who.claims.popitem(last=False)
            with contextlib.suppress(HubbubError):
                await (await who.hub()).inbox.release(request_id, claim_id)


async def _with_time(hub: Hub, call_id: str) -> tuple[Call, Sequence[PendingRequest], dict[str, Any]]:
    found = await hub.calls.get(call_id)
    asked = await hub.inbox.list(call_id=call_id, limit=MAX_ASKED)
    return found, asked, build_timeline(found, asked, datetime.now(UTC)).to_json()


def _shown(record: PendingRequest) -> dict[str, Any]:
    """Return the record with its question in a line, and without its claim's secret."""
    shape: dict[str, Any] = record.to_json() | {"question": question(record), "outcome": outcome(record)}
    if shape["claim"]:
        shape["claim"]["id"] = None
    return shape
