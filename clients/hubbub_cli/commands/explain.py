"""`hubbub explain`."""

from typing import Annotated

import typer

from hubbub_cli.output.printer import print_json, print_page, say
from hubbub_cli.run.session import Usage, get_settings
from hubbub_cli.syntax.usage import find_close_names, format_did_you_mean
from hubbub_frontend.error_help import code_summaries, normalize_code, render_plain_page


def _complete_codes(incomplete: str) -> list[str]:
    """Return the codes of errors that begin with a word, for a shell that completes the word."""
    return [code for code, _ in code_summaries() if code.startswith(normalize_code(incomplete))]


def explain(
    context: typer.Context,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="The code of an error, in any case; without it, list all.",
            autocompletion=_complete_codes,
        ),
    ] = None,
) -> None:
    """Explain an error by its code: what it means, why it happens and what to do."""
    settings = get_settings(context)
    if code is None:
        _print_codes(settings.json)
        return
    text = render_plain_page(code)
    if text is None:
        known = [name for name, _ in code_summaries()]
        wrong = Usage(f"there is no error {normalize_code(code)}")
        near = (
            find_close_names(normalize_code(code), known)
            or [name for name in known if normalize_code(code) in name][:5]
        )
        for note in filter(None, (format_did_you_mean(near), "all of them: hubbub explain")):
            wrong.add_note(note)
        raise wrong
    if settings.json:
        print_json({"code": normalize_code(code), "text": text})
    else:
        print_page(text)


def _print_codes(as_json: bool) -> None:
    """Print the codes of all errors, each with what it means in short."""
    for name, summary in code_summaries():
        if as_json:
            print_json({"code": name, "summary": summary})
        else:
            say(f"{name:26}", summary)
