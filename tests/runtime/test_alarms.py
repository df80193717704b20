"""Alarms go by kind and name, so that an id which a server has chosen meets nothing of anybody else."""

import anyio

from hubbubd.core.inbox.request_states import RequestState

from .conftest import FORM, World, question, server, spec, until
from .task_server import RESULT, TaskServer, ended, started, the_task


async def test_a_task_that_is_forgotten_takes_no_deadline_of_a_request_along(world: World) -> None:
    """A server that knows the id of an open request gives it to a task of its own, and has it forgotten."""
    world.settings = {"task_history_count": 1, "call_history_count": 1}
    tasks = TaskServer(world)
    async with world.hub(server(), server("two", answer_timeout_s=20)) as hub:
        asked = world.peers["two"].link.ask("elicitation/create", FORM)
        open_request = await question(hub)
        tasks.more = {"taskId": open_request.id}
        call = await started(hub)
        assert the_task(hub).id == open_request.id
        tasks.end(result=RESULT, taskId=open_request.id)
        await ended(hub, call)
        tasks.status, tasks.more = "completed", {"taskId": "another"}
        await hub.calls.start(spec("may", as_task=True), "me")
        await until(lambda: [task.id for task in hub.tasks] == ["another"])
        await anyio.sleep(21)
        assert hub.inbox.get(open_request.id).state is RequestState.EXPIRED
        del asked
