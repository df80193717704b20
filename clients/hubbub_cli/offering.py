"""Offers to start a hub to a person whose command finds none."""

import os
from typing import TYPE_CHECKING

from hubbub_cli.output import note

if TYPE_CHECKING:
    from hubbub_cli.session import Settings


def offer(settings: "Settings") -> None:
    """Ask whether to start a hub, if there is none where the command looks, and start it.

    Nothing is asked about a hub elsewhere, nor of a person who wants to wait. Then, and when the person says no, the
    command goes on, and fails as it does in a script. Raises FailedPrecondition if the hub cannot be started.
    """
    from hubbub_local import daemon
    from hubbub_local.places import data_dir

    if settings.address or os.environ.get("HUBBUB_ADDRESS") or settings.connect_timeout_s is not None:
        return
    directory = data_dir(settings.data_dir)
    if not daemon.missing(directory):
        return
    note(f"No hub runs for {directory}. Start one now? [Y/n] ", end="")
    try:
        answer = input().strip().lower()
    except EOFError:
        answer = "n"
    if answer not in ("", "y", "yes"):
        return
    try:
        started = daemon.start(settings.data_dir)
    except daemon.NotStarted as error:
        from hubbub_client.errors import FailedPrecondition

        raise FailedPrecondition(f"the hub was not started: {error}", reason="HUB_NOT_STARTED") from None
    note(f"Started, process {started.pid}; its log is {started.log}. `{settings.command('down')}` ends it.")
