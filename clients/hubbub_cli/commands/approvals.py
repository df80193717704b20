"""`hubbub approvals`."""

import contextlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.details import print_record
from hubbub_cli.output.printer import note, print_json, print_records, say
from hubbub_cli.run.session import Settings, Usage, get_settings, run_with_hub
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.bounds import MAX_INT32
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import OfServer, Server
from hubbub_cli.syntax.span import parse_span
from hubbub_cli.terminal import arguments
from hubbub_client.payload import as_object

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("Which calls wait for a person's approval, and which approvals are remembered.")

MAX_RULES_BYTES = 1024 * 1024
"""The longest file with rules: as much as a request to the hub may have."""

APPROVALS = "approvals"
ACTIONS = {"allow": "is sent", "ask": "waits for approval", "deny": "is refused"}

Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="The remembered approval.", autocompletion=completion.remembered_approvals),
]


@app.hub_command("list", example="approvals list")
async def list_(
    hub: "Hub",
    settings: Settings,
    server: OfServer = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_INT32, metavar="N", help="At most so many.")] = None,
) -> None:
    """List the approvals that also hold for later calls, newest first; calls that wait are in `inbox list`."""
    from hubbub_client.services.approvals import RememberedApproval

    print_records(RememberedApproval, await hub.approvals.list(server=server, limit=limit), settings.json)


@app.hub_command(example="approvals revoke APPROVAL")
async def revoke(hub: "Hub", settings: Settings, id_: Id) -> None:
    """Forget an approval that is remembered: the next call is asked about again."""
    print_record(await hub.approvals.revoke(id_), settings.json)


@app.hub_command(example="approvals rules")
async def rules(hub: "Hub", settings: Settings) -> None:
    """Show the rules in their order: the first that matches a call counts."""
    from hubbub_client.services.approvals import ApprovalRule

    rule_list = await hub.approvals.rules()
    if settings.json:
        print_json(rule_list.to_json())
        return
    print_records(ApprovalRule, rule_list.rules, as_json=False)
    say(f"a call that no rule matches {ACTIONS.get(rule_list.default_action, rule_list.default_action)}")
    _print_warnings(rule_list.warnings)


@app.command(example="approvals check github delete_branch repo=shop branch=main --as deploy-bot")
def check(
    context: typer.Context,
    server: Server,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool.", autocompletion=completion.tools)],
    words: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE... or JSON", help=arguments.HELP)] = None,
    caller: Annotated[str | None, typer.Option("--as", metavar="CALLER", help="Who would call; else you.")] = None,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="A role of the caller; repeatable.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="PROGRAM", help="The MCP host that would call, as it names itself.")
    ] = None,
    profile: Annotated[str | None, typer.Option(metavar="PROFILE", help="The profile that it would use.")] = None,
) -> None:
    """Say which rule counts for a call, and why, without making it."""
    whole = arguments.parse_without_schema(words)

    async def check_call(hub: "Hub") -> None:
        """Ask the hub which rule counts for the call, and print it."""
        call_arguments = whole
        if call_arguments is None:
            call_arguments = arguments.parse_with_schema(words or (), await _find_schema(hub, server, tool))
        verdict = await hub.approvals.check(
            server, tool, call_arguments, caller=caller, roles=role or (), host=host, profile=profile
        )
        if get_settings(context).json:
            print_json(verdict.to_json())
            return
        say(verdict.reason)
        if verdict.rule is not None:
            from hubbub_client.services.approvals import ApprovalRule

            say()
            print_records(ApprovalRule, [verdict.rule], as_json=False)

    run_with_hub(context, check_call)


async def _find_schema(hub: "Hub", server: str, tool: str) -> object:
    """Return the schema of a tool's arguments; None if the tool is not known."""
    for entry in await hub.catalog.tools(server):
        if entry.name == tool:
            return as_object(entry.object).get("inputSchema")
    return None


@app.hub_command(example="approvals replay --since 7d --rules approvals.toml")
async def replay(
    hub: "Hub",
    settings: Settings,
    since: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Calls of the last 7d, 12h or 45m; else all that are kept.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Try the table [approvals] of this TOML file; else the rules in use are tried."
        ),
    ] = None,
    server: OfServer = None,
) -> None:
    """Run rules over the calls in the history: what they would have asked about and denied, and whom they ask."""
    since_s = parse_span("--since", since) if since is not None else None
    text = _read_rules(rules) if rules is not None else None
    report = await hub.approvals.replay(server=server, since_s=since_s, rules=text)
    if settings.json:
        print_json(report.to_json())
        return
    from hubbub_client.services.approvals import ReplayedCalls

    print_records(ReplayedCalls, report.rows, as_json=False)
    say(f"of {report.calls} calls, {report.asked} would have waited for approval, and {report.denied} been refused")
    _print_warnings(report.warnings)


def _read_rules(path: Path) -> str:
    """Return the table `[approvals]` of a TOML file as text, without the rest, which may be secret. Raises Usage.

    Its lines have the numbers that they have in the file, for messages. A table that is written in an unusual way is
    written again, with other numbers.
    """
    try:
        if path.stat().st_size > MAX_RULES_BYTES:
            raise Usage(f"--rules: {path} is longer than {MAX_RULES_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"--rules: {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Usage(f"--rules: {path} is not TOML: {error}") from None
    if APPROVALS not in document:
        raise Usage(f"--rules: {path} has no table [{APPROVALS}]")
    table, cut = {APPROVALS: document[APPROVALS]}, cut_out_table(text, APPROVALS)
    # The cut is by lines, so it is taken only if it says the same as the table.
    with contextlib.suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(cut) == table:
            return cut
    import tomlkit  # imported late: only a file whose tables are written in another way needs it

    return tomlkit.dumps(table)


def cut_out_table(text: str, name: str) -> str:
    """Return the text of a TOML file with all lines outside one table empty, so that lines keep their numbers.

    The table is found by the headings of tables alone, so unusual TOML may be cut wrongly.
    """
    is_inside = False
    lines: list[str] = []
    for each in text.splitlines():
        words = each.strip().lstrip("[").strip()
        if each.lstrip().startswith("["):
            is_inside = words.startswith((f"{name}]", f"{name}.", f"{name} "))
        lines.append(each if is_inside else "")
    return "\n".join(lines)


def _print_warnings(warnings: tuple[str, ...]) -> None:
    for each in warnings:
        note(f"warning: {each}")
