"""`hubbub inbox` and `open`."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.output.details import print_claim
from hubbub_cli.output.printer import print_json, print_records, print_request, say
from hubbub_cli.output.watch_lines import Lines
from hubbub_cli.run.session import Settings, Usage, get_settings, parse_json_object, run_with_hub
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.bounds import MAX_INT32, check_seconds
from hubbub_cli.syntax.group import Commands, LightCommand
from hubbub_cli.syntax.params import (
    ClaimOption,
    OfCall,
    OfServer,
    RequestId,
    RequestKinds,
    RequestStates,
    Resume,
    Ttl,
)
from hubbub_cli.terminal import approve_options, arguments
from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_object
from hubbub_frontend import samples
from hubbub_frontend.arguments import are_key_values
from hubbub_frontend.display.records import may_imitate_host, url_host

if TYPE_CHECKING:
    from hubbub_cli.notices.webhook import Webhook
    from hubbub_client.hub import Hub

app = Commands("What servers ask, and the answers.")

EXEC_LIMIT_S = 300.0
"""Default time limit of a command of `--exec`."""
LIST_OPEN = ("inbox", "list", "--state", "open")
ONE_ANSWER = "give one answer: KEY=VALUE, --accept, --decline, --cancel, --text, --result, --error, --approve or --deny"


@app.hub_command("list", example="inbox list --state open")
async def list_(
    hub: "Hub",
    settings: Settings,
    server: OfServer = None,
    kind: RequestKinds = None,
    state: RequestStates = None,
    call: OfCall = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_INT32, metavar="N", help="At most so many.")] = None,
) -> None:
    """List pending requests, newest first, in every state unless --state is given."""
    requests = await hub.inbox.list(server=server, kinds=kind or (), states=state or (), call_id=call, limit=limit)
    print_records(PendingRequest, requests, settings.json)


@app.hub_command(example="inbox show REQUEST")
async def show(hub: "Hub", settings: Settings, id_: RequestId) -> None:
    """Show one pending request, with what is asked, and how to answer it."""
    from hubbub_frontend.display.call_details import fetch_asking_call  # imported here, since it imports rich

    request = await hub.inbox.get(id_)
    if settings.json:
        print_json(request.to_json())
        return
    print_request(request, await fetch_asking_call(hub, request))
    if request.state == "open":
        say()
        say("answer it with, for example:")
        say(f"  {settings.command('inbox', 'answer', request.id, *samples.sample_answer(request))}")


@app.command(example="inbox watch --state open --exec 'notify-send \"$HUBBUB_SERVER asks\"'")
def watch(
    context: typer.Context,
    server: OfServer = None,
    kind: RequestKinds = None,
    state: RequestStates = None,
    call: OfCall = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run this shell command for every pending request that opens: its JSON on stdin, "
            "HUBBUB_REQUEST_ID, HUBBUB_REQUEST_KIND and HUBBUB_SERVER in the environment.",
        ),
    ] = None,
    exec_timeout: Annotated[
        float,
        typer.Option(min=0, metavar="S", callback=check_seconds, help="Seconds until the command is killed."),
    ] = EXEC_LIMIT_S,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="POST every pending request that opens to this https url (http on loopback), signed with the secret "
            "in HUBBUB_WEBHOOK_SECRET.",
        ),
    ] = None,
    resume: Resume = None,
) -> None:
    """Watch pending requests and their changes, until interrupted."""
    settings = get_settings(context)
    hook = _make_webhook(webhook) if webhook is not None else None

    async def watch_inbox(hub: "Hub") -> None:
        """Print each change, and queue a notice of each pending request that opens."""
        from hubbub_cli.notices.notice_queue import Notices
        from hubbub_cli.notices.shell_command import Command

        lines = Lines("nothing is asked yet", as_json=settings.json)
        async with contextlib.AsyncExitStack() as stack:
            deliveries = [Command(command, settings.environment, exec_timeout).deliver] if command is not None else []
            if hook is not None:
                deliveries.append((await stack.enter_async_context(hook)).deliver)
            notices = await stack.enter_async_context(Notices(*deliveries))
            watching = hub.inbox.watch(
                server=server, kinds=kind or (), states=state or (), call_id=call, resume_token=resume
            )
            steps = await stack.enter_async_context(contextlib.aclosing(watching))
            async for step in steps:
                lines.print_step(step)
                notices.queue_opened(step)

    run_with_hub(context, watch_inbox, endless=True)


def _make_webhook(url: str) -> "Webhook":
    """Return the webhook at a url, not opened yet. Raises Usage."""
    # Imported late, as others here: anyio takes longer than most commands need.
    from hubbub_cli.notices.webhook import make_webhook

    return make_webhook(url)


@app.hub_command(example="inbox claim REQUEST --ttl 300")
async def claim(
    hub: "Hub",
    settings: Settings,
    id_: RequestId,
    ttl: Ttl = 60.0,
    claim: Annotated[
        str | None,
        typer.Option(metavar="C", help="The claim's id, which you choose: repeating the command prolongs the claim."),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take over your own claim from another window or program.")
    ] = False,
) -> None:
    """Claim an open pending request, so that others leave it alone; print the claim's id."""
    held = await hub.inbox.claim(id_, ttl, claim_id=claim, take_over=take_over)
    print_claim(held, settings)


@app.hub_command(example="inbox renew REQUEST --claim CLAIM --ttl 300")
async def renew(hub: "Hub", settings: Settings, id_: RequestId, claim: ClaimOption, ttl: Ttl = 60.0) -> None:
    """Renew a claim, for so many seconds from now."""
    print_claim(await hub.inbox.renew(id_, claim, ttl), settings)


@app.hub_command(example="inbox release REQUEST --claim CLAIM")
async def release(hub: "Hub", settings: Settings, id_: RequestId, claim: ClaimOption) -> None:
    """Release a claim."""
    print_claim(await hub.inbox.release(id_, claim), settings)


AnswerId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", help="The pending request; a terminal lets you choose.", autocompletion=completion.requests
    ),
]
Accept = Annotated[
    str | None, typer.Option(metavar="[JSON]", help="Elicitation: yes, with this content or the defaults.")
]
ErrorMessage = Annotated[str | None, typer.Option(metavar="MESSAGE", help="Sampling: refused, with this reason.")]
AnswerKey = Annotated[
    str | None, typer.Option(metavar="A", help="Idempotency key: makes it safe to repeat this command.")
]


class AnswerCommand(LightCommand):
    """Command whose `--accept` and `--deny` may lack a value: the defaults, and no reason."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give `--accept` and `--deny` an empty value where they have none, and parse the words."""
        # Such an option has no value if the next word is an option, too; `--` stands for the end of the words.
        explicit = [
            f"{word}=" if word in ("--accept", "--deny") and following.startswith("-") else word
            for word, following in zip(args, [*args, "--"][1:], strict=True)
        ]
        return super().parse_args(ctx, explicit)


@app.command(cls=AnswerCommand, example="inbox answer REQUEST dish=soup portions=2")
def answer(
    context: typer.Context,
    id_: AnswerId = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="Form: yes, with these values and the defaults."),
    ] = None,
    accept: Accept = None,
    decline: Annotated[bool, typer.Option("--decline", help="Elicitation: no.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Elicitation: dismissed without a choice.")] = False,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="Sampling: an assistant message.")] = None,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="Any kind: the whole MCP result.")] = None,
    error: ErrorMessage = None,
    approve: approve_options.Approve = False,
    change: approve_options.Change = None,
    remember: approve_options.Remember = None,
    same_arguments: approve_options.SameArguments = False,
    suggestion: approve_options.Suggestion = None,
    comment: approve_options.Comment = None,
    digest: approve_options.Digest = None,
    deny: approve_options.Deny = None,
    claim: Annotated[str | None, typer.Option(metavar="C", help="The claim under which you answer.")] = None,
    answer_id: AnswerKey = None,
) -> None:
    """Answer a pending request; without an answer, a terminal asks for it, and holds a claim meanwhile."""
    settings = get_settings(context)
    whole = arguments.parse_without_schema(words) if words else None
    answer_options: dict[str, Any] = {
        "accept": (parse_json_object(accept, "--accept") if accept else True) if accept is not None else False,
        "decline": decline,
        "cancel": cancel,
        "text": text,
        "result": parse_json_object(result, "--result"),
        "reject": error,
        "approve": approve_options.read_options(approve, change, remember, same_arguments, suggestion, comment, digest),
        "deny": deny,
    }
    if id_ is not None and are_key_values([id_]):
        raise Usage(f"Missing argument 'ID', before KEY=VALUE; `{settings.command(*LIST_OPEN)}` shows the ids")
    count = bool(words) + sum(value is not None and value is not False for value in answer_options.values())
    if count > 1 or (count == 0 and not settings.interactive):
        raise Usage(ONE_ANSWER)
    if count and id_ is None:
        raise Usage("Missing argument 'ID'.")

    async def answer_request(hub: "Hub") -> bool:
        """Give the answer of the options, else have the person answer; return whether it is answered."""
        from hubbub_cli.terminal.claimed_answer import answer_and_report, choose_request, print_given_answer

        if words and id_ is not None:
            requested_schema = as_object((await hub.inbox.get(id_)).request).get("requestedSchema")
            answer_options["accept"] = arguments.parse_with_schema(words, requested_schema) if whole is None else whole
        if count and id_ is not None:
            answered_request = await hub.inbox.answer(id_, **answer_options, claim_id=claim, answer_id=answer_id)
            await print_given_answer(hub, answered_request, settings)
            return True
        request = await hub.inbox.get(id_) if id_ is not None else await choose_request(hub)
        return request is not None and await answer_and_report(hub, request, settings, claim)

    run_with_hub(context, answer_request)


def open_(
    context: typer.Context,
    id_: Annotated[
        str,
        typer.Argument(metavar="ID", help="A pending request with a page to visit.", autocompletion=completion.pages),
    ],
    print_only: Annotated[
        bool, typer.Option("--print-only", help="Print its address; open and answer nothing.")
    ] = False,
) -> None:
    """Visit the page that a server asks for: show where it leads, and open it only when you agree."""
    settings = get_settings(context)
    if not print_only and not settings.interactive:
        raise Usage(
            "a page is opened only with consent, given at a terminal; `--print-only` prints its address, "
            f"and `{settings.command('inbox', 'answer', id_, '--accept')}` or --decline answers"
        )

    async def visit_page(hub: "Hub") -> bool:
        """Print the address, or have the person visit the page; return False if they leave it open."""
        from hubbub_cli.terminal.claimed_answer import answer_and_report
        from hubbub_client.errors import FailedPrecondition

        request = await hub.inbox.get(id_)
        if request.kind != "elicitation_url":
            raise FailedPrecondition(f"{id_} asks for no page ({request.kind})", reason="NO_PAGE")
        if not print_only:
            return await answer_and_report(hub, request, settings)
        url = str(as_object(request.request).get("url", ""))
        if settings.json:
            print_json({"id": request.id, "url": url, "host": url_host(url), "imitates": may_imitate_host(url)})
        else:
            say(url)
        return True

    run_with_hub(context, visit_page)
