"""`hubbub web`."""

import errno
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.notices.browser_push import Pusher
from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings, Usage, get_settings, run_with_hub
from hubbub_frontend.links import Links, announce_page
from hubbub_local.platform_dirs import find_data_dir

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from hubbub_client.hub import Hub
    from hubbub_web.push import PushGateway


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
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The hub's configuration file: [notify] says what is pushed.")
    ] = None,
    push_host: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Another push service of browsers; repeatable.")
    ] = None,
) -> None:
    """Serve the inbox and everything else to a browser; print a link that lets one browser in, once."""
    from hubbub_web.server import PageTls, bind, serve

    settings = get_settings(context)
    try:
        tls = PageTls.load(tls_cert, tls_key or tls_cert) if tls_cert else None
    except ValueError as error:
        raise Usage(f"--tls-cert: {error}") from None
    try:
        bound = bind(listen, secure=tls is not None)
    except ValueError as error:
        raise Usage(f"--listen: {error}") from None
    except OSError as error:
        raise typer.TyperException(f"cannot listen on {listen}: {error.strerror}") from None
    pushing = _make_push_gateway(settings, config, push_host or [])
    directory = find_data_dir(settings.data_dir)

    with bound, ExitStack() as stack:

        def announce(url: str) -> None:
            """Print the link to the page, and write into a file where the page is, without the secret of the link."""
            _announce_page(stack, directory, url.partition("/#")[0])
            if settings.json:
                print_json({"event": "ready", "url": url})
            else:
                say(f"Open {url}")

        def serve_page(hub: "Hub") -> "Coroutine[Any, Any, None]":
            return serve(
                hub,
                settings.connect,
                bound,
                announce,
                note,
                tls=tls,
                open_browser=browser,
                links=Links(directory),
                pushing=pushing,
                # Without the name of `--as`: a server that is added under a name would not be the owner's.
                command=replace(settings, name=None, data_dir=str(directory.absolute())).command(),
            )

        run_with_hub(context, serve_page, endless=True)


def _make_push_gateway(settings: Settings, config: Path | None, hosts: list[str]) -> "PushGateway | None":
    """Return what sends pushes to browsers; None if the packages for that are not installed."""
    from hubbub_web.push import PUSH_HOSTS, PushGateway

    if find_spec("http_ece") is None:
        return None
    pusher = Pusher(settings, config)
    return PushGateway(pusher.read_public_key, (*PUSH_HOSTS, *hosts), pusher.run)


def _announce_page(stack: ExitStack, directory: Path, base: str) -> None:
    """Write into a file where the page is, for the links of `hubbub notify`; closing `stack` removes the file.

    If another page is written there already, or the file cannot be written, that is printed instead.
    """
    try:
        if not stack.enter_context(announce_page(directory, base)):
            note("another page runs for this data directory: links of notifications lead there")
    except OSError as error:
        if error.errno != errno.EROFS:  # mounted so on purpose, as in a container: nobody expects links from there
            note(f"notifications cannot link to this page: {error}")
