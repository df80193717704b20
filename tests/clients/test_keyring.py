"""The system's keyring: what it takes is referred to, and what is there stays."""

import sys
from types import SimpleNamespace

import pytest

from hubbub_local.keyring import NoKeyring, open_system_keyring


class Library:
    """Stands for the package `keyring`."""

    def __init__(self, priority: float = 5, *, longest: int = 100) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self._backend = SimpleNamespace(priority=priority)
        self._longest = longest

    def get_keyring(self) -> object:
        return self._backend

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, secret: str) -> None:
        if self._longest:
            self.kept[service, name] = secret[: self._longest]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(sys.modules, "keyring", library)
    return library


def test_a_secret_of_the_same_name_stays_as_another_file_may_refer_to_it(library: Library) -> None:
    keyring = open_system_keyring()
    assert keyring.store_secret("github/TOKEN", "first") == "${keyring:hubbub/github/TOKEN}"
    assert keyring.store_secret("github/TOKEN", "second") == "${keyring:hubbub/github/TOKEN-2}"
    assert keyring.store_secret("github/TOKEN", "second") == "${keyring:hubbub/github/TOKEN-2}"
    assert keyring.store_secret("github/TOKEN", "first") == "${keyring:hubbub/github/TOKEN}"
    assert library.kept == {("hubbub", "github/TOKEN"): "first", ("hubbub", "github/TOKEN-2"): "second"}


@pytest.mark.parametrize(
    ("library", "why"),
    [(None, "install Hubbub again"), (Library(0), "none that is unlocked"), (SimpleNamespace(), "AttributeError")],
)
def test_a_keyring_that_cannot_be_used_says_why(library: object, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", library)
    with pytest.raises(NoKeyring, match=why):
        open_system_keyring()


@pytest.mark.parametrize("longest", [0, 3])
def test_a_keyring_that_does_not_give_back_what_it_took_is_not_relied_on(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Library(longest=longest))
    with pytest.raises(NoKeyring, match="does not give it back"):
        open_system_keyring().store_secret("a", "secret")
