"""What was tried against the log-in by somebody who had not made it."""

import pytest

from hubbubd.config.sections.network import GrantSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.rpc.auth.grants import Grants

from .log_in import Browser, Program, entered, made
from .mcp_host import Stage

__all__ = ["entered", "made"]  # the fixtures


@pytest.mark.parametrize("line", ["\r\n", "\n", "\t", "\x00", " "])
async def test_no_line_break_in_a_redirect_is_taken_for_its_address_without_it(
    made: Stage, entered: Browser, line: str
) -> None:
    program = await Program(made, redirect_uri="http://127.0.0.1/Set-Cookie:a=b").register()
    for asked in (f"http://127.0.0.1:80/{line}Set-Cookie:a=b", f"{line}http://127.0.0.1:80/Set-Cookie:a=b"):
        shown = await entered.open(program.address(redirect_uri=asked))
        assert (shown.status_code, shown.headers.get("location")) == (400, None)
        wrong = await entered.open(program.address(redirect_uri=asked, response_type="token"))
        assert (wrong.status_code, wrong.headers.get("location")) == (400, None)


async def test_the_hub_sends_a_stranger_to_no_site_of_a_program_that_anybody_may_have_registered(
    made: Stage, entered: Browser
) -> None:
    program = await Program(made, redirect_uri="https://evil.example/cb").register()
    for params in ({"response_type": "token"}, {"code_challenge": None}, {"resource": "https://evil.example/mcp"}):
        shown = await Browser(made).open(program.address(**params))
        assert (shown.status_code, shown.headers.get("location")) == (400, None)
    told = await entered.open(program.address(response_type="token"))  # a person that the hub knows
    assert told.headers["location"].startswith("https://evil.example/cb?error=")


@pytest.mark.parametrize("verifier", ["a", "a" * 42, "a" * 129, f"{'a' * 43}!"])
async def test_a_verifier_that_could_be_guessed_is_refused(made: Stage, entered: Browser, verifier: str) -> None:
    program = await Program(made, verifier=verifier).register()
    refused = await program.exchange(await program.code(entered))
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")


async def test_tokens_that_are_none_are_not_tried_to_be_ended_without_limit(made: Stage) -> None:
    program = await Program(made).register()
    for at in range(500):
        tried = await program.post("revoke", token=f"hbt_{at:012x}_x")
        if tried.status_code == 429:
            break
        assert tried.status_code == 200
    else:
        raise AssertionError("nobody had to wait")


@pytest.mark.parametrize(
    ("left", "stands"),
    [
        (["*"], True),
        (["one", "shop-*"], True),
        (["shop-*", "o*"], True),
        (["shop-*"], False),
        (["one"], False),
        ([], False),
    ],
)
def test_a_host_is_out_once_the_person_with_a_certificate_has_lost_what_it_may(left: list[str], stands: bool) -> None:
    host = Principal(
        name="login:cert:bob/claude-code", grants=(Grant(Role.CALLER, ("one", "shop-*")),), credential="token x"
    )
    settings = [GrantSettings(who="cert:bob", roles=("caller",), servers=tuple(left))] if left else []
    grants = Grants(settings)
    assert grants.still_has(host) is stands
    assert grants.still_has(Principal(name="login:ada/claude-code", grants=host.grants, credential="token y"))
