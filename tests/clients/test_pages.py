"""A page that a server wants visited: what a person sees of it before agreeing (MCP client/elicitation, url mode)."""

import pytest

from hubbub_frontend.display.records import describe_page


def test_the_whole_url_is_shown_and_its_host_by_itself() -> None:
    assert (
        describe_page("https://user@example.com:8443/a?b=c") == "https://user@example.com:8443/a?b=c (on example.com)"
    )


@pytest.mark.parametrize("host", ["xn--pple-43d.com", "login.xn--pple-43d.com", "\u0430pple.com"])
def test_a_host_that_may_imitate_another_is_warned_of(host: str) -> None:
    assert "beware" in describe_page(f"https://{host}/login")


def test_what_hides_its_host_behind_another_name_shows_the_real_one() -> None:
    assert describe_page("https://bank.example@evil.example/").endswith("(on evil.example)")


def test_what_is_no_url_says_so() -> None:
    assert describe_page("https://[broken") == "https://[broken (not a url)"
