"""The documents say what is so."""

import re
from pathlib import Path

import pytest

from hubbub_frontend.error_help import entries

ROOT = Path(__file__).parents[2]
REASON = re.compile(r"""(?:reason=|code=|_fault\(|faults\.error\(|faults\.fault\(|fault\()\s*"([A-Z][A-Z_]+)\"""")
NOUN = re.compile(r'NotFound\("([a-z]+)"')
TABLE_ROW = re.compile(r'^    "([A-Z_]+)": \(Category', re.MULTILINE)


def reasons_in_code(*roots: str) -> set[str]:
    sources = [path.read_text() for root in roots for path in (ROOT / root).rglob("*.py")]
    found = {reason for source in sources for pattern in (REASON, TABLE_ROW) for reason in pattern.findall(source)}
    return found | {f"{noun.upper()}_NOT_FOUND" for source in sources for noun in NOUN.findall(source)}


def test_every_reason_that_the_hub_gives_is_explained() -> None:
    assert reasons_in_code("hub") <= set(entries())


def test_every_reason_that_is_explained_is_given() -> None:
    sources = [path.read_text() for root in ("hub", "clients") for path in (ROOT / root).rglob("*.py")]
    words = {word for source in sources for word in re.findall(r'"([A-Z][A-Z_]+)"', source)}
    assert set(entries()) <= reasons_in_code("hub", "clients") | words


def variables_in_code(root: str) -> set[str]:
    """Those of the environment that have the product's name."""
    sources = [path.read_text() for path in (ROOT / root).rglob("*.py")]
    return {name for source in sources for name in re.findall(r'"(HUBBUBD?_[A-Z_]+[A-Z])"', source)}


@pytest.mark.parametrize(("root", "document"), [("hub", "configuration.md"), ("clients", "cli.md")])
def test_every_variable_of_the_environment_stands_in_the_document_of_its_program(root: str, document: str) -> None:
    rows = re.findall(r"^(?:\||-) (`HUBBUB.*?)(?: \||:)", (ROOT / "docs" / document).read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert variables_in_code(root) <= listed


def test_what_is_said_of_a_reason_begins_with_a_sentence_and_says_what_to_do() -> None:
    assert [*entries()] == sorted(entries())
    for reason, entry in entries().items():
        assert re.fullmatch(r"[A-Z_]+", reason)
        assert len(entry.summary) > 10, reason
        assert entry.advice, reason


def test_every_file_that_a_document_links_to_exists() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_place_that_contributors_are_sent_to_exists() -> None:
    named = re.findall(r"`((?:hub|clients|protos|tests|docs)/[\w./*-]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 20
    assert [place for place in named if not any(ROOT.glob(place.rstrip("/")))] == []
