"""`hubbub web`."""

from contextlib import AbstractAsyncContextManager
from typing import Annotated

import typer

from hubbub_client.cli.output import print_json
from hubbub_client.cli.session import Usage, run, settings_of
from hubbub_client.hub import Hub, connect


def web(
    context: typer.Context,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where, on loopback; port 0 is a free one.")] = (
        "127.0.0.1:0"
    ),
    browser: Annotated[bool, typer.Option(help="Whether a browser is opened.")] = True,
) -> None:
    """The inbox and all the rest in a browser; prints a link that logs one browser in, once."""
    try:
        from hubbub_client.web.serve import bind, serve
    except ImportError as missing:
        raise Usage(f"the web inbox needs {missing.name}: pip install 'hubbub[web]'") from None
    settings = settings_of(context)
    try:
        bound = bind(listen)
    except ValueError as error:
        raise Usage(f"--listen: {error}") from None
    except OSError as error:
        raise typer.TyperException(f"cannot listen on {listen}: {error.strerror}") from None

    def named(name: str | None) -> AbstractAsyncContextManager[Hub]:
        return connect(
            settings.address,
            settings.token,
            settings.data_dir,
            name=name or settings.name,
            connect_timeout_s=settings.connect_timeout_s,
        )

    def announce(url: str) -> None:
        if settings.json:
            print_json({"event": "ready", "url": url})
        else:
            print(f"Open {url}", flush=True)

    with bound:
        run(context, lambda hub: serve(hub, named, bound, announce, open_browser=browser), endless=True)
