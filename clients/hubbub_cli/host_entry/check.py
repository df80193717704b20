"""`hubbub mcp check`: what came of connecting as a host does."""

from typing import TYPE_CHECKING

from hubbub_cli.output.printer import say
from hubbub_local.hosts import permits
from hubbub_local.platform_dirs import Machine

if TYPE_CHECKING:
    from hubbub_bridge.trial import Trial


def print_trial(trial: "Trial") -> None:
    """Print what came of connecting in one kind of revision."""
    if trial.failure:
        say(f"{trial.revision}: {trial.failure}")
        return
    counts = ", ".join(f"{count} {name}" for name, count in trial.counts.items())
    say(f"{trial.revision}: {trial.server}, {counts}")
    for warning in trial.warnings:
        say(f"  {warning}")


def print_permits(trial: "Trial", machine: Machine) -> None:
    """Say whether Claude Code can ask for permission through the hub, if its settings say that it does."""
    file = permits.find_settings_file(machine)
    if trial.permits:
        say(f"  permits: {permits.PERMIT}; Claude Code {'asks' if permits.has_hook(file) else 'does not ask'} there")
    elif permits.has_hook(file):
        say(f"  permits: {file} asks {permits.PERMIT}, which is not there: set `people = true` for the profile")


def print_questions(routes: dict[str, str]) -> None:
    """Print who is asked what servers ask, by kind."""
    descriptions = {
        "both": "host and inbox at once",
        "host-first": "the host if it can, else the inbox",
        "host": "the host alone",
        "inbox": "the inbox alone",
    }
    for kind in sorted(routes):
        say(f"  {kind}: {descriptions.get(routes[kind], routes[kind])}")
