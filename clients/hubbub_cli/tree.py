"""The tree of commands. The module of a command is imported when it is run, completed, or asked for its help.

The root knows of each command its name, its module, its first sentence, and its words in the root's help.
"""

from importlib import import_module
from typing import Any

from typer.core import TyperCommand
from typer.main import get_command, get_group

from hubbub_cli.run import streams
from hubbub_cli.syntax.group import Commands, LightCommand, LightGroup


class LazyCommand(LightCommand):
    """Stands for a command, or for a group of commands, until `load` imports it.

    `where` is `MODULE:NAME`, of a function or of a `Typer`. `summary` is what shells show beside its name. A function
    comes with an `example`.
    """

    def __init__(self, name: str, where: str, summary: str, example: str | None = None) -> None:
        super().__init__(name, help=summary)
        self._where = where
        self._example = example

    def load(self) -> TyperCommand | LightGroup:
        """Import the command."""
        module, _, name = self._where.partition(":")
        found: Any = getattr(import_module(f"hubbub_cli.commands.{module}"), name)
        loaded: Any
        if isinstance(found, Commands):
            loaded = get_group(found)
        else:
            alone = Commands(add_completion=False)
            alone.command(self.name, epilog=f"Example: hubbub {self._example}")(found)
            loaded = get_command(alone)
        return loaded


# In the order of the help. It repeats what the commands say of themselves; a test compares.
COMMANDS = (
    LazyCommand(
        "up",
        "up:up",
        "Start a hub, and say how its servers are until interrupted; with -d, let it run in the background.",
        "up -d",
    ),
    LazyCommand(
        "down",
        "up:down",
        "End the hub of this data directory: calls under way may end first, as the hub's shutdown_grace_s says.",
        "down",
    ),
    LazyCommand(
        "agent",
        "agent:app",
        "Answer what the rules allow, as one of the hub's workers, until interrupted; leave the rest to people.",
    ),
    LazyCommand(
        "notify",
        "notify:notify",
        "Tell people when something waits for them, until interrupted: chat, mail, desktop, webhooks and more.",
        "notify ntfys://ntfy.sh/TOPIC --after 60 --quiet 22:00-07:00",
    ),
    LazyCommand(
        "call",
        "calls:call",
        "Call a tool and print its result; progress goes to stderr. Interrupting it aborts the call.",
        "call time get_current_time timezone=UTC",
    ),
    LazyCommand(
        "send",
        "calls:send",
        "Send any MCP request and print its result; progress goes to stderr.",
        "send time tools/list",
    ),
    LazyCommand(
        "open",
        "inbox:open_",
        "Visit the page that a server asks for: show where it leads, and open it only when you agree.",
        "open REQUEST",
    ),
    LazyCommand("queue", "calls:queue", "Show how many calls of a server are in each state.", "queue demo --clear"),
    LazyCommand(
        "read",
        "resources:read",
        "Read a resource: its text, and other content described.",
        "read everything demo://resource/static/document/features.md",
    ),
    LazyCommand(
        "prompt",
        "resources:prompt",
        "Get a prompt with its arguments filled in; at a terminal, those it needs are asked for.",
        "prompt everything simple-prompt",
    ),
    LazyCommand(
        "complete",
        "resources:complete",
        "List what a server suggests for an argument of a prompt or of a resource template.",
        "complete everything city Be --prompt args-prompt",
    ),
    LazyCommand(
        "subscribe",
        "resources:subscribe",
        "Read a resource, and again after each change that the server tells of, until interrupted.",
        "subscribe everything demo://resource/dynamic/text/1",
    ),
    LazyCommand(
        "roots",
        "resources:roots",
        "Show the roots that a server gets when it asks for them, or set them; it is told when they change.",
        'roots demo set \'[{"uri": "file:///srv/project"}]\'',
    ),
    LazyCommand(
        "log-level",
        "resources:log_level",
        "Set the level of the log messages that a server sends (to revision 2025-11-25).",
        "log-level demo debug",
    ),
    LazyCommand(
        "logs",
        "events:logs",
        "Show a server's log messages, and what a stdio server wrote to its standard error.",
        "logs demo --follow",
    ),
    LazyCommand(
        "status",
        "status:status",
        "Show one page about the hub: what it is, how its servers are, what waits, and what needs attention.",
        "status",
    ),
    LazyCommand(
        "reload",
        "reload:reload",
        "Reload the hub's configuration; exit 1 when it is wrong, and nothing has changed.",
        "reload",
    ),
    LazyCommand(
        "doctor",
        "doctor:doctor",
        "Check the hub, its surroundings and its servers, and say what to do; exit 1 when something has failed.",
        "doctor",
    ),
    LazyCommand(
        "health",
        "health:health",
        "Check whether the hub takes new work, for supervisors: exit 0 if it does, else 1.",
        "health",
    ),
    LazyCommand(
        "tui",
        "tui:tui",
        "Watch and answer in the terminal: inbox, servers, calls, tasks, catalog, events and hosts, live.",
        "tui",
    ),
    LazyCommand("whoami", "tokens:whoami", "Show who you are to the hub, and what you may do.", "whoami"),
    LazyCommand(
        "web",
        "web:web",
        "Serve the inbox and everything else to a browser; print a link that lets one browser in, once.",
        "web",
    ),
    LazyCommand(
        "service",
        "service:app",
        "The hub as a service of yours, which starts when you log in: systemd on Linux, launchd on macOS.",
    ),
    LazyCommand(
        "init",
        "init:init",
        "Find the MCP servers that you have in other programs, and take those you choose into the hub's configuration.",
        "init",
    ),
    LazyCommand("config", "config:app", "The configuration file of the hub on this machine."),
    LazyCommand(
        "help", "help:help_", "Show how a command is used; without one, which commands there are.", "help inbox"
    ),
    LazyCommand(
        "explain",
        "explain:explain",
        "Explain an error by its code: what it means, why it happens and what to do.",
        "explain SERVER_NOT_FOUND",
    ),
    LazyCommand("servers", "servers:app", "The configured MCP servers and their connections."),
    LazyCommand("inbox", "inbox:app", "What servers ask, and the answers."),
    LazyCommand("calls", "calls:app", "Calls to servers, and their outcomes."),
    LazyCommand("tasks", "tasks:app", "Tasks that the hub holds for servers, or servers hold for the hub."),
    LazyCommand("catalog", "catalog:app", "What the servers offer."),
    LazyCommand("certs", "certs:app", "Certificates for a hub that others reach over the network."),
    LazyCommand("events", "events:app", "What servers tell, as it happens."),
    LazyCommand(
        "mcp",
        "mcp:app",
        "MCP over standard input and output, for hosts that start an MCP server; and what hosts need for it.",
    ),
    LazyCommand("store", "store:app", "The store: what the hub keeps on disk."),
    LazyCommand("fleet", "fleet:app", "A hub of several members: who takes part, and who has which server."),
    LazyCommand("audit", "audit:app", "Who changed what, and who was refused."),
    LazyCommand("tokens", "tokens:app", "Who may use the hub: tokens for people and programs."),
)


# The root's help: a title, and for each command a few words. The most used stand first.
SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "up": "start a hub on this machine",
        "down": "stop it",
        "init": "take over the MCP servers that this machine has",
        "status": "one page about the hub and its servers",
        "doctor": "find what is wrong, and repair it",
    },
    "Answer": {
        "inbox": "see and answer what servers ask",
        "open": "visit the page that a server asks for",
        "web": "answer in the browser",
        "tui": "answer in the terminal, on one screen",
        "agent": "let rules, a program or a model answer",
        "notify": "be told when something waits",
    },
    "Call": {
        "call": "call a tool",
        "calls": "list, watch and cancel calls",
        "tasks": "list, watch and cancel tasks",
        "queue": "how many calls of a server are in each state",
        "read": "read a resource",
        "prompt": "fill in a prompt",
        "complete": "what a server suggests for an argument",
        "subscribe": "read a resource after each change",
        "send": "send any MCP request",
    },
    "Servers": {
        "servers": "list, add, connect and remove servers",
        "catalog": "tools, resources and prompts of servers",
        "logs": "what a server has logged",
        "events": "what servers tell, as it happens",
        "roots": "the directories that a server is told of",
        "log-level": "how much a server logs",
        "mcp": "use the hub from Claude, VS Code and other hosts",
    },
    "Operate": {
        "config": "show and change the hub's configuration",
        "service": "run the hub in the background, always",
        "reload": "read the configuration again",
        "health": "whether the hub takes work, for supervisors",
        "whoami": "who you are to the hub",
        "tokens": "who may use the hub",
        "audit": "who changed what",
        "store": "what the hub keeps on disk",
        "fleet": "several hubs that are one: members, and their servers",
        "certs": "certificates for a hub on the network",
    },
    "Help": {
        "help": "how a command is used",
        "explain": "what an error means, and what to do",
    },
}

TAIL = """
Examples:
  hubbub servers add time -- uvx mcp-server-time
  hubbub inbox answer
  hubbub call time get_current_time timezone=UTC

hubbub COMMAND -h shows how a command is used; hubbub --help also shows the options of every command.
"""


class Root(LightGroup):
    """The root. It loads one command: the one that is run, completed, or asked for its help."""

    shares_options = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in COMMANDS:
            self.add_command(command)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with, as Typer does, and load it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named; a person who names none sees which there are."""
        words = ctx._protected_args  # pyright: ignore - Typer has no public name for it
        if words or ctx.params["as_json"] or ctx.params["output"] == "json":
            return super().invoke(ctx)
        streams.say(self.overview(ctx).rstrip())
        return None

    def overview(self, ctx: Any) -> str:
        """Return the short help: the commands, without the options."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_commands(ctx, formatter)
        return formatter.getvalue() + TAIL

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line. Options may stand anywhere."""
        return ["COMMAND [ARGS]... [OPTIONS]"]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by what one wants to do."""
        width = max(len(name) for name in self.commands)
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                for name, words in commands.items():
                    if name in self.commands:
                        formatter.write(f"  {name:{width}}  {words}\n")
