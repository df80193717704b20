"""The tree of commands, which grows where a command is run: its module is imported then, and no other.

Of each command the root knows its name, what the root's help says of it, and where it is.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group


class Later(TyperCommand):
    """Stands for a command or a group of commands until `load` imports it.

    `where` is `MODULE:NAME`, of a function or of a `Typer`. A function comes with an `example`.
    """

    def __init__(self, name: str, where: str, says: str, example: str | None = None) -> None:
        super().__init__(name, help=says)
        self._where = where
        self._example = example

    def load(self) -> TyperCommand | TyperGroup:
        """Import the command."""
        module, _, name = self._where.partition(":")
        found: Any = getattr(import_module(f"hubbub_cli.{module}"), name)
        if isinstance(found, typer.Typer):
            loaded: Any = get_group(found)
        else:
            alone = typer.Typer(add_completion=False)
            alone.command(self.name, epilog=f"Example: hubbub {self._example}")(found)
            loaded = get_command(alone)
        loaded.name = self.name
        return loaded


# In the order of the help. It repeats what the commands say of themselves; a test compares.
COMMANDS = (
    Later(
        "agent",
        "agent:agent",
        "Answer what the rules allow, as one of the hub's workers, until interrupted; leave the rest to people.",
        "agent --kind sampling --chat http://127.0.0.1:11434/v1 --model llama3.2",
    ),
    Later(
        "call",
        "calls:call",
        "Call a tool and print its result; progress goes to stderr. Interrupting it aborts the call.",
        'call time get_current_time \'{"timezone": "UTC"}\'',
    ),
    Later(
        "send",
        "calls:send",
        "Send any MCP request and print its result; progress goes to stderr.",
        "send time tools/list",
    ),
    Later(
        "open",
        "inbox:open_",
        "Visit the page that a server asks for: show where it leads, and open it only when you agree.",
        "open REQUEST",
    ),
    Later("queue", "calls:queue", "Show how many calls of a server are in each state.", "queue demo --clear"),
    Later(
        "read",
        "resources:read",
        "Read a resource: its text, and other content described.",
        "read everything demo://resource/static/document/features.md",
    ),
    Later(
        "prompt", "resources:prompt", "Get a prompt with its arguments filled in.", "prompt everything simple-prompt"
    ),
    Later(
        "complete",
        "resources:complete",
        "List what a server suggests for an argument of a prompt or of a resource template.",
        "complete everything city Be --prompt args-prompt",
    ),
    Later(
        "subscribe",
        "resources:subscribe",
        "Read a resource, and again after each change that the server tells of, until interrupted.",
        "subscribe everything demo://resource/dynamic/text/1",
    ),
    Later(
        "roots",
        "resources:roots",
        "Show the roots that a server gets when it asks for them, or set them; it is told when they change.",
        'roots demo set \'[{"uri": "file:///srv/project"}]\'',
    ),
    Later(
        "log-level",
        "resources:log_level",
        "Set the level of the log messages that a server sends (to revision 2025-11-25).",
        "log-level demo debug",
    ),
    Later(
        "logs",
        "events:logs",
        "Show a server's log messages, and what a stdio server wrote to its standard error.",
        "logs demo --follow",
    ),
    Later(
        "status",
        "status:status",
        "Show one page about the hub: what it is, how its servers are, what waits, and what needs attention.",
        "status",
    ),
    Later(
        "reload",
        "reload:reload",
        "Reload the hub's configuration; exit 1 when it is wrong, and nothing has changed.",
        "reload",
    ),
    Later(
        "doctor",
        "doctor:doctor",
        "Check the hub, its surroundings and its servers, and say what to do; exit 1 when something has failed.",
        "doctor",
    ),
    Later(
        "health",
        "health:health",
        "Check whether the hub takes new work, for supervisors: exit 0 if it does, else 1.",
        "health",
    ),
    Later(
        "tui",
        "tui:tui",
        "Watch and answer in the terminal: inbox, servers, calls, tasks, catalog and events, live.",
        "tui",
    ),
    Later("whoami", "tokens:whoami", "Show who you are to the hub, and what you may do.", "whoami"),
    Later(
        "web",
        "web:web",
        "Serve the inbox and everything else to a browser; print a link that lets one browser in, once.",
        "web",
    ),
    Later("servers", "servers:app", "The configured MCP servers and their connections."),
    Later("inbox", "inbox:app", "What servers ask, and the answers."),
    Later("calls", "calls:app", "Calls to servers, and their outcomes."),
    Later("tasks", "tasks:app", "Tasks that the hub holds for servers, or servers hold for the hub."),
    Later("catalog", "catalog:app", "What the servers offer."),
    Later("certs", "certs:app", "Certificates for a hub that others reach over the network."),
    Later("events", "events:app", "What servers tell, as it happens."),
    Later("store", "store:app", "The store: what the hub keeps on disk."),
    Later("audit", "audit:app", "Who changed what, and who was refused."),
    Later("tokens", "tokens:app", "Who may use the hub: tokens for people and programs."),
)


class Root(TyperGroup):
    """The root, which loads the one command that is run, completed, or asked for its help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in COMMANDS:
            self.add_command(command)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the words begin with, as Typer does, and load it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Later) else command, rest
