"""Completion, log messages and watched resources: what a host asks for besides lists and calls."""

import anyio
import pytest

from hubbubd.core.filters import CallFilter
from hubbubd.downstream.protocol.messages import NotificationMessage
from hubbubd.errors import PeerError
from hubbubd.redaction import REDACTION
from hubbubd.runtime.calls import CallSpec

from ..runtime.peer import Outcome, Sent, never
from .conftest import NEW, OLD, Opened, Refused, lists, said, settle, until

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
WATCHED = {"resources": {"subscribe": True, "listChanged": True}, "logging": {}}
URI = "file:///a"
UPDATED = "notifications/resources/updated"
MESSAGE = "notifications/message"


def message(level: str) -> dict[str, str]:
    return {"level": level, "data": level}


async def test_a_completion_is_a_call_of_the_server_that_has_what_is_referred_to(place: Opened) -> None:
    async def complete(sent: Sent) -> Outcome:
        return {"completion": {"values": [sent.params["argument"]["value"] + "ris"]}, "sent": sent.params["ref"]}

    async with place(OLD, behaviour=complete, capabilities={"completions": {}}) as at:
        for host in (at.old(), at.new()):
            for ref in ({"type": "ref/prompt", "name": "p"}, {"type": "ref/resource", "uri": "x://{city}"}):
                argument = {"name": "city", "value": "pa"}
                result = await host.ask("completion/complete", ref=ref, argument=argument)
                assert (result["completion"]["values"], result["sent"]) == (["paris"], ref)
        assert [call.principal for call in at.hub.calls.select(CallFilter())] == ["ada"] * 4


@pytest.mark.parametrize("ref", [None, {}, {"type": "ref/prompt"}, {"type": "ref/other", "name": "p"}, "p"])
async def test_a_completion_of_nothing_is_refused(place: Opened, ref: object) -> None:
    async with place(OLD) as at:
        with pytest.raises(Refused) as refused:
            await at.new().ask("completion/complete", ref=ref, argument={})
        assert refused.value.code == -32602
        assert at.peer.sent == []


@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("initialize", OLD),
        ("ping", OLD),
        ("logging/setLevel", OLD),
        ("resources/subscribe", OLD),
        ("resources/unsubscribe", OLD),
        ("server/discover", NEW),
        ("subscriptions/listen", NEW),
        ("tools/other", ""),
    ],
)
async def test_a_method_of_another_revision_is_unknown(place: Opened, revision: str, method: str, where: str) -> None:
    async with place(OLD, capabilities=WATCHED) as at:
        under_way = at.host(revision).begin(method, level="info", uri=URI, notifications={})
        await settle()
        known = not under_way.done() or b"-32601" not in under_way.result()
        assert known == (revision == where)
        under_way.cancel()


# Levels


def told_levels(sent: list[Sent]) -> list[object]:
    return [each.params.get("level") for each in sent if each.method == "logging/setLevel"]


async def test_a_server_is_told_the_least_level_that_any_session_wants(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED, listing=lists()) as at:
        one, two = at.old(), at.old()
        assert await one.ask("logging/setLevel", level="error") == {}
        assert told_levels(at.peer.fetches) == ["error"]
        await two.ask("logging/setLevel", level="info")
        await one.ask("logging/setLevel", level="warning")
        assert told_levels(at.peer.fetches) == ["error", "info"]
        two.session.end()
        await settle()
        assert told_levels(at.peer.fetches) == ["error", "info", "warning"]


async def test_each_session_gets_the_messages_of_its_own_level(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED, listing=lists()) as at:
        strict, loose, quiet = at.old(), at.old(), at.old()
        at.peer.link.tell(MESSAGE, message("debug"))
        assert [len(said(host.stream)) for host in (strict, loose, quiet)] == [1, 1, 1]  # as the server does of itself
        await strict.ask("logging/setLevel", level="error")
        await loose.ask("logging/setLevel", level="debug")
        for level in ("debug", "info", "error"):
            at.peer.link.tell(MESSAGE, message(level))
        seen = [[each["params"]["level"] for each in said(host.stream)] for host in (strict, loose, quiet)]
        assert seen == [["error"], ["debug", "info", "error"], ["info", "error"]]


async def test_messages_of_a_call_go_to_its_host_alone_as_far_as_it_wants_them(place: Opened) -> None:
    go = anyio.Event()

    async def slow(sent: Sent) -> Outcome:
        for level in ("info", "error"):
            sent.link.tell(MESSAGE, message(level))
        await go.wait()
        return {}

    async with place(OLD, capabilities=WATCHED, listing=lists(), behaviour=slow) as at:
        mine, other = at.old(), at.old()
        await mine.ask("logging/setLevel", level="error")
        await other.ask("logging/setLevel", level="debug")
        under_way = mine.begin("tools/call", name="t")
        await until(lambda: at.peer.sent)
        go.set()
        await under_way
        assert [each["params"]["level"] for each in said(mine.outlet)] == ["error"]
        assert said(other.stream) == said(mine.stream) == []


async def test_a_level_that_is_none_is_refused_and_so_is_any_without_the_capability(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED) as at:
        for level in ("loud", None, 7):
            with pytest.raises(Refused) as refused:
                await at.old().ask("logging/setLevel", level=level)
            assert refused.value.code == -32602
    async with place(OLD, capabilities={}) as at:
        with pytest.raises(Refused) as refused:
            await at.old().ask("logging/setLevel", level="info")
        assert refused.value.code == -32601


async def test_a_server_without_log_messages_is_told_no_level(place: Opened) -> None:
    async with place(OLD, capabilities={}) as at:
        await at.new().ask("tools/call", name="t", _meta={LOG_LEVEL: "debug"})
        assert told_levels(at.peer.fetches) == []


@pytest.mark.parametrize(("level", "shown"), [("error", ["error"]), ("debug", ["info", "error"]), (None, []), (7, [])])
@pytest.mark.parametrize("protocol", [OLD, NEW])
async def test_a_request_gets_the_messages_of_the_level_that_it_asks_for(
    place: Opened, protocol: str, level: str | None, shown: list[str]
) -> None:
    async def talk(sent: Sent) -> Outcome:
        for each in ("info", "error"):
            sent.link.tell(MESSAGE, message(each))
        return {"resultType": "complete"}

    async with place(protocol, capabilities=WATCHED, listing=lists(), behaviour=talk) as at:
        host = at.new()
        meta = {"_meta": {LOG_LEVEL: level}} if level else {}
        await host.ask("tools/call", name="t", **meta)
        assert [each["params"]["level"] for each in said(host.outlet)] == shown
        asked = isinstance(level, str)
        assert told_levels(at.peer.fetches) == ([level] if asked and protocol == OLD else [])
        assert at.peer.sent[0].params.get("_meta", {}).get(LOG_LEVEL) == level


async def test_the_level_of_sessions_goes_to_a_stateless_server_with_each_request(place: Opened) -> None:
    async with place(NEW, capabilities=WATCHED) as at:
        host = at.old()
        await host.ask("logging/setLevel", level="notice")
        assert at.peer.link.log_level == "notice"
        assert told_levels(at.peer.fetches) == []


# Resources


async def test_one_subscription_at_the_server_serves_all_hosts_and_ends_with_the_last(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED) as at:
        one, two, other = at.old(), at.old(), at.old()
        for host in (one, two):
            assert await host.ask("resources/subscribe", uri=URI) == {}
        at.peer.link.tell(UPDATED, {"uri": URI})
        at.peer.link.tell(UPDATED, {"uri": f"{URI}/part"})
        at.peer.link.tell(UPDATED, {"uri": "file:///b"})
        for host in (one, two):
            assert [each["params"] for each in said(host.stream)] == [{"uri": URI}, {"uri": f"{URI}/part"}]
        assert said(other.stream) == []
        assert await one.ask("resources/unsubscribe", uri=URI) == {}
        await settle()
        at.peer.link.tell(UPDATED, {"uri": URI})
        assert (said(one.stream), len(said(two.stream))) == ([], 1)
        assert methods(at.peer.sent) == ["resources/subscribe"]
        two.session.end()
        await until(lambda: methods(at.peer.sent) == ["resources/subscribe", "resources/unsubscribe"])


def methods(sent: list[Sent]) -> list[str]:
    return [each.method for each in sent]


async def test_a_resource_may_have_changed_while_the_server_was_away(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED) as at:
        host = at.old()
        await host.ask("resources/subscribe", uri=URI)
        at.peer.link.lose()
        await until(lambda: len(at.peer.links) == 2)
        await settle(2)
        assert [each["params"] for each in said(host.stream, UPDATED)] == [{"uri": URI}]


async def test_a_server_that_refuses_a_subscription_is_heard(place: Opened) -> None:
    async def refuse(sent: Sent) -> Outcome:
        raise PeerError(-32002, "no such resource", {"uri": URI})

    async with place(OLD, capabilities=WATCHED, behaviour=refuse) as at:
        host = at.old()
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                await host.ask("resources/subscribe", uri=URI)
            assert (refused.value.code, refused.value.data) == (-32002, {"uri": URI})


async def test_a_server_without_subscriptions_has_no_such_method(place: Opened) -> None:
    async with place(OLD, capabilities={"resources": {}}) as at:
        with pytest.raises(Refused) as refused:
            await at.old().ask("resources/subscribe", uri=URI)
        assert refused.value.code == -32601


async def test_a_session_watches_a_hundred_resources_and_no_more(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED) as at:
        host = at.old()
        for number in range(100):
            await host.ask("resources/subscribe", uri=f"{URI}{number}")
        with pytest.raises(Refused) as refused:
            await host.ask("resources/subscribe", uri=URI)
        assert refused.value.code == -32602
        await host.ask("resources/unsubscribe", uri=f"{URI}0")
        await host.ask("resources/subscribe", uri=URI)


async def test_a_session_watches_uris_of_sixteen_kibibytes_and_no_more(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED) as at:
        host = at.old()
        for number in range(2):
            await host.ask("resources/subscribe", uri=f"{number:08192}")
        with pytest.raises(Refused) as refused:
            await host.ask("resources/subscribe", uri=URI)
        assert refused.value.code == -32602


async def test_a_session_that_subscribes_to_a_stateless_server_is_told_too(place: Opened) -> None:
    async with place(NEW, capabilities=WATCHED) as at:
        host = at.old()
        await host.ask("resources/subscribe", uri=URI)
        at.peer.link.tell(UPDATED, {"uri": URI})
        assert [each["params"] for each in said(host.stream)] == [{"uri": URI}]


# Cancelling


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_a_server_hears_at_once_that_a_request_is_cancelled_and_there_is_no_response(
    place: Opened, revision: str
) -> None:
    async with place(OLD, behaviour=never) as at:
        host = at.host(revision)
        under_way = host.begin("tools/call", name="t")
        await until(lambda: at.peer.sent)
        began = anyio.current_time()
        if revision == OLD:
            host.session.receive(NotificationMessage("notifications/cancelled", {"requestId": 1}))
        else:
            under_way.cancel()  # as the transport does when its stream is closed
        await until(lambda: at.peer.sent[0].cancelled)
        assert anyio.current_time() - began < 0.2
        assert under_way.cancelled()


async def test_progress_goes_up_and_ends_before_the_result(place: Opened) -> None:
    async def walk(sent: Sent) -> Outcome:
        for value in (1, 3, 2, 3, 4.5):
            sent.progress(value, 5, f"at {value}")
        return {}

    async with place(OLD, behaviour=walk) as at:
        for host in (at.old(), at.new()):
            await host.ask("tools/call", name="t", _meta={"progressToken": "mine"})
            told = [each["params"] for each in said(host.outlet)]
            assert [each["progress"] for each in told] == [1, 3, 4.5]
            assert {each["progressToken"] for each in told} == {"mine"}
            at.peer.sent[-1].progress(9)
            assert said(host.outlet) == []
            await host.ask("tools/call", name="t")
            assert said(host.outlet) == []


async def test_a_call_of_others_tells_hosts_nothing(place: Opened) -> None:
    async def talk(sent: Sent) -> Outcome:
        sent.link.tell(MESSAGE, message("error"))
        return {}

    async with place(OLD, capabilities=WATCHED, behaviour=talk) as at:
        host = at.old()
        await at.hub.calls.call(CallSpec(server="one", method="tools/call", params=b'{"name":"t"}'), "bob")
        assert said(host.stream) == []


@pytest.mark.parametrize("token", [[], {}, "x" * 257, 10**300])
async def test_a_progress_token_that_is_none_is_refused(place: Opened, token: object) -> None:
    async with place(OLD) as at:
        with pytest.raises(Refused) as refused:
            await at.new().ask("tools/call", name="t", _meta={"progressToken": token})
        assert refused.value.code == -32602
        assert at.peer.sent == []


async def test_a_subscription_that_is_given_up_before_the_server_accepts_it_is_an_error(place: Opened) -> None:
    async with place(OLD, capabilities=WATCHED, behaviour=never) as at:
        host = at.old()
        under_way = host.begin("resources/subscribe", uri=URI)
        await until(lambda: at.peer.sent)
        await host.ask("resources/unsubscribe", uri=URI)
        assert b'"code":-32000' in await under_way
        again = host.begin("resources/subscribe", uri=URI)
        await until(lambda: len(at.peer.sent) == 2)
        host.session.receive(NotificationMessage("notifications/cancelled", {"requestId": 3}))
        await until(lambda: again.done())
        assert again.cancelled()
        at.peer.link.tell(UPDATED, {"uri": URI})
        assert said(host.stream) == []


async def test_known_secrets_are_in_no_log_message_and_no_progress(place: Opened) -> None:
    secret = "a-token-of-some-length"
    REDACTION.set_secrets("one", [secret])
    try:
        async with place(OLD, capabilities=WATCHED | {"tools": {}}) as at:
            host = at.old()
            at.peer.link.tell(MESSAGE, {"level": "error", "data": {"deep": [f"it is {secret}"]}, "logger": secret})
            await settle(1)
            (told,) = said(host.stream, MESSAGE)
            assert told["params"] == {"level": "error", "data": {"deep": ["it is [redacted]"]}, "logger": "[redacted]"}
    finally:
        REDACTION.set_secrets("one", ())
