"""What a server says before it is connected, and beside its answers, holds up nobody however long it is.

What is counted is turns: how often somebody else has theirs meanwhile.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types import methods as tables
from pydantic import ValidationError

from hubbubd.config import ServerConfig
from hubbubd.errors import PeerError, UpstreamError
from hubbubd.upstream.ports import Era, Hello
from hubbubd.upstream.protocol import negotiation as negotiation
from hubbubd.upstream.protocol import schema_check
from hubbubd.upstream.protocol.negotiation import MAX_VERSIONS, Negotiation
from hubbubd.upstream.protocol.results import MAX_META, check_notification

from .test_work_per_byte import steps

SIZES = (20_000, 40_000)
SHAKEN = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
FOUND = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}


async def negotiated(raw: dict[str, Any] | PeerError, era: Era) -> Hello:
    async def ask(*_: object) -> dict[str, Any]:
        if isinstance(raw, PeerError):
            raise raw
        return raw

    protocol = "2026-07-28" if era is Era.STATELESS else "2025-11-25"
    config = ServerConfig(name="one", command="/bin/true", protocol=protocol)
    return (await Negotiation(config=config, send=ask, last_era=None).run())[0]


async def turns(raw: dict[str, Any], era: Era) -> int:
    count = itertools.count()

    async def wait_for_turn() -> None:
        next(count)

    with patch.object(negotiation, "wait_for_turn", wait_for_turn), suppress(UpstreamError):
        await negotiated(raw, era)
    return next(count)


@pytest.mark.parametrize(("character", "kept"), [("x", 65_536), ("\u00e9", 32_768), ("\u20ac", 21_845)])
async def test_instructions_are_cut_to_their_bound_in_bytes_between_characters(character: str, kept: int) -> None:
    hello = await negotiated({**SHAKEN, "instructions": character * 70_000}, Era.HANDSHAKE)
    assert hello.instructions == character * kept


LONG = {
    "icons": lambda n: {"serverInfo": {"name": "x", "version": "1", "icons": [{"src": "https://x.example"}] * n}},
    "what no schema names": lambda n: {"x": [[] for _ in range(n)]},
    "experiments": lambda n: {"capabilities": {"experimental": {f"k{at}": {} for at in range(n)}}},
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("era", Era)
async def test_others_have_their_turn_while_a_long_introduction_is_checked(name: str, era: Era) -> None:
    small, large = [await turns({**(SHAKEN if era is Era.HANDSHAKE else FOUND), **LONG[name](n)}, era) for n in SIZES]
    assert large >= 1.8 * small
    assert large >= SIZES[1] / (4 * schema_check.PIECE)


async def test_others_have_their_turn_while_the_revisions_of_a_server_are_checked() -> None:
    small, large = [await turns({**FOUND, "supportedVersions": ["2026-07-28"] * n}, Era.STATELESS) for n in SIZES]
    assert large >= 1.8 * small


async def test_of_the_revisions_in_a_refusal_the_first_ones_are_looked_at() -> None:
    refusals = [
        PeerError(UNSUPPORTED_PROTOCOL_VERSION, "no", {"supported": ["1"] * MAX_VERSIONS + [7] * n, "requested": "2"})
        for n in (0, 100_000)
    ]

    async def told(refusal: PeerError) -> object:
        with pytest.raises(UpstreamError) as refused:
            await negotiated(refusal, Era.HANDSHAKE)
        return refused.value.fault.details["supported"]

    assert [await told(refusal) for refusal in refusals] == [["1"] * MAX_VERSIONS] * 2


CHECKED = [each for each in sorted(tables.SERVER_NOTIFICATIONS) if "acknowledged" not in each[0]]
"""The receipt of a subscription is read by itself, member by member."""


@pytest.mark.parametrize(("method", "version"), CHECKED)
def test_a_notification_is_checked_at_the_same_cost_however_long_it_is(method: str, version: str) -> None:
    """Every name that a schema has, as the longest and worst list."""
    names = {name for model in _models() for field, info in model.model_fields.items() for name in (field, info.alias)}
    names -= {None, "_meta", "meta"}
    for worst in ([{}], [7], [[]]):
        small, large = ({"level": "info", **dict.fromkeys(names, worst * n)} for n in (10, 10_000))
        assert _mistakes(method, version, small) == _mistakes(method, version, large)
        few, many = (steps(lambda given=given: _checked(version, method, given)) for given in (small, large))
        assert many <= few + 50


def test_a_notification_with_ever_so_many_members_in_its_meta_is_malformed() -> None:
    for n in (MAX_META, MAX_META + 1):
        params = {"_meta": {f"k{at}": at for at in range(n)}}
        if n <= MAX_META:
            check_notification("2025-11-25", "notifications/tools/list_changed", params)
        else:
            with pytest.raises(schema_check.Mismatch, match="more than 1000 members"):
                check_notification("2025-11-25", "notifications/tools/list_changed", params)


def _models() -> Iterator[Any]:
    for shape in tables.SERVER_NOTIFICATIONS.values():
        params: Any = shape.model_fields["params"].annotation
        yield from (each for each in getattr(params, "__args__", (params,)) if hasattr(each, "model_fields"))


def _mistakes(method: str, version: str, params: dict[str, Any]) -> int:
    try:
        tables.parse_server_notification(method, version, params)
    except ValidationError as exc:
        return exc.error_count()
    return 0


def _checked(version: str, method: str, params: dict[str, Any]) -> None:
    with suppress(schema_check.Mismatch):
        check_notification(version, method, params)
