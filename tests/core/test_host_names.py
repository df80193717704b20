"""Names of tools and prompts as hosts see them."""

import re
from collections import defaultdict
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.hosts.host_names import DIGITS, HostNames, NameRule, Origin, with_origin

TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What the APIs of models take for a name."""
OF_HOST = "mcp__hubbub__"
"""What Claude Code puts before each."""
DIGITED = re.compile(r"_[0-9a-f]{6,}$")

# Few letters and much that is cleaned to the same, so that names meet.
servers = st.from_regex(r"[ab][ab._-]{0,6}", fullmatch=True) | st.from_regex(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True
)
names = (
    st.text(alphabet="ab._-/é", min_size=1, max_size=5)
    | st.text(min_size=1, max_size=128)
    | st.integers(1, 128).map(lambda length: "a" * length)
    | st.from_regex(r"[ab]_[0-9a-f]{6,8}", fullmatch=True)
)
pairs = st.tuples(servers, names)
bare = st.lists(servers | st.sampled_from(["*", "a*"]), max_size=3).map(tuple)
rules = st.builds(NameRule, max_chars=st.integers(32, 50), prefixed=st.booleans()) | st.builds(
    NameRule, max_chars=st.integers(32, 50), bare=bare
)


def sound(given: list[Origin], rule: NameRule) -> HostNames:
    """The names of these pairs, each of which a host can use and brings back its pair."""
    made = rule.make_names(given)
    assert set(made.names_by_origin) == set(given)
    assert {name: origin for origin, name in made.names_by_origin.items()} == dict(made.origins_by_name)
    assert len(made.origins_by_name) == len(made.names_by_origin)
    for name in made.origins_by_name:
        assert len(name) <= rule.max_chars
        assert TAKEN.fullmatch(OF_HOST + name)
    return made


@given(st.lists(pairs, unique=True), rules)
def test_names_are_unique_and_fit_everywhere_and_lead_back(given: list[Origin], rule: NameRule) -> None:
    sound(given, rule)


@given(st.lists(pairs, unique=True), servers)
def test_a_servers_names_are_the_same_whatever_other_servers_there_are(given: list[Origin], other: str) -> None:
    rule = NameRule()
    together = rule.make_names([*given, *((other, name) for _, name in given)])
    for server in {server for server, _ in given} - {other}:
        own = [origin for origin in given if origin[0] == server]
        assert rule.make_names(own).names_by_origin == {origin: together.names_by_origin[origin] for origin in own}


@given(st.lists(pairs, unique=True).flatmap(lambda given: st.tuples(st.just(given), st.permutations(given))), rules)
def test_the_order_of_lists_changes_no_name(given: tuple[list[Origin], list[Origin]], rule: NameRule) -> None:
    given_so, otherwise = given
    assert rule.make_names(given_so) == rule.make_names(otherwise)


@pytest.mark.parametrize("seed", range(3))
def test_of_ten_thousand_hostile_pairs_each_has_a_name_of_its_own(seed: int) -> None:
    random = Random(seed)
    parts = ["a", "b", ".", "_", "__", "-", "é", " ", "/", "_0a1b2c", "x" * 60]

    def hostile() -> str:
        return "".join(random.choices(parts, k=random.randint(1, 6)))[:128]

    labels = ["a", "a.b", "a_b", "a__b", "a-", "a_", "a." + "b" * 62, "a_" + "b" * 62, "a.b_0a1b2c", "a_b_0a1b2c"]
    given = list(dict.fromkeys((random.choice(labels), hostile()) for _ in range(9_000)))
    given += [("a", f"{'y' * 100}{number}") for number in range(10_000 - len(given))]
    rule = NameRule()
    made = sound(given, rule)
    by_server: dict[str, list[Origin]] = defaultdict(list)
    for origin in given:
        by_server[origin[0]].append(origin)
    for own in by_server.values():
        assert rule.make_names(own).names_by_origin == {origin: made.names_by_origin[origin] for origin in own}


@given(st.lists(pairs, unique=True), bare)
def test_bare_servers_change_no_name_of_the_others(given: list[Origin], bare: tuple[str, ...]) -> None:
    rule, usual = NameRule(bare=bare), NameRule().make_names(given).names_by_origin
    made = rule.make_names(given).names_by_origin
    for (server, name), shown in made.items():
        assert rule.is_bare(server) or shown == usual[server, name]
        assert shown == name or "__" in shown


@pytest.mark.parametrize(
    ("server", "name", "shown"),
    [
        ("clock", "get-time", "get-time"),
        ("clock", "list_decade", "list_decade"),
        ("clock", "get.time", "clock__get_time"),
        ("clock", "files__read", "clock__files__read"),
        ("clock", "hubbub_result", "clock__hubbub_result"),
        ("clock", "x" * 51, "clock__"),
        ("watch", "get-time", "watch__get-time"),
        ("files", "get-time", "files__get-time"),
    ],
)
def test_a_bare_server_has_its_own_names_where_hosts_can_take_them_and_no_other_has_them(
    server: str, name: str, shown: str
) -> None:
    rule = NameRule(bare=("clock", "watch"))
    names = rule.make_names([("files", "get-time"), ("watch", "get-time"), ("clock", "get-time"), (server, name)])
    assert names.names_by_origin[server, name].startswith(shown)


@pytest.mark.parametrize(
    ("server", "name", "shown"),
    [
        ("github", "create_issue", "github__create_issue"),
        ("my-files", "read-2", "my-files__read-2"),
        ("notion", "search.pages", "notion__search_pages"),
        ("web", "größe", "web__gr__e"),
        ("x" * 32, "y" * 16, f"{'x' * 32}__{'y' * 16}"),
        ("web", "facade", "web__facade"),
    ],
)
def test_a_name_is_as_its_server_has_it_where_hosts_can_take_that(server: str, name: str, shown: str) -> None:
    assert NameRule().make_names([(server, name)]).names_by_origin == {(server, name): shown}


@pytest.mark.parametrize(
    ("server", "name", "begins"),
    [
        ("github.com", "search", "github_com_"),
        ("a__b", "c", "a_b_"),
        ("a_", "b", "a_"),
        ("a" * 33, "b", "a" * 25 + "_"),
        ("web", "x" * 128, "web__xxxx"),
        ("web", "list_decade", "web__list_decade_"),
    ],
)
def test_what_was_cut_or_could_be_taken_for_another_has_digits(server: str, name: str, begins: str) -> None:
    [shown] = NameRule().make_names([(server, name)]).origins_by_name
    assert shown.startswith(begins)
    prefix, _, rest = shown.partition("__")
    assert DIGITED.search(prefix) or DIGITED.search(rest)
    assert len(shown) <= 50


def test_of_names_of_one_server_that_would_be_equal_the_one_that_is_called_so_keeps_it() -> None:
    shown = NameRule().make_names([("a", "x.y"), ("a", "x_y"), ("a", "x/y")]).names_by_origin
    assert shown["a", "x_y"] == "a__x_y"
    assert all(re.fullmatch(r"a__x_y_[0-9a-f]{6}", shown["a", name]) for name in ("x.y", "x/y"))
    shown = NameRule().make_names([("a", "x.y"), ("a", "x/y")]).names_by_origin
    assert all(re.fullmatch(r"a__x_y_[0-9a-f]{6}", each) for each in shown.values())


def test_names_whose_digits_are_equal_get_more_of_them() -> None:
    many = [("a", f"{'y' * 100}{number}") for number in range(20_000)]
    made = sound(many, NameRule())
    assert {len(name.rpartition("_")[2]) for name in made.origins_by_name} == {DIGITS, DIGITS + 2}


def test_an_alias_takes_the_place_of_the_servers_name() -> None:
    rule = NameRule(alias={"my-very-long-server-name-that-nobody-reads": "long", "b.c": "bc"})
    shown = rule.make_names([("my-very-long-server-name-that-nobody-reads", "x"), ("b.c", "x")]).names_by_origin
    assert sorted(shown.values()) == ["bc__x", "long__x"]


def test_a_server_keeps_its_names_where_an_alias_equals_its_own_name() -> None:
    made = NameRule(alias={"a": "b"}).make_names([("a", "x"), ("b", "x"), ("a", "y")])
    assert made.names_by_origin["b", "x"] == "b__x"
    assert made.names_by_origin["a", "y"] == "b__y"
    assert re.fullmatch(r"b__x_[0-9a-f]{6}", made.names_by_origin["a", "x"])
    assert [str(each) for each in made.conflicts] == ["'x' of a and 'x' of b would both be called 'b__x'"]


def test_without_prefixes_two_tools_of_one_name_are_a_conflict_that_names_both() -> None:
    made = sound([("a", "search"), ("b", "search"), ("b", "fetch")], NameRule(prefixed=False))
    assert made.names_by_origin["b", "fetch"] == "fetch"
    assert all(re.fullmatch(r"search_[0-9a-f]{6}", made.names_by_origin[each, "search"]) for each in ("a", "b"))
    assert [str(each) for each in made.conflicts] == ["'search' of a and 'search' of b would both be called 'search'"]


def test_without_prefixes_nothing_is_called_as_a_tool_of_the_hub() -> None:
    [shown] = NameRule(prefixed=False).make_names([("a", "hubbub_result")]).origins_by_name
    assert re.fullmatch(r"hubbub_result_[0-9a-f]{6}", shown)


def test_with_prefixes_servers_do_not_conflict() -> None:
    assert NameRule().make_names([("a", "x"), ("b", "x"), ("a", "y.z"), ("a", "y_z")]).conflicts == ()


def test_an_entry_says_where_it_comes_from_and_keeps_all_else() -> None:
    entry = {"name": "x.y", "inputSchema": {"type": "object"}, "_meta": {"k": 1}, "unknown": [1.5]}
    assert with_origin(entry, "a", "a__x_y") == {
        **entry,
        "name": "a__x_y",
        "title": "x.y",
        "_meta": {"k": 1, "hubbub/server": "a", "hubbub/name": "x.y"},
    }
    assert entry["name"] == "x.y"


@pytest.mark.parametrize("titled", [{"title": "X"}, {"annotations": {"title": "X"}}])
def test_a_title_stays(titled: dict[str, Any]) -> None:
    shown = with_origin({"name": "x", **titled}, "a", "a__x")
    assert {name: value for name, value in shown.items() if name in ("title", "annotations")} == titled
