"""`hubbub inbox`."""

import contextlib
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from hubbub_client.cli.execute import Executor
from hubbub_client.cli.output import note, print_event, print_record, print_records
from hubbub_client.cli.session import Usage, json_object, known, run, settings_of
from hubbub_client.cli.terminal import ask
from hubbub_client.hub import Hub
from hubbub_client.records import PendingRequest, RequestKind, RequestState

app = typer.Typer(help="What servers ask, and the answers.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The pending request.")]
ServerOption = Annotated[str | None, typer.Option(help="Only of this server.")]
KINDS: tuple[str, ...] = get_args(RequestKind)
STATES: tuple[str, ...] = get_args(RequestState)
Kinds = Annotated[list[str] | None, typer.Option("--kind", help=f"Only {' or '.join(KINDS)}; repeatable.")]
States = Annotated[list[str] | None, typer.Option("--state", help=f"Only {' or '.join(STATES)}; repeatable.")]


@app.command("list")
def list_(context: typer.Context, server: ServerOption = None, kind: Kinds = None, state: States = None) -> None:
    """Pending requests, newest first, in every state unless --state is given."""
    kinds, states = known(kind, "--kind", KINDS), known(state, "--state", STATES)

    async def work(hub: Hub) -> None:
        found = await hub.inbox.list(server=server, kinds=kinds, states=states)
        print_records(PendingRequest, found, settings_of(context).json)

    run(context, work)


@app.command()
def show(context: typer.Context, id_: Id) -> None:
    """One pending request, with what is asked."""

    async def work(hub: Hub) -> None:
        print_record(await hub.inbox.get(id_), settings_of(context).json)

    run(context, work)


@app.command()
def watch(
    context: typer.Context,
    server: ServerOption = None,
    kind: Kinds = None,
    state: States = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run this shell command for every request that becomes open: its JSON on stdin, "
            "HUBBUB_REQUEST_ID, HUBBUB_REQUEST_KIND and HUBBUB_SERVER in the environment.",
        ),
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="TOKEN", help="Go on from here.")] = None,
) -> None:
    """Pending requests and their changes, until interrupted."""
    settings = settings_of(context)
    kinds, states = known(kind, "--kind", KINDS), known(state, "--state", STATES)

    async def work(hub: Hub) -> None:
        watching = hub.inbox.watch(server=server, kinds=kinds, states=states, resume_token=resume)
        async with Executor(command, settings.environment) as executor, contextlib.aclosing(watching) as events:
            async for event in events:
                print_event(event, settings.json)
                await executor.see(event)

    run(context, work, endless=True)


@app.command()
def claim(
    context: typer.Context,
    id_: Id,
    ttl: Annotated[float, typer.Option(min=0, metavar="S", help="Seconds until it lapses.")] = 60.0,
) -> None:
    """Lease an open request, so that others leave it alone; prints the claim's id."""

    async def work(hub: Hub) -> None:
        print_record(await hub.inbox.claim(id_, ttl), settings_of(context).json)

    run(context, work)


@app.command()
def release(
    context: typer.Context, id_: Id, claim: Annotated[str, typer.Option(metavar="C", help="The claim's id.")]
) -> None:
    """Give a claim back."""

    async def work(hub: Hub) -> None:
        print_record(await hub.inbox.release(id_, claim), settings_of(context).json)

    run(context, work)


class AnswerCommand(TyperCommand):
    """`--accept` may stand without a value: an empty one then means the defaults."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with the value of `--accept` made explicit."""
        explicit = [
            "--accept=" if word == "--accept" and following.startswith("-") else word
            for word, following in zip(args, [*args, "--"][1:], strict=True)
        ]
        return super().parse_args(ctx, explicit)


@app.command(cls=AnswerCommand)
def answer(
    context: typer.Context,
    id_: Id,
    accept: Annotated[
        str | None, typer.Option(metavar="[JSON]", help="Elicitation: yes, with this content or the defaults.")
    ] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Elicitation: no.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Elicitation: dismissed without a choice.")] = False,
    text: Annotated[str | None, typer.Option(help="Sampling: an assistant message.")] = None,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="Any kind: the whole MCP result.")] = None,
    error: Annotated[str | None, typer.Option(metavar="MESSAGE", help="Sampling: refused, with this reason.")] = None,
    claim: Annotated[str | None, typer.Option(metavar="C", help="The claim under which you answer.")] = None,
    answer_id: Annotated[str | None, typer.Option(metavar="A", help="Makes it safe to repeat this command.")] = None,
) -> None:
    """Answer a pending request; without an answer, a terminal asks for it."""
    settings = settings_of(context)
    given: dict[str, Any] = {
        "accept": (json_object(accept, "--accept") if accept else True) if accept is not None else False,
        "decline": decline,
        "cancel": cancel,
        "text": text,
        "result": json_object(result, "--result"),
        "reject": error,
    }
    count = sum(value is not None and value is not False for value in given.values())
    if count > 1 or (count == 0 and not settings.interactive):
        raise Usage("give one answer: --accept [JSON], --decline, --cancel, --text, --result JSON or --error MESSAGE")

    async def work(hub: Hub) -> bool:
        if count:
            answered = await hub.inbox.answer(id_, **given, claim_id=claim, answer_id=answer_id)
        else:
            answered = await ask(await hub.inbox.get(id_))
        if answered is None:
            note(f"{id_} is left open")
            return False
        print_record(answered, settings.json)
        return True

    run(context, work)
