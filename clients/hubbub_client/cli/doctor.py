"""`hubbub doctor`: what needs somebody's attention, and what to do about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import typer

from hubbub_client.admin import HubStatus
from hubbub_client.cli.output import print_json
from hubbub_client.cli.session import run, settings_of
from hubbub_client.hub import Hub
from hubbub_client.records import CatalogList, PendingRequest, Record, Server
from hubbub_client.wording import clean, relative

# A question that ends this soon is worth a word.
SOON = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """One thing that was looked at."""

    about: str
    good: bool
    message: str
    advice: str | None = None


def doctor(context: typer.Context) -> None:
    """Look at the hub and its servers, and say what to do; exit 1 when something is wrong."""
    settings = settings_of(context)

    async def work(hub: Hub) -> bool:
        _, lists = await hub.catalog.read()
        found = [
            _hub(hub, await hub.admin.status()),
            *_servers(await hub.servers.list()),
            *_lists(lists),
            *_inbox(await hub.inbox.list(states=["open"]), settings.command("inbox", "answer")),
        ]
        for each in found:
            if settings.json:
                print_json(each.to_json())
            else:
                print(f"{'ok ' if each.good else 'BAD'}  {each.about}: {clean(each.message)}")
                if each.advice:
                    print(f"     {clean(each.advice)}")
        return all(each.good for each in found)

    run(context, work)


def _hub(hub: Hub, status: HubStatus) -> Finding:
    return Finding(
        about="hub", good=True, message=f"{status.version} at {hub.address}, started {relative(status.started_at)}"
    )


def _servers(servers: Sequence[Server]) -> Iterator[Finding]:
    for server in servers:
        about = f"server {server.name}"
        if server.state == server.desired_state or server.state == "connecting":
            yield Finding(about=about, good=True, message=server.state)
            continue
        fault = server.error
        why = f"{server.state}: {fault.code}: {fault.message}" if fault else server.state
        yield Finding(about=about, good=False, message=why, advice=fault.help_url if fault else None)


def _lists(lists: Sequence[CatalogList]) -> Iterator[Finding]:
    for each in lists:
        if each.freshness == "error" and each.error:
            yield Finding(
                about=f"{each.kind}s of {each.server}",
                good=False,
                message=f"{each.error.code}: {each.error.message}",
                advice=f"hubbub catalog refresh {each.server}",
            )


def _inbox(requests: Sequence[PendingRequest], command: str) -> Iterator[Finding]:
    soon = datetime.now(UTC) + SOON
    late = [each for each in requests if each.deadline and each.deadline < soon]
    yield Finding(
        about="inbox",
        good=not late,
        message=f"{len(requests)} open, {len(late)} of them end within a minute",
        advice=f"{command} {late[0].id}" if late else None,
    )
