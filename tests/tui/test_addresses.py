"""A hub with several addresses, at the top of the screen."""

import json

from ..clients.conftest import ScriptedHub, hub
from .conftest import at_terminal
from .hostile_hub import script

__all__ = ["hub"]


async def test_the_line_at_the_top_says_which_address_of_how_many_is_in_use(hub: ScriptedHub, free_port: int) -> None:
    script(hub)
    several = {"address": f"127.0.0.1:{free_port},{hub.address}", "token": hub.token}
    (hub.data_dir / "client.json").write_text(json.dumps(several))
    async with at_terminal(hub, size=(170, 40)) as ann:
        await ann.sees(f"{hub.address} (one of 2) ● live")
