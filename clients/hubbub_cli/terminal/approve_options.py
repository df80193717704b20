"""The options of `inbox answer` about approvals, and what they say."""

from typing import Annotated, Literal

import typer

from hubbub_cli.run.session import Usage, parse_json_object
from hubbub_cli.syntax.span import parse_span
from hubbub_cli.terminal.arguments import read_file
from hubbub_client.data.approvals import ApproveOptions

Approve = Annotated[bool, typer.Option("--approve", help="Approval: yes, the call may be made.")]
Change = Annotated[
    str | None,
    typer.Option(metavar="JSON or @FILE", help="Approval: yes, with these arguments in place of those asked for."),
]
Remember = Annotated[str | None, typer.Option(metavar="SPAN", help="Approval: yes, also for later calls, as 1h or 1d.")]
SameArguments = Annotated[
    bool, typer.Option("--same-arguments", help="Remember it for calls with the same arguments only.")
]
Suggestion = Annotated[
    list[int] | None,
    typer.Option(metavar="N", help="Approval: yes, also to this suggestion of the caller's host; repeatable."),
]
Comment = Annotated[str | None, typer.Option(metavar="TEXT", help="What you say of your approval.")]
Digest = Annotated[
    str | None,
    typer.Option(
        metavar="D",
        help="Approve these arguments: the `arguments_digest` that you have seen; else those first asked for.",
    ),
]
Deny = Annotated[str | None, typer.Option(metavar="[REASON]", help="Approval: no, with a reason for the caller.")]


def read_options(
    approve: bool,
    change: str | None,
    remember: str | None,
    same_arguments: bool,
    suggestions: list[int] | None,
    comment: str | None,
    digest: str | None,
) -> ApproveOptions | Literal[False]:
    """Return the approval that the options describe; False if they describe none. Raises Usage."""
    if not approve and change is None:
        dependent_options = {
            "--remember": remember,
            "--same-arguments": same_arguments,
            "--suggestion": suggestions,
            "--comment": comment,
            "--digest": digest,
        }
        if used_options := [option for option, value in dependent_options.items() if value]:
            raise Usage(f"{used_options[0]} goes with --approve or --change")
        return False
    if same_arguments and remember is None:
        raise Usage("--same-arguments goes with --remember")
    options: ApproveOptions = {
        "remember_s": parse_span("--remember", remember) if remember is not None else 0.0,
        "same_arguments": same_arguments,
        "suggestions": suggestions or (),
        "comment": comment or "",
        "digest": digest or "",
    }
    changed = parse_json_object(_read_text_or_file(change) if change is not None else None, "--change")
    if changed is not None:
        options["arguments"] = changed
    return options


def _read_text_or_file(text: str) -> str:
    """Return a text, or for `@FILE` the content of the file. Raises Usage."""
    if not text.startswith("@"):
        return text
    try:
        return read_file(text[1:])
    except ValueError as error:
        raise Usage(f"--change: {error}") from None
