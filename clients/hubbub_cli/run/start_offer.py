"""Offers to start a hub to a person whose command finds none."""

import shlex

from hubbub_cli.output.printer import note


def offer_to_start(data_dir_option: str | None, down_command: str, beside_command: str) -> None:
    """If no hub runs for the data directory that an option names, ask the person whether to start one, and start it.

    `down_command` ends the hub, `beside_command` starts it at a free address: both are printed as advice. When the
    person says no, this returns, and the command fails at the connection. Raises FailedPrecondition if the hub cannot
    be started, and Unavailable if its data turns out to be elsewhere.
    """
    from hubbub_local import daemon, other_hubs
    from hubbub_local.platform_dirs import find_data_dir

    directory = find_data_dir(data_dir_option)
    if not daemon.is_missing(directory):
        return
    for other in other_hubs.find_hubs():
        start = shlex.join(("hubbub", "--data-dir", str(other.data_dir)))
        note(f"A Hubbub runs for {other.data_dir}, process {other.pid}; commands that begin with `{start}` reach it.")
    note(f"No hub runs for {directory}. Start one now? [Y/n] ", end="")
    try:
        answer = input().strip().lower()
    except EOFError:
        answer = "n"
    if answer not in ("", "y", "yes"):
        return
    from hubbub_client.errors import FailedPrecondition, Unavailable

    try:
        started = daemon.start_hub(data_dir_option)
    except daemon.NotStarted as error:
        raise FailedPrecondition(
            f"the hub was not started: {other_hubs.add_advice(str(error), beside_command)}", reason="HUB_NOT_STARTED"
        ) from None
    actual_dir = started.data_dir.absolute()
    if actual_dir != directory.absolute():
        raise Unavailable(
            f"the hub is started, process {started.pid}, and has its data in {actual_dir}, as its configuration says; "
            f"commands find it with --data-dir {actual_dir}, or with HUBBUB_DATA_DIR",
            reason="HUB_UNREACHABLE",
        )
    note(f"Started, process {started.pid}; its log is {started.log}. `{down_command}` ends it.")
