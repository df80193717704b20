"""`hubbub health`."""

from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import print_json, say
from hubbub_cli.run.session import Settings, hub_command
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

REASON_LIMIT_S = 5.0
"""Seconds that a hub which is not serving gets to say why."""


@hub_command()
async def health(
    hub: "Hub",
    settings: Settings,
    live: Annotated[
        bool, typer.Option("--live", help="Exit 0 also if it answers that it takes none: a restart does not help it.")
    ] = False,
) -> bool:
    """Check whether the hub takes new work, for supervisors: exit 0 if it does, else 1."""
    is_serving = await hub.admin.well()
    if settings.json:
        print_json({"serving": is_serving})
    elif is_serving or live:  # the reason may take longer than a probe waits
        say("serving" if is_serving else "not serving, but it answers")
    else:
        say(f"not serving: {await _find_reason(hub)}")
    return is_serving or live


async def _find_reason(hub: "Hub") -> str:
    """Return why a hub takes no new work, in words; a guess if the hub refuses to say, or takes too long."""
    import asyncio

    from hubbub_client.errors import HubbubError

    try:
        async with asyncio.timeout(REASON_LIMIT_S):
            if problem := (await hub.admin.status()).store_problem:
                return f"its store cannot be written: {problem}"
            fleet = await hub.fleet.status()
    except (HubbubError, TimeoutError):
        return "it starts or stops; its log says more"
    me = fleet.find(fleet.member)
    if me is not None and me.state == "draining":
        return f"{me.name} drains, and hands its servers on; hubbub fleet resume has it take some again"
    return with_hub_options(f"{fleet.member} may not act, or does not hear of the others; see hubbub doctor")
