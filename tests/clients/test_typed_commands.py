"""Commands with arguments as people type them, and what they say to a person without a terminal."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2, catalog_pb2, common_pb2, inbox_pb2

from .test_arguments import SCHEMA, TOOL, offers


@pytest.mark.parametrize("kind", ["tool", "prompt"])
async def test_what_is_nearly_the_name_is_said_once(hub: Any, typed: Any, kind: str) -> None:
    entry = catalog_pb2.CatalogEntry(
        server="s", kind=catalog_pb2.CatalogKind.Value(f"CATALOG_KIND_{kind.upper()}"), object=b'{"name":"order"}'
    )
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(entries=[entry])
    ran = await typed("--data-dir", str(hub.data_dir), "catalog", "show", "s", "ordr", "--kind", kind)
    listing = f"hubbub --data-dir {hub.data_dir} catalog {kind}s --server s"
    assert ran.status == 1
    assert ran.err.startswith(
        f"error: s has no {kind} 'ordr'; `{listing}` lists them ({kind.upper()}_NOT_FOUND)\ndid you mean order?\nmore: "
    )
    assert ran.err.count("has no") == ran.err.count(listing) == 1


async def test_only_a_call_is_told_to_do_without_a_schema_that_is_not_known_yet(hub: Any, typed: Any) -> None:
    unknown = catalog_pb2.CatalogList(server="s", kind=catalog_pb2.CATALOG_KIND_TOOL)
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(lists=[unknown])
    for words, told in (("call", "s", "order", "name=Ada"), True), (("catalog", "show", "s", "order"), False):
        ran = await typed(*words)
        assert ran.status == 1
        assert "has not been fetched yet: is it connected? (SERVER_NOT_CONNECTED)" in ran.err
        assert ("until then, give the arguments as one JSON object" in ran.err) is told


async def test_a_file_of_nobody_is_said(hub: Any, typed: Any) -> None:
    offers(hub, TOOL)
    ran = await typed("call", "s", "order", "name=@~nobody-of-this-name/x")
    assert ran.status == 2
    assert "name: ~nobody-of-this-name/x cannot be read: there is no such home directory" in ran.err


async def test_a_form_needs_a_terminal_also_where_there_is_nothing_to_ask(hub: Any, typed: Any) -> None:
    offers(hub, {"name": "order"})
    ran = await typed("call", "s", "order", "-i")
    assert ran.status == 2
    assert "a form needs a terminal" in ran.err
    assert hub.requests("CallMethod") == []


async def test_a_prompt_that_lacks_arguments_is_shown_as_a_prompt(hub: Any, typed: Any) -> None:
    shape = {"name": "poem", "arguments": [{"name": "about", "required": True}, {"name": "long"}]}
    entry = catalog_pb2.CatalogEntry(
        server="s", kind=catalog_pb2.CATALOG_KIND_PROMPT, object=json.dumps(shape).encode()
    )
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(entries=[entry])
    ran = await typed("prompt", "s", "poem", "long=yes")
    assert ran.status == 2
    assert "poem also needs about; `hubbub catalog show s poem --kind prompt` shows them all" in ran.err


def asks(hub: Any, form: dict[str, Any]) -> None:
    """What the hub's only pending request asks."""
    pending = inbox_pb2.PendingRequest(
        id="r1",
        server="s",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        request=json.dumps(form).encode(),
    )
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=pending)
    hub.replies["AnswerPendingRequest"] = lambda _: inbox_pb2.AnswerPendingRequestResponse(pending_request=pending)


async def test_a_form_is_answered_by_one_json_object_too(hub: Any, typed: Any) -> None:
    asks(hub, {"requestedSchema": SCHEMA})
    assert (await typed("inbox", "answer", "r1", '{"name": "Ada", "count": 2}')).status == 0
    assert (await typed("inbox", "answer", "r1", "{}")).status == 0
    first, second = hub.requests("AnswerPendingRequest")
    assert (json.loads(first.accept.content), second.accept.content) == ({"name": "Ada", "count": 2}, b"{}")
    ran = await typed("inbox", "answer", "r1", "Ada")
    assert ran.status == 2
    assert "Ada is neither KEY=VALUE nor a JSON object" in ran.err


async def test_a_form_is_shown_with_what_each_field_takes_and_an_answer(hub: Any, typed: Any) -> None:
    asks(
        hub,
        {
            "message": "Lunch?",
            "requestedSchema": {
                "properties": {
                    "loud": {"type": "boolean", "description": "Whether to ring,\nor not."},
                    "sides": SCHEMA["properties"]["sides"],
                    "count": SCHEMA["properties"]["count"],
                },
                "required": ["count"],
            },
        },
    )
    ran = await typed("--data-dir", str(hub.data_dir), "--as", "ann", "inbox", "show", "r1")
    assert ran.status == 0, ran.err
    for words in ("• loud  yes | no\n    Whether to ring, or not.\n", "• sides  any of  salad | bread\n", "• count*  "):
        assert words in ran.out
    assert ran.out.endswith(f"\n  hubbub --data-dir {hub.data_dir} --as ann inbox answer r1 count=1\n")


async def test_a_question_cannot_look_like_a_line_of_the_hub(hub: Any, typed: Any) -> None:
    asks(hub, {"message": "Lunch?\n  answer with: rm"})
    asked = anyio.Event()

    async def watched(request: Any) -> Any:
        yield call_pb2.WatchCallsResponse(upsert=call_pb2.Call(id=request.filter.ids[0], pending_request_ids=["r1"]))
        yield call_pb2.WatchCallsResponse(synced=common_pb2.WatchSynced())
        await anyio.sleep_forever()

    async def inbox(_: Any) -> Any:
        asked.set()
        yield inbox_pb2.WatchPendingRequestsResponse(synced=common_pb2.WatchSynced())
        await anyio.sleep_forever()

    async def result(_: Any) -> Any:
        await asked.wait()
        return call_pb2.CallMethodResponse(call=call_pb2.Call(result=b"{}"))

    hub.streams |= {"WatchCalls": watched, "WatchPendingRequests": inbox}
    hub.replies["CallMethod"] = result
    ran = await typed("call", "s", "order", "{}")
    assert ran.status == 0, ran.err
    assert "(elicitation_form, r1): Lunch? answer with: rm\n  answer with: hubbub inbox answer r1 --accept" in ran.err


async def test_what_words_find_says_its_kind_unless_it_is_a_tool(hub: Any, typed: Any) -> None:
    entries = [
        catalog_pb2.CatalogEntry(server="s", kind=kind, object=b'{"name":"lunch"}')
        for kind in (catalog_pb2.CATALOG_KIND_TOOL, catalog_pb2.CATALOG_KIND_PROMPT)
    ]
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(entries=entries)
    found = await typed("catalog", "search", "lunch")
    assert [line.split() for line in found.out.splitlines()] == [
        ["server", "kind", "name"],
        ["s", "-", "lunch"],
        ["s", "prompt", "lunch"],
    ]


async def test_a_question_that_is_over_is_shown_without_a_way_to_answer(hub: Any, typed: Any) -> None:
    over = inbox_pb2.PendingRequest(id="r1", server="s", kind=1, state=2, request=b"{}")
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=over)
    ran = await typed("inbox", "show", "r1")
    assert ran.status == 0, ran.err
    assert "inbox answer" not in ran.out


@pytest.mark.parametrize(
    "words", [("call", "s", "order", "x"), ("prompt", "s", "poem", "x"), ("inbox", "answer", "r", "x")]
)
async def test_wrong_words_are_said_before_a_hub_is_looked_for(
    typed: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    ran = await typed("--data-dir", str(tmp_path / "nowhere"), *words)
    assert ran.status == 2
    assert "x is neither KEY=VALUE nor a JSON object" in ran.err


async def test_a_file_that_is_too_long_to_be_sent_is_not_read_whole(hub: Any, hubbub: Any, tmp_path: Path) -> None:
    offers(hub, TOOL)
    with (tmp_path / "long").open("wb") as file:
        file.truncate(4 * 1024 * 1024 + 1)
    ran = await hubbub("call", "s", "order", "count=1", f"name=@{tmp_path / 'long'}", json=False)
    assert ran.status == 2
    assert "has more than 4 MiB" in ran.err
    assert hub.requests("CallMethod") == []
