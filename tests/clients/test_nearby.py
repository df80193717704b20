"""What is perhaps meant, and what to type next: every command that is suggested exists."""

import re
import shlex
from typing import Any

import pytest

from hubbub.v1 import catalog_pb2
from hubbub_cli.syntax.advice import NEXT_COMMANDS, NOUNS
from hubbub_cli.syntax.usage import OTHER_WORDS, find_close_names

from ..command_tree import whole
from .world import furnish


@pytest.mark.parametrize(
    "words", [*NEXT_COMMANDS.values(), *(noun.lister for noun in NOUNS.values()), *OTHER_WORDS.values()], ids=str
)
def test_a_command_that_is_suggested_can_be_typed(words: str) -> None:
    at = whole()
    given = [word for word in shlex.split(words) if not word.startswith("--") and "{" not in word]
    for word in given:
        if hasattr(at, "commands"):
            at = at.commands[word]
    options = {name for each in at.params for name in each.opts}
    assert {word for word in words.split() if word.startswith("--")} <= options | {"--version"}


def test_no_command_is_named_as_a_word_of_another_program() -> None:
    assert OTHER_WORDS.keys().isdisjoint(whole().commands)


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("tme", ["demo", "time"], ["time"]),
        ("TIME", ["demo", "time"], ["time"]),
        ("form", ["elicitation_form", "elicitation_url"], ["elicitation_form"]),
        ("time", ["time"], []),
        ("", ["time"], []),
        ("x", ["xx", "xy"], ["xx", "xy"]),
        ("zzz", ["demo", "time"], []),
        ("a" * 100_000, ["demo"], []),
    ],
)
def test_what_is_near(word: str, known: list[str], near: list[str]) -> None:
    assert sorted(find_close_names(word, known)) == near


@pytest.mark.parametrize("words", [("queue", "tme"), ("call", "time", "get_curent_time")])
async def test_a_program_gets_what_it_always_got_and_the_hub_is_asked_nothing_more(
    hub: Any, typed: Any, refusal: Any, words: tuple[str, ...]
) -> None:
    furnish(hub, refusal)
    ran = await typed(*words, "--json")
    assert ran.status == 1
    assert "mean" not in ran.err + ran.out
    assert not [name for name, *_ in hub.seen if name.startswith("List")]


async def test_names_of_servers_cannot_steer_a_terminal(hub: Any, typed: Any, refusal: Any) -> None:
    furnish(hub, refusal)
    servers = hub.replies["ListServers"]

    def evil(request: Any) -> Any:
        response = servers(request)
        response.servers[2].name = "tim\x1b[2Je"
        return response

    hub.replies["ListServers"] = evil
    ran = await typed("queue", "time1")
    assert re.search("did you mean tim.*e", ran.err)
    assert "\x1b" not in ran.err


async def test_a_call_that_is_interrupted_or_succeeds_asks_for_no_catalog(hub: Any, typed: Any, refusal: Any) -> None:
    furnish(hub, refusal)
    await typed("queue", "demo")
    await typed("inbox", "list")
    assert not hub.requests("ListCatalogEntries")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (b'{"properties":[1],"required":{"a":1}}', ""),
        (b'{"properties":{"zone":1},"required":5}', "there is no argument 'x'; it has zone\n"),
        (b'{"properties":{"zone":1},"required":"zone"}', "there is no argument 'x'; it has zone\n"),
    ],
)
async def test_a_schema_that_is_none_is_no_trouble(
    hub: Any, typed: Any, refusal: Any, schema: bytes, said: str
) -> None:
    furnish(hub, refusal)
    entries = hub.replies["ListCatalogEntries"]

    def odd(request: Any) -> Any:
        response = entries(request)
        response.entries[0].object = b'{"name":"get_current_time","inputSchema":%s}' % schema
        return response

    hub.replies["ListCatalogEntries"] = odd
    ran = await typed("call", "time", "get_current_time", '{"x": 1}')
    assert (ran.status, ran.err) == (1, said)


async def test_arguments_of_a_prompt_that_are_no_list_are_no_trouble(hub: Any, typed: Any, refusal: Any) -> None:
    furnish(hub, refusal)
    entry = catalog_pb2.CatalogEntry(server="demo", kind=4, object=b'{"name":"odd","arguments":5}')
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(entries=[entry])
    ran = await typed("prompt", "demo", "odd")
    assert (ran.status, ran.err.splitlines()[0]) == (1, "error: Invalid params (SERVER_ERROR)")


async def test_of_a_server_that_lists_nothing_it_is_said_where_to_look(hub: Any, typed: Any, refusal: Any) -> None:
    furnish(hub, refusal)
    ran = await typed("call", "git", "git_log", "n=1")
    assert ran.status == 1
    assert "it lists no tools" in ran.err
    assert "hubbub servers get git\n" in ran.err


async def test_an_id_with_spaces_is_one_word_of_the_command_to_type(hub: Any, typed: Any, refusal: Any) -> None:
    furnish(hub, refusal)

    def taken(asked: Any) -> Any:
        raise refusal("ALREADY_EXISTS", "CALL_IN_PROGRESS", "this call is under way", {"call": asked.spec.call_id})

    hub.replies["CallMethod"] = taken
    ran = await typed("call", "demo", "order_lunch", "--call-id", "my lunch")
    assert "next: hubbub calls watch 'my lunch'\n" in ran.err
