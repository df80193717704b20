"""Search over descriptions of tools."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.hosts.tool_search import build_index_in_steps, search_in_steps, split_words
from hubbubd.timing.turns import run_at_once

TOOLS = {
    "github__create_issue": ("create issue", "Opens a new issue in a repository."),
    "github__list_issues": ("list issues", "Lists the issues of a repository."),
    "mail__send": ("send", "Sends a message to somebody."),
    "files__readFile": ("readFile", "Returns what a file has."),
}


def best(texts: Mapping[str, Sequence[str]], query: str, most: int) -> list[str]:
    return run_at_once(search_in_steps([run_at_once(build_index_in_steps(texts))], query, most))


def test_names_are_taken_apart_into_words() -> None:
    assert split_words("getUser_by-id2 HTTPServer") == ["get", "user", "by", "id", "2", "http", "server"]
    assert split_words("Straße") == ["straße"]


def test_the_best_fit_comes_first() -> None:
    assert best(TOOLS, "open an issue in a repository", 10)[0] == "github__create_issue"
    assert best(TOOLS, "send message", 10) == ["mail__send"]
    assert best(TOOLS, "read a file", 10)[0] == "files__readFile"


def test_what_has_none_of_the_words_is_not_found() -> None:
    assert best(TOOLS, "weather", 10) == []
    assert best({}, "weather", 10) == []


def test_a_name_counts_for_more_than_the_same_word_in_a_description() -> None:
    texts = {"a": ("other", "translate this text"), "b": ("translate", "other this text")}
    assert best(texts, "translate", 1) == ["b"]


def test_no_more_are_found_than_were_asked_for() -> None:
    assert len(best({str(number): ("same", "words") for number in range(50)}, "same", 10)) == 10


@given(st.dictionaries(st.text(max_size=5), st.tuples(st.text(), st.text()), max_size=8), st.text())
def test_any_text_can_be_searched_for_in_any_texts(texts: dict[str, tuple[str, str]], query: str) -> None:
    found = best(texts, query, 3)
    assert len(found) <= 3
    assert set(found) <= set(texts)
