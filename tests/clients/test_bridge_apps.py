"""What a bridge does for hosts that show pages of apps."""

from pathlib import Path
from typing import Any

import pytest

from hubbub_bridge import conversation

from .test_bridge_conversation import ABOUT, HELLO, STATELESS, TOOLS, Sides, request, response, shaken, sides

__all__ = ["sides"]


@pytest.mark.parametrize("stateless", [False, True])
def test_a_host_that_shows_no_pages_does_not_get_the_tools_of_one_that_does(tmp_path: Path, stateless: bool) -> None:
    apps = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}

    def asks(capabilities: dict[str, Any]) -> Sides:
        sides = Sides(tmp_path)
        meta = {**STATELESS["_meta"], "io.modelcontextprotocol/clientCapabilities": capabilities}
        if not stateless:
            sides.says(request(1, "initialize", **{**HELLO, "capabilities": capabilities}))
        sides.says(request(2, "tools/list", **({"_meta": meta} if stateless else {})))
        return sides

    first = asks(apps)
    first.connect()
    first.answers(*([] if stateless else [response(1, **ABOUT)]), response(2, **TOOLS))
    for capabilities, known in (({}, False), (apps, True)):
        later = asks(capabilities)
        later.talk.answer_from_cache()
        assert (response(2, **TOOLS) in later.told()) is known


def test_the_next_hub_hears_of_which_servers_the_host_has_pages(sides: Sides) -> None:
    shaken(sides)
    pages = ["ui://one+a", "ui://one+b", "ui://two+a", "ui://three+a", "file:///x", "ui://own"]
    for id_, uri in enumerate(pages, 10):
        sides.says(request(id_, "resources/read", uri=uri))
        refused = {"jsonrpc": "2.0", "id": id_, "error": {"code": -32602, "message": "no page"}}
        sides.answers(refused if "three" in uri else response(id_, contents=[]))
    sides.lose()
    sides.told()
    sides.heard()
    sides.connect()
    read = [each["params"]["uri"] for each in sides.heard() if each.get("method") == "resources/read"]
    assert read == ["ui://one+b", "ui://two+a"]
    sides.answers(response(11, contents=[]), response(12, contents=[]))
    assert not [message for message in sides.told() if message.get("id") in (11, 12)]
    sides.says(request(99, "initialize", **HELLO))
    sides.lose()
    sides.heard()
    sides.connect()
    assert not [each for each in sides.heard() if each.get("method") == "resources/read"]


def test_a_bridge_remembers_no_more_pages_than_subscriptions(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_SUBSCRIPTIONS", 3)
    shaken(sides)
    for id_ in range(10, 20):
        sides.says(request(id_, "resources/read", uri=f"ui://s{id_}+a"))
        sides.answers(response(id_, contents=[]))
    sides.lose()
    sides.heard()
    sides.connect()
    assert 0 < sum(each.get("method") == "resources/read" for each in sides.heard()) <= 4
