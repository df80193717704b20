"""The tree of commands. The module of a command is imported when it is run, completed, or asked for its help.

The root knows of each command its name, its module, an example, and what the root's help says of it.
"""

from importlib import import_module
from typing import Any, cast

from typer.main import get_command, get_group

from hubbub_cli.run import streams
from hubbub_cli.syntax.group import Commands, LightCommand, LightGroup


class LazyCommand(LightCommand):
    """Stands for a command, or for a group of commands, until `load` imports it.

    `where` is `MODULE:NAME`, of a function or of a `Typer`. `summary` is what the help of the root and shells show
    beside its name. A function comes with an `example`.
    """

    def __init__(self, name: str, where: str, summary: str, example: str = "") -> None:
        super().__init__(name, help=summary)
        self._where = where
        self._example = example

    def load(self) -> LightCommand | LightGroup:
        """Import the command, or the group of commands, and return it."""
        module, _, name = self._where.partition(":")
        loaded: Any = getattr(import_module(f"hubbub_cli.commands.{module}"), name)
        if isinstance(loaded, Commands):
            return cast("LightGroup", get_group(loaded))
        single = Commands(add_completion=False)
        single.command(self.name, example=self._example)(loaded)
        return cast("LightCommand", get_command(single))


SECTIONS: dict[str, tuple[LazyCommand, ...]] = {
    "Start": (
        LazyCommand("up", "up:up", "start a hub on this machine", "up -d"),
        LazyCommand("down", "up:down", "stop it", "down"),
        LazyCommand("init", "init:init", "take over the MCP servers that this machine has", "init"),
        LazyCommand("status", "status:status", "one page about the hub and its servers", "status"),
        LazyCommand("doctor", "doctor:doctor", "find what is wrong, and repair it", "doctor"),
    ),
    "Answer": (
        LazyCommand("inbox", "inbox:app", "see and answer what servers ask"),
        LazyCommand("open", "inbox:open_", "visit the page that a server asks for", "open REQUEST"),
        LazyCommand("approvals", "approvals:app", "rules of what to approve, and what is remembered"),
        LazyCommand("web", "web:web", "answer in the browser", "web"),
        LazyCommand("tui", "tui:tui", "answer in the terminal, on one screen", "tui"),
        LazyCommand("agent", "agent:app", "let rules, a program or a model answer"),
        LazyCommand(
            "notify",
            "notify:notify",
            "be notified when something waits",
            "notify ntfys://ntfy.sh/TOPIC --after 60 --quiet 22:00-07:00",
        ),
    ),
    "Call": (
        LazyCommand("call", "calls:call", "call a tool", "call time get_current_time timezone=UTC"),
        LazyCommand("calls", "calls:app", "list, watch and cancel calls"),
        LazyCommand("tasks", "tasks:app", "list, watch and cancel tasks"),
        LazyCommand("queue", "calls:queue", "how many calls of a server are in each state", "queue demo --clear"),
        LazyCommand(
            "read", "resources:read", "read a resource", "read everything demo://resource/static/document/features.md"
        ),
        LazyCommand("prompt", "resources:prompt", "fill in a prompt", "prompt everything simple-prompt"),
        LazyCommand(
            "complete",
            "resources:complete",
            "what a server suggests for an argument",
            "complete everything city Be --prompt args-prompt",
        ),
        LazyCommand(
            "subscribe",
            "resources:subscribe",
            "read a resource after each change",
            "subscribe everything demo://resource/dynamic/text/1",
        ),
        LazyCommand("send", "calls:send", "send any MCP request", "send time tools/list"),
    ),
    "Servers": (
        LazyCommand("servers", "servers:app", "list, add, connect and remove servers"),
        LazyCommand("catalog", "catalog:app", "tools, resources and prompts of servers"),
        LazyCommand("logs", "events:logs", "what a server has logged", "logs demo --follow"),
        LazyCommand("events", "events:app", "what servers tell, as it happens"),
        LazyCommand(
            "roots",
            "resources:roots",
            "the directories that a server gets",
            'roots demo set \'[{"uri": "file:///srv/project"}]\'',
        ),
        LazyCommand("log-level", "resources:log_level", "how much a server logs", "log-level demo debug"),
        LazyCommand("mcp", "mcp:app", "use the hub from Claude, VS Code and other hosts"),
        LazyCommand("acp", "acp:acp", "put a coding agent behind the hub", "acp -- opencode acp"),
    ),
    "Operate": (
        LazyCommand("config", "config:app", "show and change the hub's configuration"),
        LazyCommand("service", "service:app", "run the hub in the background, always"),
        LazyCommand("reload", "reload:reload", "read the configuration again", "reload"),
        LazyCommand("health", "health:health", "whether the hub takes work, for supervisors", "health"),
        LazyCommand("whoami", "tokens:whoami", "who you are to the hub", "whoami"),
        LazyCommand("tokens", "tokens:app", "who may use the hub"),
        LazyCommand("audit", "audit:app", "who changed what"),
        LazyCommand("store", "store:app", "what the hub keeps on disk"),
        LazyCommand("fleet", "fleet:app", "several hubs that are one: members, and their servers"),
        LazyCommand("certs", "certs:app", "certificates for a hub on the network"),
    ),
    "Help": (
        LazyCommand("help", "help:help_", "how a command is used", "help inbox"),
        LazyCommand("explain", "explain:explain", "what an error means, and what to do", "explain SERVER_NOT_FOUND"),
    ),
}
"""The commands by what one wants to do, in the order of the help of the root; the most used stand first."""

COMMANDS = tuple(command for commands in SECTIONS.values() for command in commands)

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
        """Return the name of the command that the arguments begin with, the command itself, imported, and the rest."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named. Without a name, print the commands; with JSON output that is an error."""
        words = ctx._protected_args  # pyright: ignore - Typer has no public name for it
        if words or ctx.params["as_json"] or ctx.params["output"] == "json":
            return super().invoke(ctx)
        streams.say(self.render_overview(ctx).rstrip())
        return None

    def render_overview(self, ctx: Any) -> str:
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
                for command in commands:
                    formatter.write(f"  {command.name:{width}}  {command.help}\n")
