"""`hubbub call`, `send`, `calls` and `queue`."""

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

from hubbub_cli.output.details import print_call_result, print_record
from hubbub_cli.output.printer import print_counts, print_json, print_records, print_result
from hubbub_cli.output.watch_lines import Lines, print_steps
from hubbub_cli.run.session import Settings, Usage, get_settings, hub_command, parse_json_object, run_with_hub
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.bounds import check_seconds
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import CallId, CallStates, Limit, OfServer, Resume, Server, Timeout
from hubbub_cli.terminal import arguments
from hubbub_client.data.records import Call

if TYPE_CHECKING:
    from hubbub_client.data.watch_events import Upsert
    from hubbub_client.hub import Hub
    from hubbub_client.options import CallOptions

app = Commands("Calls to servers, and their outcomes.")

Words = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE... or JSON", help=arguments.HELP)]
Longest = Annotated[
    float | None,
    typer.Option(
        "--max", min=0, metavar="S", callback=check_seconds, help="Seconds in all; waiting for people does not count."
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Print the call and end; the hub goes on with it.")]
NewId = Annotated[
    str | None,
    typer.Option(
        "--call-id",
        metavar="ID",
        help="Idempotency key: makes it safe to repeat this command, and finds the call again.",
    ),
]


def call(
    context: typer.Context,
    server: Server,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool.", autocompletion=completion.tools)],
    words: Words = None,
    timeout: Timeout = None,
    max_: Longest = None,
    detach: Detach = False,
    call_id: NewId = None,
    as_task: Annotated[bool, typer.Option("--as-task", help="Have the server carry it out as a task.")] = False,
    form: Annotated[bool, typer.Option("--interactive", "-i", help="Ask for all arguments, in a form.")] = False,
) -> None:
    """Call a tool and print its result; progress goes to stderr. Interrupting it aborts the call.

    At a terminal, required arguments that are not given are asked for.
    """
    arguments.parse_without_schema(words)  # wrong JSON is said before a hub is looked for
    settings = get_settings(context)

    async def call_tool(hub: "Hub") -> bool:
        """Find the arguments, call the tool and print its result; return False if the tool says that it failed."""
        resolved = await arguments.resolve_arguments(hub, settings, "tool", server, tool, words, form=form)
        params = {"name": tool, "arguments": resolved}
        options: CallOptions = {"timeout_s": timeout, "max_s": max_, "call_id": call_id, "as_task": as_task}
        return await _send_and_print(hub, settings, server, "tools/call", params, detach=detach, **options)

    run_with_hub(context, call_tool)


def send(
    context: typer.Context,
    server: Server,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="The MCP method, such as tools/list.")],
    params: Annotated[str | None, typer.Argument(metavar="JSON", help="Its params, a JSON object.")] = None,
    timeout: Timeout = None,
    max_: Longest = None,
    detach: Detach = False,
    call_id: NewId = None,
) -> None:
    """Send any MCP request and print its result; progress goes to stderr."""
    mcp_params = parse_json_object(params, "JSON")
    settings = get_settings(context)

    async def send_request(hub: "Hub") -> bool:
        """Send the request and print its result; return False if a tool says that it failed."""
        options: CallOptions = {"timeout_s": timeout, "max_s": max_, "call_id": call_id}
        return await _send_and_print(hub, settings, server, method, mcp_params, detach=detach, **options)

    run_with_hub(context, send_request)


async def _send_and_print(
    hub: "Hub",
    settings: Settings,
    server: str,
    method: str,
    params: dict[str, Any] | None,
    *,
    detach: bool,
    **options: "Unpack[CallOptions]",
) -> bool:
    """Send a request, wait for its result, and print it; return False if a tool says that it failed.

    With `detach`, print the call that was started, and wait for nothing.
    """
    if detach:
        handle = await hub.start(server, method, params, **options)
        print_record(handle.started or await handle.get(), settings.json)
        return True
    from hubbub_cli.terminal.live_call import LiveCall
    from hubbub_client.data.results import ToolResult

    result = await LiveCall(hub, settings).run(server, method, params, **options)
    print_result(method, result, settings.json)
    return not ToolResult(result).is_error


@app.hub_command("list", example="calls list --server demo --state failed")
async def list_(
    hub: "Hub",
    settings: Settings,
    server: OfServer = None,
    state: CallStates = None,
    limit: Limit = 100,
) -> None:
    """List calls, newest first."""
    calls = await hub.calls.list(server=server, states=state or (), limit=limit)
    print_records(Call, calls, settings.json)


@app.hub_command(example="calls get lunch")
async def get(hub: "Hub", settings: Settings, id_: CallId) -> None:
    """Show one call."""
    print_record(await hub.calls.get(id_), settings.json)


@app.hub_command(example="calls show lunch --timeline")
async def show(
    hub: "Hub",
    settings: Settings,
    id_: CallId,
    picture: Annotated[
        bool, typer.Option("--timeline", help="Show where its time went: in the queue, at the server, with people.")
    ] = False,
) -> None:
    """Show one call, or its time as a picture."""
    call = await hub.calls.get(id_)
    if not picture:
        print_record(call, settings.json)
        return
    from hubbub_frontend.display.timeline import build_timeline

    timeline = build_timeline(call, await hub.inbox.list(call_id=call.id), datetime.now(UTC))
    if settings.json:
        print_json({"call": call.id, "trace_id": call.trace_id, **timeline.to_json()})
    else:
        from hubbub_cli.output.timeline import print_timeline  # imported here, since it imports rich

        print_timeline(call, timeline)


@app.command(example="calls watch lunch")
def watch(
    context: typer.Context,
    id_: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The call; without it, all calls.", autocompletion=completion.calls),
    ] = None,
    server: OfServer = None,
    state: CallStates = None,
    resume: Resume = None,
) -> None:
    """Watch one call until it ends: exit 0 when it is completed, else 1.

    Without ID watch all calls, until interrupted.
    """
    as_json = get_settings(context).json
    if id_ is not None and (server or state):
        raise Usage("--server and --state are for a watch without ID")

    async def watch_calls(hub: "Hub") -> bool:
        """Print the steps of the watch; return False if it is of one call, which was not completed."""
        if id_ is not None:
            return await _watch_one(hub, id_, resume, as_json=as_json)
        lines = Lines("there is no call yet", as_json=as_json)
        await print_steps(hub.calls.watch(server=server, states=state or (), resume_token=resume), lines)
        return True

    run_with_hub(context, watch_calls, endless=True)


async def _watch_one(hub: "Hub", id_: str, resume: str | None, *, as_json: bool) -> bool:
    """Show one call until it ends; return whether it is completed. False also if it is removed. Raises NotFound.

    With `resume`, a token of an earlier watch, only what has changed since then is shown.
    """
    from hubbub_client.data.watch_events import Removed, Reset, Synced, Upsert
    from hubbub_client.errors import NotFound

    lines = Lines(as_json=as_json)
    last = await hub.calls.get(id_)
    if resume and last.ended:  # a watch that resumes tells of changes only, and this call has no more
        return _show_ended(lines, Upsert(resume, last), as_json=as_json)
    exists = False
    async with contextlib.aclosing(hub.calls.watch(ids=[id_], resume_token=resume)) as events:
        async for event in events:
            match event:
                case Upsert(record=now) if now.ended:
                    return _show_ended(lines, event, as_json=as_json)
                case Upsert():
                    exists = True
                case Reset():
                    exists = False
                case Removed(id=other) if other != id_:
                    continue  # a watch that resumes gets all that has left
                case Removed():
                    lines.print_step(event)
                    return False
                case Synced() if not exists:  # all that the hub has was listed before
                    lines.print_step(event)
                    raise NotFound(f"no call {id_!r}", reason="CALL_NOT_FOUND", metadata={"call": id_})
                case _:
                    pass
            lines.print_step(event)
    return False


def _show_ended(lines: Lines, last: "Upsert[Call]", *, as_json: bool) -> bool:
    """Show how a call has ended, with its result; return whether it is completed."""
    lines.print_step(last)
    if not as_json:
        print_call_result(last.record)
    return last.record.state == "completed"


@app.hub_command(example="calls cancel lunch --abort")
async def cancel(
    hub: "Hub",
    settings: Settings,
    id_: CallId,
    abort: Annotated[bool, typer.Option("--abort", help="Cancel it even when it is on the wire.")] = False,
) -> None:
    """Cancel a call that is queued or waits for an answer."""
    print_record(await hub.calls.cancel(id_, abort=abort), settings.json)


@hub_command()
async def queue(
    hub: "Hub",
    settings: Settings,
    server: Server,
    clear: Annotated[bool, typer.Option("--clear", help="First cancel all queued calls.")] = False,
) -> None:
    """Show how many calls of a server are in each state."""
    counts = (await (hub.calls.clear_queue(server) if clear else hub.calls.queue(server))).to_json()
    if counts["in_progress"]:  # one of these may be what a person is asked for
        under_way = await hub.calls.list(server=server, states=["in_progress"])
        counts["perhaps_waiting"] = sum(bool(call.perhaps_pending_ids) for call in under_way)
    if settings.json:
        print_json(counts)
    else:
        print_counts(counts.items())
