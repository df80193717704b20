"""The pages of the log-in: what a person reads, and that words of others stay words."""

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.rpc.login import pages
from hubbubd.rpc.login.pages import ConsentView, EnterView, ProblemView

VIEW = ConsentView(
    client_name="Claude",
    client_id="https://claude.example/client.json",
    client_host="claude.example",
    redirect_host="claude.example",
    redirect_is_loopback=False,
    redirect_origin="https://claude.example",
    endpoint="/mcp",
    servers=("demo", "git"),
    person="ada",
    hidden_fields={"request": "signed"},
)
PROBLEMS = [each for name, each in vars(pages).items() if name.isupper() and isinstance(each, ProblemView)]
OTHERS = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(["<b>", "</p>", "<script>", '"', "'", ">", "&lt;", "&#x3c;b>", " x=y"])).map("".join),
)


class Read(HTMLParser):
    """A page as a browser reads it: its elements, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page.decode())
        self.close()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, tag: str, **attrs: str) -> list[dict[str, str | None]]:
        """The attributes of the elements of a kind."""
        return [found for name, found in self.elements if name == tag and attrs.items() <= found.items()]


def consent(**changes: Any) -> Read:
    return Read(pages.consent_page(replace(VIEW, **changes)))


def test_the_question_says_who_asks_where_the_answer_goes_what_it_gets_and_as_whom() -> None:
    page = consent()
    for words in ("Claude", "claude.example", "default profile", "demo", "git", "ada", "Any program can take"):
        assert words in page.text
    assert page.all("q"), "the name is quoted"
    assert page.all("form") == [{"method": "post", "action": "/oauth/authorize"}]
    assert page.all("input", type="hidden") == [{"type": "hidden", "name": "request", "value": "signed"}]


def test_thirty_days_are_chosen_and_each_choice_has_a_label() -> None:
    page = consent()
    choices = page.all("input", type="radio")
    assert [(each["value"], "checked" in each) for each in choices] == [("1", False), ("30", True), ("90", False)]
    assert len(page.all("label")) == 3
    assert page.all("legend")


def test_no_button_has_the_focus_and_enter_in_a_field_presses_none() -> None:
    page = consent()
    buttons = page.all("button")
    assert not [each for _, each in page.elements if "autofocus" in each]
    assert buttons[0]["formmethod"] == "dialog"
    assert (buttons[0]["tabindex"], buttons[0]["aria-hidden"]) == ("-1", "true")
    assert [each["value"] for each in buttons[1:]] == ["deny", "allow"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"redirect_is_loopback": True, "redirect_host": "127.0.0.1"}, "A program on this computer"),
        ({"endpoint": "/mcp/p/work"}, "The profile work"),
        ({"endpoint": "/mcp/s/git", "servers": ("git",)}, "One server"),
        ({"denied_servers": ("bank",)}, "1 more are there that you may not call"),
        ({"ends_at": 1_800_000_000.0}, "2027-01-15 08:00 UTC"),
        ({"client_name": " "}, "(no name)"),
        ({"client_name": "Cl\N{RIGHT-TO-LEFT OVERRIDE}aude\N{ZERO WIDTH SPACE}"}, "Cl[U+202E]aude[U+200B]"),
        ({"client_name": "a\nb\tc"}, "a b c"),
        ({"client_name": "a" * 200}, "a" * 79 + "…"),
    ],
)
def test_what_differs_is_said(changes: dict[str, Any], says: str) -> None:
    assert says in consent(**changes).text


def test_a_program_that_is_described_nowhere_has_no_place_of_description() -> None:
    assert "Described at" in consent().text
    assert "Described at" not in consent(client_host=None).text


def test_long_lists_are_folded_and_have_an_end() -> None:
    assert not consent(servers=tuple("abcdefgh")).all("details")
    page = consent(servers=tuple(f"server-{number}" for number in range(5000)))
    assert len(page.all("details")) == 1
    assert "5000 servers" in page.text
    assert len(page.all("li")) == 501
    assert "and 4500 more" in page.text


@given(OTHERS, OTHERS, OTHERS, OTHERS, OTHERS)
def test_words_of_others_never_become_elements(name: str, host: str, server: str, profile: str, person: str) -> None:
    changes = {"client_name": name, "client_host": host or None, "redirect_host": host, "servers": (server,)}
    page = consent(
        **changes,
        person=person,
        denied_servers=(server,),
        endpoint=f"/mcp/p/x{profile.replace('/', '')}x",
        hidden_fields={"request": name},
    )
    plain = consent(client_host="x" if host else None, denied_servers=("x",), endpoint="/mcp/p/x", servers=("x",))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert [each["value"] for each in page.all("input", type="hidden")] == [name]


@given(OTHERS, OTHERS, OTHERS)
def test_so_it_is_on_the_other_pages(first: str, second: str, third: str) -> None:
    for page, plain in (
        (
            EnterView(next=first, code=second, problem=third),
            EnterView(next=first and "x", code="x", problem=third and "x"),
        ),
    ):
        tags = [[tag for tag, _ in Read(pages.enter_page(each)).elements] for each in (page, plain)]
        assert tags[0] == tags[1]
    read = Read(pages.problem_page(ProblemView(first, second, third)))
    assert [tag for tag, _ in read.elements] == [tag for tag, _ in Read(pages.problem_page(PROBLEMS[0])).elements]


@pytest.mark.parametrize("view", PROBLEMS, ids=lambda view: view.title)
def test_what_ends_here_says_what_to_do_next(view: ProblemView) -> None:
    page = Read(pages.problem_page(view))
    assert page.all("h1")
    assert view.explanation in page.text
    assert view.next_step in page.text


def test_the_field_for_a_code_has_a_label_help_and_the_focus() -> None:
    page = Read(pages.enter_page(EnterView(next="/oauth/authorize?a=b")))
    (field,) = page.all("input", name="code")
    assert page.all("label", **{"for": "code"})
    assert (field["id"], field["aria-describedby"]) == ("code", "help")
    assert "autofocus" in field
    assert page.all("a", href="/oauth/authorize?a=b")


def test_a_code_that_was_refused_is_marked_and_announced() -> None:
    page = Read(pages.enter_page(EnterView(code="ABCD-EFGH", problem="The hub knows no such code.")))
    (field,) = page.all("input", name="code")
    assert (field["aria-invalid"], field["aria-describedby"], field["value"]) == ("true", "problem help", "ABCD-EFGH")
    assert page.all("p", role="alert")


def test_the_link_of_a_code_asks_before_it_is_used() -> None:
    page = Read(pages.enter_page(EnterView(code="ABCD-EFGH")))
    assert "Go on only if you have just asked for it yourself" in page.text
    assert not [each for _, each in page.elements if "autofocus" in each]


@pytest.mark.parametrize(
    "page", [pages.consent_page(VIEW), pages.enter_page(EnterView()), pages.problem_page(PROBLEMS[0])]
)
def test_a_page_needs_no_script_and_says_its_language(page: bytes) -> None:
    read = Read(page)
    assert not read.all("script")
    assert read.all("html", lang="en")
    assert read.all("title")
    assert len(read.all("main")) == 1
    assert len(read.all("h1")) == 1
    assert not [each for _, each in read.elements if any(name.startswith("on") for name in each)]


@pytest.mark.parametrize(
    ("form_to", "allowed"),
    [
        ("", "form-action 'self';"),
        ("https://claude.example", "form-action 'self' https://claude.example;"),
        ("http://127.0.0.1:33418", "form-action 'self' http://127.0.0.1:33418;"),
        ("http://[::1]:33418", "form-action 'self' http:;"),
        ("cursor:", "form-action 'self' cursor:;"),
        ("https://a.example; script-src *", "form-action 'self';"),
        ("https://a.example *", "form-action 'self';"),
        ("*", "form-action 'self';"),
    ],
)
def test_a_form_leads_to_the_hub_and_where_the_answer_goes(form_to: str, allowed: str) -> None:
    policy = pages.security_policy(form_to)
    assert allowed in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("body", "fields"),
    [(b"a=b&c=", {"a": "b", "c": ""}), (b"next=%2Foauth%3Fx%3Dy&code=AB+CD", {"next": "/oauth?x=y", "code": "AB CD"})],
)
def test_a_form_is_read(body: bytes, fields: dict[str, str]) -> None:
    assert pages.read_form(body) == fields


@pytest.mark.parametrize("body", [b"a", b"a=1&a=2", b"a=%ff", "a=é".encode(), b"&".join([b"a=b"] * 30), b"{}"])
def test_what_is_no_form_of_these_pages_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        pages.read_form(body)
