"""`hubbub agent`."""

import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.output.printer import note, print_json, print_records, say
from hubbub_cli.run.session import Settings, Usage, get_settings, run_with_hub
from hubbub_cli.run.signals import stop_on_signal
from hubbub_cli.syntax.bounds import check_seconds
from hubbub_cli.syntax.group import Commands
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_agent.decision import AskModel
    from hubbub_agent.evals.cases import Case
    from hubbub_agent.evals.evaluation import ScriptedReplies, Verdict
    from hubbub_agent.rules.rulebook import Rulebook
    from hubbub_agent.usage_ledger import UsageLedger
    from hubbub_client.hub import Hub

app = Commands("Answer what the rules allow, as one of the hub's workers, until interrupted; leave the rest to people.")

ONE_RULE_SOURCE = "give --rules FILE, or one of --accept, --decline, --exec COMMAND, --chat URL (with --model)"
MAX_RECORDED = 10_000
CONSENT_QUESTION = (
    "Cases have what servers asked and what people answered, in files that only you can read. Write them to {folder}?"
)


@app.callback(invoke_without_command=True)
def agent(
    context: typer.Context,
    rules: Annotated[str | None, typer.Option(metavar="FILE", help="Its rules (TOML).")] = None,
    server: Annotated[str, typer.Option(metavar="PATTERN", help="Without FILE: only of these servers.")] = "*",
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Without FILE: only this kind; repeatable.")
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Without FILE: accept forms with their defaults.")] = False,
    decline: Annotated[bool, typer.Option("--decline", help="Without FILE: decline elicitations.")] = False,
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Without FILE: answer by a program, without a shell."),
    ] = None,
    chat: Annotated[
        str | None, typer.Option(metavar="URL", help="Without FILE: answer samplings by an OpenAI-compatible endpoint.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="With --chat: the model.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="With --chat: the variable that has the key.")
    ] = None,
    capacity: Annotated[
        int | None, typer.Option(min=1, max=100, metavar="N", help="How many pending requests at once.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do; claim and answer nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End when all that is open now is handled.")] = False,
    audit: Annotated[
        str | None, typer.Option(metavar="FILE", help="File for the audit in JSON lines; else stderr.")
    ] = None,
    usage: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File that keeps the usage over restarts; else one in the data directory."),
    ] = None,
) -> None:
    """Answer what the rules allow, as one of the hub's workers, until interrupted; leave the rest to people."""
    if context.invoked_subcommand is not None:
        return
    if chat is None and (model is not None or api_key_env is not None):
        raise Usage("--model and --api-key-env belong to --chat URL; with --rules FILE, the file has them")
    if chat is not None and model is None:
        raise Usage("--chat needs --model MODEL, a model that the endpoint has")
    rule_options: dict[str, Any] = {
        "accept": accept or None,
        "decline": decline or None,
        "command": _split_command(command) if command is not None else None,
        "chat": "chat" if chat is not None else None,
    }
    given_options = {name: value for name, value in rule_options.items() if value is not None}
    if len(given_options) + (rules is not None) != 1 or (rules is not None and (server != "*" or kind)):
        raise Usage(ONE_RULE_SOURCE)
    endpoint = {"base_url": chat, "model": model, "api_key_env": api_key_env}
    rules_document: dict[str, Any] = {"rule": [{"server": server, "kind": kind or [], **given_options}]}
    if chat is not None:
        rules_document["chat"] = {"chat": {name: value for name, value in endpoint.items() if value is not None}}
    book = _load_rulebook(rules, rules_document, capacity)
    _check_keys(book)
    files = Files(Path(audit) if audit else None, Path(usage) if usage else None)
    settings = get_settings(context)
    run_with_hub(context, lambda hub: _run_agent(hub, book, files, settings, dry_run=dry_run, once=once), endless=True)


def _split_command(command: str) -> list[str]:
    """Return the words of a command line, split by the rules of a shell. Raises Usage if a quotation has no end."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise Usage(f"--exec: the command cannot be read: {error}") from None


@dataclass(frozen=True)
class Files:
    """Where an agent writes: its audit (None: stderr) and its usage (None: the data directory)."""

    audit: Path | None
    usage: Path | None


async def _run_agent(
    hub: "Hub", book: "Rulebook", files: Files, settings: Settings, *, dry_run: bool, once: bool
) -> None:
    """Answer pending requests until a signal comes, or with `once` until all that are open now are handled.

    A dry run answers nothing, and records what it would do. Raises Usage, HubbubError.
    """
    from hubbub_agent.audit import DecisionAudit
    from hubbub_agent.worker import Agent

    with ExitStack() as stack:
        try:
            decision_audit = (
                stack.enter_context(DecisionAudit.append_to(files.audit)) if files.audit else DecisionAudit(sys.stderr)
            )
        except OSError as error:
            raise Usage(f"--audit: {error}") from None
        # The ledger is for models whose limits also count what earlier runs have used.
        needs_ledger = bool(book.chat) and book.limits.need_earlier_runs and not dry_run
        ledger = stack.enter_context(_open_ledger(files.usage, settings)) if needs_ledger else None
        async with Agent.open(hub, book, decision_audit, note, ledger) as running_agent:
            with stop_on_signal() as stop:
                await running_agent.run(stop, dry_run=dry_run, once=once)


def _load_rulebook(file: str | None, document: dict[str, Any], capacity: int | None) -> "Rulebook":
    """Return the rules of a file; without a file, those of `document`. Raises Usage.

    `capacity`, unless None, replaces the number of requests that are answered at once.
    """
    from hubbub_agent.rules.rulebook import ConfigProblem, load_rules, parse_rules

    try:
        book = load_rules(Path(file)) if file is not None else parse_rules(document)
    except ConfigProblem as problem:
        raise Usage(str(problem)) from None
    return book if capacity is None else book.model_copy(update={"capacity": capacity})


def _check_keys(book: "Rulebook") -> None:
    """Raise Usage if the key of a model cannot be read."""
    from hubbub_agent.rules.problems import ConfigProblem

    try:
        book.check_keys()
    except ConfigProblem as problem:
        raise Usage(str(problem)) from None


@contextmanager
def _open_ledger(file: Path | None, settings: Settings) -> Generator["UsageLedger"]:
    """Open the ledger, the file that keeps the agent's usage of models, for a block.

    It is `file`, else a file with the agent's name in the data directory. Raises Usage if it cannot be used.
    """
    from hubbub_agent.usage_ledger import LedgerProblem, UsageLedger, usage_file
    from hubbub_local.platform_dirs import find_data_dir

    path = file if file is not None else usage_file(find_data_dir(settings.data_dir), settings.name or "agent")
    try:
        with UsageLedger.open_locked(path) as ledger:
            ledger.read()  # so that a file which cannot be read is a wrong usage
            yield ledger
    except LedgerProblem as problem:
        raise Usage(str(problem)) from None


@app.command("eval", example="agent eval cases --rules rules.toml")
def eval_(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Cases: a JSON file each.")],
    rules: Annotated[str, typer.Option(metavar="FILE", help="The rules to try (TOML).")],
    ask_models: Annotated[
        bool, typer.Option("--ask-models", help="Ask the models of the rules; else such cases are skipped.")
    ] = False,
    model_replies: Annotated[
        str | None, typer.Option(metavar="FILE", help="Instead of models: their replies by case (JSON).")
    ] = None,
    run_programs: Annotated[
        bool, typer.Option("--run-programs", help="Run the programs of the rules; else such cases are skipped.")
    ] = False,
    min_pass: Annotated[
        float,
        # `check_seconds` is for NaN, which `min` and `max` let pass.
        typer.Option(min=0, max=100, metavar="PERCENT", callback=check_seconds, help="Exit 1 below this pass rate."),
    ] = 100.0,
) -> None:
    """Try rules on recorded questions with expected answers: nothing is sent to a hub. Exit 1 below --min-pass."""
    import asyncio

    from hubbub_agent.evals import cases
    from hubbub_agent.evals.evaluation import ScriptedReplies, Verdict, summarize
    from hubbub_agent.rules.problems import ConfigProblem

    if ask_models and model_replies is not None:
        raise Usage("give --ask-models or --model-replies, not both")
    book = _load_rulebook(rules, {}, None)
    if ask_models:
        _check_keys(book)
    try:
        eval_cases = cases.load_cases(Path(folder))
        replies = ScriptedReplies.load(Path(model_replies)) if model_replies is not None else None
    except ConfigProblem as problem:
        raise Usage(str(problem)) from None
    as_json = get_settings(context).json
    verdicts = asyncio.run(_judge_cases(eval_cases, book, replies, ask_models=ask_models, programs=run_programs))
    print_records(Verdict, verdicts, as_json)
    counts = summarize(verdicts)
    if as_json:
        print_json({"summary": counts.to_json()})
    else:
        rate = "nothing was judged" if counts.pass_rate is None else f"{counts.pass_rate:g} % passed"
        cost = f", {counts.tokens} tokens, cost {counts.cost:.6g}" if counts.tokens else ""
        say(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped: {rate}{cost}")
    if counts.pass_rate is None or counts.pass_rate < min_pass:  # None: nothing was judged
        raise typer.Exit(1)


async def _judge_cases(
    found: "Sequence[Case]", book: "Rulebook", replies: "ScriptedReplies | None", *, ask_models: bool, programs: bool
) -> "list[Verdict]":
    """Return the verdict on each case. Models are asked with `ask_models`, or `replies` take their place.

    Without either, cases that need a model are skipped; so are those that need a program, without `programs`.
    """
    from hubbub_agent.evals.evaluation import evaluate
    from hubbub_agent.models.budget import ModelBudget

    async with ModelBudget.open(book, note) as budget:
        ask: AskModel | ScriptedReplies | None = budget.ask if ask_models else replies
        return [verdict async for verdict in evaluate(found, book, ask, programs=programs)]


@app.command("record", example="agent record cases --server demo")
def record(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the cases go; those that are there stay.")],
    server: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this server asked.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_RECORDED, metavar="N", help="At most so many, the newest.")
    ] = 100,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write them without a question.")] = False,
) -> None:
    """Write cases for an eval from what people answered: each pending request, with its answer as what is expected."""
    if not yes:
        if not sys.stdin.isatty():
            raise Usage("cases have what people answered, and there is no terminal to ask at: agree to it with --yes")
        typer.confirm(CONSENT_QUESTION.format(folder=folder), abort=True, err=True)

    async def record_cases(hub: "Hub") -> None:
        """Write a case for each pending request that was answered, and print how many were written."""
        from hubbub_agent.evals import cases

        answered = await hub.inbox.list(server=server, states=["answered"], limit=limit)
        try:
            written = sum(
                cases.save_case(Path(folder), each, cases.expect_recorded_answer(each))
                for each in answered
                if each.answer is not None
            )
        except OSError as error:
            raise Usage(f"{folder}: cannot be written: {error}") from None
        if get_settings(context).json:
            print_json({"folder": folder, "written": written, "found": len(answered)})
            return
        if not answered:
            of = f" of {server}" if server is not None else ""
            say(
                with_hub_options(
                    f"No question{of} has an answer yet, so there is no case; hubbub inbox shows what waits for one"
                )
            )
            return
        say(f"{written} cases are written to {folder}; {len(answered) - written} were there before or have no answer")
        if written:
            say(f"Look at what each expects, then try rules: hubbub agent eval {folder} --rules rules.toml")

    run_with_hub(context, record_cases)
