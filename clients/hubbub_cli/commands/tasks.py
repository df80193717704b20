"""`hubbub tasks`."""

import contextlib
from typing import TYPE_CHECKING

import typer

from hubbub_cli.output.details import print_record
from hubbub_cli.output.printer import print_records, print_result
from hubbub_cli.output.watch_lines import Lines
from hubbub_cli.run.session import run, settings_of
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import (
    TASK_STATUSES,
    Limit,
    OfServer,
    Resume,
    Role,
    TaskId,
    TaskStatuses,
    example,
    known,
)
from hubbub_client.data.records import Task

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("Tasks that the hub holds for servers, or servers hold for the hub.")


@app.command("list", epilog=example("tasks list --role receiver"))
def list_(
    context: typer.Context,
    server: OfServer = None,
    role: Role = None,
    status: TaskStatuses = None,
    limit: Limit = 100,
) -> None:
    """List tasks, newest first."""
    statuses = known(status, "--status", TASK_STATUSES)

    async def work(hub: "Hub") -> None:
        found = await hub.tasks.list(server=server, role=role, statuses=statuses, limit=limit)
        print_records(Task, found, settings_of(context).json)

    run(context, work)


@app.command(epilog=example("tasks get TASK"))
def get(context: typer.Context, id_: TaskId) -> None:
    """Show one task."""

    async def work(hub: "Hub") -> None:
        print_record(await hub.tasks.get(id_), settings_of(context).json)

    run(context, work)


@app.command(epilog=example("tasks result TASK"))
def result(context: typer.Context, id_: TaskId) -> None:
    """Print the MCP result of a task that has ended."""

    async def work(hub: "Hub") -> None:
        print_result("", await hub.tasks.result(id_), settings_of(context).json)

    run(context, work)


@app.command(epilog=example("tasks cancel TASK"))
def cancel(context: typer.Context, id_: TaskId) -> None:
    """Cancel a task that has not ended."""

    async def work(hub: "Hub") -> None:
        print_record(await hub.tasks.cancel(id_), settings_of(context).json)

    run(context, work)


@app.command(epilog=example("tasks watch --role client"))
def watch(
    context: typer.Context,
    server: OfServer = None,
    role: Role = None,
    status: TaskStatuses = None,
    resume: Resume = None,
) -> None:
    """Watch tasks and their changes, until interrupted."""
    statuses = known(status, "--status", TASK_STATUSES)

    async def work(hub: "Hub") -> None:
        lines = Lines("there is no task yet", as_json=settings_of(context).json)
        watching = hub.tasks.watch(server=server, role=role, statuses=statuses, resume_token=resume)
        async with contextlib.aclosing(watching) as events:
            async for event in events:
                lines.show(event)

    run(context, work, endless=True)
