"""Opens pages that a person has agreed to visit in their browser."""

import webbrowser
from urllib.parse import urlsplit

from anyio import to_thread

from hubbub_cli.output.printer import note
from hubbub_frontend.display.records import url_host


async def open_page(url: str) -> bool:
    """Open a page in the browser; return False if there is no browser, or the page is no http or https url.

    Only for a page whose whole url the person has seen and agreed to (MCP client/elicitation, url mode).
    """
    if not is_web_page(url):
        note("this is no page of the web; it is not opened")
        return False
    if await to_thread.run_sync(webbrowser.open, url):
        return True
    note("no browser can be started here: open the address yourself, or set BROWSER")
    return False


def is_web_page(url: str) -> bool:
    """Return whether a url is an http or https one with a host, of printable characters only."""
    return bool(url_host(url)) and urlsplit(url).scheme in ("http", "https") and url.isprintable() and " " not in url
