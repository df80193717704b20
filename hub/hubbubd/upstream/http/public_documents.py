"""Single documents that others publish, fetched by the rules for the hosts of servers."""

from urllib.parse import urlsplit

import aiohttp

from hubbubd.config.policy.hosts import HostRules
from hubbubd.upstream.http.body import BodyTooLarge, read_whole
from hubbubd.upstream.http.connections import Connections


async def get_json_text(url: str, rules: HostRules, max_bytes: int) -> bytes:
    """Return the JSON at an address, unparsed. Redirects are not followed, and there is no time limit.

    Raises HubError for a host that the rules forbid, OSError, and ValueError for what is no such document.
    """
    rules.check_host(urlsplit(url).hostname or "")
    headers = {"accept": "application/json"}
    try:
        async with (
            Connections().use_session(rules) as http,
            http.get(url, allow_redirects=False, headers=headers) as response,
        ):
            if response.status != 200:
                raise ValueError(f"its status is {response.status}")
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json" and not kind.endswith("+json"):
                raise ValueError("its Content-Type is not application/json")
            return await read_whole(response.content.readany, max_bytes)
    except (aiohttp.ClientError, BodyTooLarge) as exc:
        raise ValueError(str(exc)) from exc
