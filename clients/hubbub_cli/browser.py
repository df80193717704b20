"""The browser of the person at this terminal, for pages that they have agreed to visit."""

import webbrowser
from urllib.parse import urlsplit

from anyio import to_thread

from hubbub_cli.output import note
from hubbub_frontend.wording import host_of


async def browse(url: str) -> bool:
    """Opens a page in the browser; False where there is none, or where it is no page of the web.

    Only for a page whose whole url the person has seen and agreed to (MCP client/elicitation, url mode).
    """
    if not is_page(url):
        note("this is no page of the web; it is not opened")
        return False
    if await to_thread.run_sync(webbrowser.open, url):
        return True
    note("no browser can be started here: open the address yourself, or set BROWSER")
    return False


def is_page(url: str) -> bool:
    """Whether it is an http or https url with a host, of printable characters only."""
    return bool(host_of(url)) and urlsplit(url).scheme in ("http", "https") and url.isprintable() and " " not in url
