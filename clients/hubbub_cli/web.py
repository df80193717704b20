"""`hubbub web`."""

from pathlib import Path
from typing import Annotated

import typer

from hubbub_cli.output import note, print_json, say
from hubbub_cli.session import Usage, run, settings_of


def web(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the page; port 0 picks a free one.")
    ] = "127.0.0.1:0",
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate of the page, PEM; needed off loopback.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key; else in --tls-cert.")] = None,
    browser: Annotated[bool, typer.Option(help="Whether to open a browser.")] = True,
) -> None:
    """Serve the inbox and everything else to a browser; print a link that lets one browser in, once."""
    try:
        from hubbub_web.serve import Secured, bind, serve
    except ImportError as missing:
        raise Usage(f"the web inbox needs {missing.name}: pip install 'hubbub[web]'") from None
    settings = settings_of(context)
    try:
        tls = Secured.by(tls_cert, tls_key or tls_cert) if tls_cert else None
    except ValueError as error:
        raise Usage(f"--tls-cert: {error}") from None
    try:
        bound = bind(listen, secure=tls is not None)
    except ValueError as error:
        raise Usage(f"--listen: {error}") from None
    except OSError as error:
        raise typer.TyperException(f"cannot listen on {listen}: {error.strerror}") from None

    def announce(url: str) -> None:
        if settings.json:
            print_json({"event": "ready", "url": url})
        else:
            say(f"Open {url}")

    with bound:
        run(
            context,
            lambda hub: serve(hub, settings.connect, bound, announce, note, tls=tls, open_browser=browser),
            endless=True,
        )
