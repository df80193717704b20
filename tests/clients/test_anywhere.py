"""The options of the root stand anywhere: before a command, after it and between its arguments."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer import Context

from hubbub.v1 import call_pb2, inbox_pb2, server_pb2
from hubbub_cli.syntax.root_options import is_from_root, wants_json

from ..command_tree import whole


@pytest.fixture
def listing(hub: Any) -> Any:
    """A hub that shows a pending request, and adds any server."""
    request = inbox_pb2.PendingRequest(id="r1", server="demo", kind=1, state=1)
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=request)
    hub.replies["ClaimPendingRequest"] = lambda _: inbox_pb2.ClaimPendingRequestResponse(pending_request=request)
    hub.replies["AddServer"] = lambda asked: server_pb2.AddServerResponse(server=server_pb2.Server(name="x"))
    hub.replies["ListCalls"] = lambda _: call_pb2.ListCallsResponse()
    return hub


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "inbox", "show", "r1"),
        ("inbox", "--json", "show", "r1"),
        ("inbox", "show", "--json", "r1"),
        ("inbox", "show", "r1", "--json"),
        ("inbox", "show", "r1", "-o", "json"),
        ("inbox", "show", "r1", "-ojson"),
        ("inbox", "show", "r1", "--output=json"),
        ("-o", "text", "inbox", "show", "r1", "-o", "json"),
    ],
)
async def test_json_is_asked_for_anywhere(listing: Any, typed: Any, words: tuple[str, ...]) -> None:
    ran = await typed(*words)
    assert (ran.status, ran.lines[0]["id"]) == (0, "r1"), ran.err


@pytest.mark.parametrize("words", [("--json", "-o", "text"), ("-o", "text", "--json"), ("-o", "json", "-o", "text")])
async def test_output_for_people_wins_over_json(listing: Any, typed: Any, words: tuple[str, ...]) -> None:
    ran = await typed("inbox", "show", "r1", *words)
    assert ran.status == 0
    assert not ran.out.startswith("{")


@pytest.mark.parametrize("at", range(4))
async def test_a_name_a_token_and_a_place_reach_the_hub_from_anywhere(
    listing: Any, typed: Any, at: int, tmp_path_factory: Any
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "client.json").write_text(json.dumps({"address": listing.address, "token": "x"}))
    given = (f"--data-dir={elsewhere}", "--token", listing.token, "--as", "ann")
    words = ["inbox", "claim", "r1"]
    ran = await typed(*words[:at], *given, *words[at:])
    assert ran.status == 0, ran.err
    _, _, metadata = listing.seen[-1]
    assert metadata["hubbub-as"] == "ann"


async def test_the_last_of_several_counts(listing: Any, typed: Any) -> None:
    ran = await typed("--data-dir", "/nowhere", "calls", "list", "--data-dir", str(listing.data_dir))
    assert ran.status == 0, ran.err


async def test_words_after_two_dashes_belong_to_the_command(listing: Any, typed: Any) -> None:
    ran = await typed("servers", "add", "x", "--", "program", "--json", "--as", "-o", "json")
    assert ran.status == 0, ran.err
    assert not ran.out.startswith("{")
    (request,) = listing.requests("AddServer")
    assert list(request.spec.stdio.args) == ["--json", "--as", "-o", "json"]


@pytest.mark.parametrize("value", ["x", "-1", "nan", "1e99"])
async def test_a_wrong_value_is_named_wherever_it_stands(listing: Any, typed: Any, value: str) -> None:
    for words in (("--connect-timeout", value, "calls", "list"), ("calls", "list", "--connect-timeout", value)):
        ran = await typed(*words)
        assert ran.status == 2
        assert "--connect-timeout" in ran.err
    assert not listing.seen


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--json inbox", True),
        ("inbox list --json", True),
        ("inbox list -o json", True),
        ("inbox list -ojson", True),
        ("inbox list --output=json --nonsense", True),
        ("inbox list -o text --json", False),
        ("inbox list -o yaml --json", True),
        ("servers add x -- program --json", False),
        ("inbox list", False),
    ],
)
def test_what_cannot_be_parsed_is_refused_as_json_if_it_asks_for_that(words: str, wanted: bool) -> None:
    assert wants_json(words.split()) is wanted


def commands(command: Any, parent: Any = None, name: str = "hubbub") -> Any:
    context = Context(command, info_name=name, parent=parent)
    yield context
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, context, name)


def test_an_option_of_a_command_wins_over_one_of_the_root_and_all_others_have_all_of_them() -> None:
    """Who adds one of the same name names it here, and in the documents."""
    own: dict[str, set[str]] = {}
    root = whole()
    ofroot = {name for each in root.params if each.expose_value for name in each.opts}
    for context in commands(root):
        params = context.command.get_params(context)
        shared = {name for each in params if is_from_root(each) for name in each.opts}
        taken = {name for each in params if not is_from_root(each) for name in each.opts}
        assert context.parent is None or shared == ofroot - taken, context.command_path
        if context.parent is not None and ofroot & taken:
            own[context.command_path] = ofroot & taken
    waiting = ("servers list", "servers add", "servers connect", "fleet drain")
    assert own == {**{f"hubbub {each}": {"--wait"} for each in waiting}, "hubbub approvals check": {"--as"}}


def test_each_help_page_says_once_where_these_options_are() -> None:
    for context in commands(whole()):
        page = context.get_help()
        assert page.count("hubbub --help") == (context.parent is not None), context.command_path
        assert ("--data-dir DIR" in page) == (context.parent is None), context.command_path


def test_the_options_can_be_completed_after_a_command(tmp_path: Path) -> None:
    root = whole()
    for context in commands(root):
        if context.command_path == "hubbub inbox show":
            found = {each.value for each in context.command.shell_complete(context, "--")}
            assert {"--json", "--data-dir", "--as", "--output"} <= found
            return
    pytest.fail("no `inbox show`")
