"""`hubbub status`."""

import typer

from hubbub_client.cli.output import print_counts, print_json
from hubbub_client.cli.session import run, settings_of
from hubbub_client.hub import Hub
from hubbub_client.records import StateCount
from hubbub_client.wording import clean, relative


def status(context: typer.Context) -> None:
    """The hub in numbers."""

    async def work(hub: Hub) -> None:
        it = await hub.admin.status()
        if settings_of(context).json:
            print_json(it.to_json())
            return
        print(f"hubbubd {clean(it.version or '')}, process {it.pid}, started {relative(it.started_at)}")
        groups = {"servers": it.servers, "requests": it.requests, "calls": it.calls, "tasks": it.tasks}
        print_counts((name, _counts(counts)) for name, counts in groups.items())
        print_counts([("watchers", it.watchers)])
        if it.store:
            print_counts([("store", f"revision {it.store.revision}, {it.store.size_bytes} bytes")])

    run(context, work)


def _counts(counts: tuple[StateCount, ...]) -> str:
    return ", ".join(f"{each.count} {each.state}" for each in counts if each.count) or "none"
