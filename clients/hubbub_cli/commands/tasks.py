"""`hubbub tasks`."""

from typing import TYPE_CHECKING

from hubbub_cli.output.details import print_record
from hubbub_cli.output.printer import print_records, print_result
from hubbub_cli.output.watch_lines import Lines, print_steps
from hubbub_cli.run.session import Settings
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import Limit, OfServer, Resume, Role, TaskId, TaskStatuses
from hubbub_client.data.records import Task

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("Tasks that the hub holds for servers, or servers hold for the hub.")


@app.hub_command("list", example="tasks list --role receiver")
async def list_(
    hub: "Hub",
    settings: Settings,
    server: OfServer = None,
    role: Role = None,
    status: TaskStatuses = None,
    limit: Limit = 100,
) -> None:
    """List tasks, newest first."""
    tasks = await hub.tasks.list(server=server, role=role, statuses=status or (), limit=limit)
    print_records(Task, tasks, settings.json)


@app.hub_command(example="tasks get TASK")
async def get(hub: "Hub", settings: Settings, id_: TaskId) -> None:
    """Show one task."""
    print_record(await hub.tasks.get(id_), settings.json)


@app.hub_command(example="tasks result TASK")
async def result(hub: "Hub", settings: Settings, id_: TaskId) -> None:
    """Print the MCP result of a task that has ended."""
    print_result("", await hub.tasks.result(id_), settings.json)


@app.hub_command(example="tasks cancel TASK")
async def cancel(hub: "Hub", settings: Settings, id_: TaskId) -> None:
    """Cancel a task that has not ended."""
    print_record(await hub.tasks.cancel(id_), settings.json)


@app.hub_command(example="tasks watch --role client", endless=True)
async def watch(
    hub: "Hub",
    settings: Settings,
    server: OfServer = None,
    role: Role = None,
    status: TaskStatuses = None,
    resume: Resume = None,
) -> None:
    """Watch tasks and their changes, until interrupted."""
    lines = Lines("there is no task yet", as_json=settings.json)
    await print_steps(hub.tasks.watch(server=server, role=role, statuses=status or (), resume_token=resume), lines)
