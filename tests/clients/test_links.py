"""One-time links to the web page, below the data directory."""

import fcntl
import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from hubbub_frontend.links import MAX_LINKS, Links, announce_page, find_page_url


def test_a_link_is_used_once_whoever_uses_it(tmp_path: Path) -> None:
    secret = Links(tmp_path).create("request/req_1", 60, "req_1")
    one, other = Links(tmp_path), Links(tmp_path)
    found = other.find(secret)
    assert found is not None
    assert (found.to, found.request, found.is_expired) == ("request/req_1", "req_1", False)
    assert [one.use(secret), other.use(secret), one.use(secret)] == [True, False, False]
    assert other.find(secret) is None


def test_a_link_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    links = Links(tmp_path)
    secret = links.create("inbox", 60)
    monkeypatch.setattr("time.time", lambda: 1059.9)
    assert not links.find(secret).is_expired  # type: ignore[union-attr]
    monkeypatch.setattr("time.time", lambda: 1060.0)
    assert links.find(secret).is_expired  # type: ignore[union-attr]


def test_the_disk_does_not_have_the_secret_and_only_the_owner_reads_it(tmp_path: Path) -> None:
    secret = Links(tmp_path / "data").create("inbox", 60)
    files = [each for each in (tmp_path / "data").rglob("*") if each.is_file()]
    assert len(files) == 1
    assert secret not in files[0].read_text() + str(files[0])
    for each in (tmp_path / "data").rglob("*"):
        assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0


def test_only_so_many_links_are_kept(tmp_path: Path) -> None:
    links = Links(tmp_path)
    first = links.create("inbox", 60)
    made = [links.create("inbox", 60) for _ in range(MAX_LINKS)]
    assert links.find(first) is None
    assert all(links.find(each) for each in made)


@pytest.mark.parametrize(
    "to", ["", "request/", "request/../x", "https://evil.example", "request/a b", "inbox#x", "login"]
)
def test_a_link_leads_to_a_place_of_the_page_alone(tmp_path: Path, to: str) -> None:
    with pytest.raises(ValueError, match="no place"):
        Links(tmp_path).create(to, 60)


@pytest.mark.parametrize("secret", ["", "../links", "x" * 5000, "\ud800", "a/b"])
def test_what_is_no_secret_finds_nothing(tmp_path: Path, secret: str) -> None:
    links = Links(tmp_path)
    links.create("inbox", 60)
    assert links.find(secret) is None
    assert links.use(secret) is False


def test_a_damaged_link_is_none(tmp_path: Path) -> None:
    links = Links(tmp_path)
    secret = links.create("inbox", 60)
    (file,) = (tmp_path / "web" / "links").iterdir()
    for damaged in ("", "[]", "{}", '{"to": "inbox", "request": null, "expires": "x"}'):
        file.write_text(damaged)
        assert links.find(secret) is None


def test_the_page_is_known_while_it_runs_and_the_first_of_two_counts(tmp_path: Path) -> None:
    assert find_page_url(tmp_path) is None
    with (
        announce_page(tmp_path, "http://127.0.0.1:1") as first,
        announce_page(tmp_path, "http://127.0.0.1:2") as second,
    ):
        assert (first, second) == (True, False)
        assert find_page_url(tmp_path) == "http://127.0.0.1:1"
    assert find_page_url(tmp_path) is None
    with announce_page(tmp_path, "http://127.0.0.1:3"):
        assert find_page_url(tmp_path) == "http://127.0.0.1:3"


def test_who_asks_for_the_page_does_not_look_like_another_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with announce_page(tmp_path, "http://127.0.0.1:1"):
        pass
    lock, tried, found = fcntl.flock, threading.Event(), list[bool]()

    def announce() -> None:
        with announce_page(tmp_path, "http://127.0.0.1:2") as first:
            found.append(first)

    starting = threading.Thread(target=announce)

    def flock(file: Any, kind: int) -> None:
        """Start a page while somebody who asks has the lock."""
        try:
            lock(file, kind)
        finally:
            if threading.current_thread() is starting:
                tried.set()
            else:
                starting.start()
                assert tried.wait(60)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert find_page_url(tmp_path) is None
    starting.join()
    assert found == [True]


def test_a_page_that_was_killed_is_not_linked_to(tmp_path: Path) -> None:
    with announce_page(tmp_path, "http://127.0.0.1:1"):
        left = (tmp_path / "web" / "page.json").read_text()
    (tmp_path / "web" / "page.json").write_text(left)
    assert json.loads(left) == {"url": "http://127.0.0.1:1"}
    assert find_page_url(tmp_path) is None
