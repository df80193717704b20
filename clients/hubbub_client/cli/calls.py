"""`hubbub call`, `send`, `calls` and `queue`."""

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, cast, get_args

import typer

from hubbub_client.cli.live import LiveCall
from hubbub_client.cli.output import print_counts, print_event, print_json, print_record, print_records, print_result
from hubbub_client.cli.session import json_object, known, run, settings_of
from hubbub_client.errors import NotFound
from hubbub_client.events import Removed, Reset, Synced, Upsert
from hubbub_client.hub import Hub
from hubbub_client.records import Call, CallState

app = typer.Typer(help="Requests to servers, and what became of them.")

STATES: tuple[str, ...] = get_args(CallState)
Server = Annotated[str, typer.Argument(metavar="SERVER", help="The server.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The call.")]
Timeout = Annotated[float | None, typer.Option(min=0, metavar="S", help="Seconds without progress; else the server's.")]
Detach = Annotated[bool, typer.Option("--detach", help="Print the call and leave; the hub goes on with it.")]
CallId = Annotated[
    str | None, typer.Option("--call-id", metavar="ID", help="Makes it safe to repeat this command, and to find it.")
]


def call(
    context: typer.Context,
    server: Server,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool.")],
    arguments: Annotated[str | None, typer.Argument(metavar="[JSON]", help="Its arguments, a JSON object.")] = None,
    timeout: Timeout = None,
    detach: Detach = False,
    call_id: CallId = None,
    as_task: Annotated[bool, typer.Option("--as-task", help="Have the server carry it out as a task.")] = False,
) -> None:
    """Call a tool and print its result; progress goes to stderr. Interrupting it aborts the call."""
    params = {"name": tool, "arguments": json_object(arguments, "JSON") or {}}
    _send(context, server, "tools/call", params, timeout, detach, call_id, as_task=as_task)


def send(
    context: typer.Context,
    server: Server,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="The MCP method, such as tools/list.")],
    params: Annotated[str | None, typer.Argument(metavar="[JSON]", help="Its params, a JSON object.")] = None,
    timeout: Timeout = None,
    detach: Detach = False,
    call_id: CallId = None,
) -> None:
    """Send any MCP request and print its result; progress goes to stderr."""
    _send(context, server, method, json_object(params, "JSON"), timeout, detach, call_id)


def _send(
    context: typer.Context,
    server: str,
    method: str,
    params: dict[str, Any] | None,
    timeout_s: float | None,
    detach: bool,
    call_id: str | None,
    *,
    as_task: bool = False,
) -> None:
    settings = settings_of(context)

    async def work(hub: Hub) -> bool:
        if detach:
            started = await hub.calls.start(
                server, method, params, timeout_s=timeout_s, call_id=call_id, as_task=as_task
            )
            print_record(started, settings.json)
            return True
        live = LiveCall(hub, settings)
        result = (await live.run(server, method, params, timeout_s, call_id, as_task=as_task)).result
        print_result(result, settings.json)
        return not (isinstance(result, Mapping) and cast("Mapping[str, object]", result).get("isError"))

    run(context, work)


@app.command("list")
def list_(
    context: typer.Context,
    server: Annotated[str | None, typer.Option(help="Only of this server.")] = None,
    state: Annotated[list[str] | None, typer.Option(help=f"Only {' or '.join(STATES)}; repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="So many at most.")] = 100,
) -> None:
    """Calls, newest first."""
    states = known(state, "--state", STATES)

    async def work(hub: Hub) -> None:
        found = await hub.calls.list(server=server, states=states, limit=limit)
        print_records(Call, found, settings_of(context).json)

    run(context, work)


@app.command()
def get(context: typer.Context, id_: Id) -> None:
    """One call."""

    async def work(hub: Hub) -> None:
        print_record(await hub.calls.get(id_), settings_of(context).json)

    run(context, work)


@app.command()
def watch(
    context: typer.Context,
    id_: Id,
    resume: Annotated[str | None, typer.Option(metavar="TOKEN", help="Go on from here.")] = None,
) -> None:
    """One call until it ends: exit 0 when it is completed, else 1."""
    as_json = settings_of(context).json

    async def work(hub: Hub) -> bool:
        last = await hub.calls.get(id_)
        if resume and last.ended:
            print_event(Upsert(resume, last), as_json)
            return last.state == "completed"
        known = False
        async with contextlib.aclosing(hub.calls.watch(ids=[id_], resume_token=resume)) as events:
            async for event in events:
                print_event(event, as_json)
                match event:
                    case Upsert(record=now):
                        known = True
                        if now.ended:
                            return now.state == "completed"
                    case Reset():
                        known = False
                    case Removed():
                        return False
                    case Synced() if not known:
                        raise NotFound(f"no call {id_!r}", reason="CALL_NOT_FOUND", metadata={"call": id_})
                    case _:
                        pass
        return False

    run(context, work, endless=True)


@app.command()
def cancel(
    context: typer.Context,
    id_: Id,
    abort: Annotated[bool, typer.Option("--abort", help="Also when it is on the wire.")] = False,
) -> None:
    """Cancel a call that is queued or waits for an answer."""

    async def work(hub: Hub) -> None:
        print_record(await hub.calls.cancel(id_, abort=abort), settings_of(context).json)

    run(context, work)


def queue(
    context: typer.Context,
    server: Server,
    clear: Annotated[bool, typer.Option("--clear", help="First cancel all that are queued.")] = False,
) -> None:
    """How many calls of a server are in each state."""

    async def work(hub: Hub) -> None:
        counts = (await (hub.calls.clear_queue(server) if clear else hub.calls.queue(server))).to_json()
        if settings_of(context).json:
            print_json(counts)
        else:
            print_counts(counts.items())

    run(context, work)
