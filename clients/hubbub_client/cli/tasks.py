"""`hubbub tasks`."""

import contextlib
from typing import Annotated

import typer

from hubbub_client.cli.output import print_event, print_record, print_records, print_result
from hubbub_client.cli.session import run, settings_of
from hubbub_client.hub import Hub
from hubbub_client.records import Task, TaskRole

app = typer.Typer(help="Tasks that the hub holds for servers, or servers for the hub.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The task.")]
ServerOption = Annotated[str | None, typer.Option(help="Only of this server.")]
Role = Annotated[TaskRole | None, typer.Option(help="Who holds them: the hub (receiver) or a server (client).")]


@app.command("list")
def list_(context: typer.Context, server: ServerOption = None, role: Role = None) -> None:
    """Tasks, newest first."""

    async def work(hub: Hub) -> None:
        print_records(Task, await hub.tasks.list(server=server, role=role), settings_of(context).json)

    run(context, work)


@app.command()
def get(context: typer.Context, id_: Id) -> None:
    """One task."""

    async def work(hub: Hub) -> None:
        print_record(await hub.tasks.get(id_), settings_of(context).json)

    run(context, work)


@app.command()
def result(context: typer.Context, id_: Id) -> None:
    """The MCP result of a task that has ended."""

    async def work(hub: Hub) -> None:
        print_result(await hub.tasks.result(id_), settings_of(context).json)

    run(context, work)


@app.command()
def cancel(context: typer.Context, id_: Id) -> None:
    """Cancel a task that has not ended."""

    async def work(hub: Hub) -> None:
        print_record(await hub.tasks.cancel(id_), settings_of(context).json)

    run(context, work)


@app.command()
def watch(
    context: typer.Context,
    server: ServerOption = None,
    role: Role = None,
    resume: Annotated[str | None, typer.Option(metavar="TOKEN", help="Go on from here.")] = None,
) -> None:
    """Tasks and their changes, until interrupted."""

    async def work(hub: Hub) -> None:
        watching = hub.tasks.watch(server=server, role=role, resume_token=resume)
        async with contextlib.aclosing(watching) as events:
            async for event in events:
                print_event(event, settings_of(context).json)

    run(context, work, endless=True)
