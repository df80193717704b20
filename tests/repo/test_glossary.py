"""The glossary has every noun of the API, and what it links to exists."""

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
PROTOS = sorted(path.stem for path in (ROOT / "protos/hubbub/v1").glob("*.proto"))
FILES: list[FileDescriptor] = [import_module(f"hubbub.v1.{name}_pb2").DESCRIPTOR for name in PROTOS]
ENTRY = re.compile(r"^- \*\*(.+?)\*\*(.*?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)(?:#([^)]+))?\)")


def nouns() -> set[str]:
    """Messages, enums and services at the top level, but for what belongs to one RPC alone."""
    of_rpcs = {
        message.name
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
        for message in (method.input_type, method.output_type)
    }
    return {
        name
        for file in FILES
        for names in (file.message_types_by_name, file.enum_types_by_name, file.services_by_name)
        for name in names
    } - of_rpcs


def nested() -> set[str]:
    """The names within messages."""
    return {
        name
        for file in FILES
        for message in file.message_types_by_name.values()
        for names in (message.nested_types_by_name, message.enum_types_by_name)
        for name in names
    }


def entries() -> dict[str, str]:
    """The text of each entry by its term."""
    return {term: " ".join(text.split()) for term, text in ENTRY.findall(DOCUMENT)}


def bracketed() -> list[str]:
    """The names of the API in brackets behind the terms."""
    brackets = [re.match(r"\(([^)]*)\):", text) for text in entries().values()]
    return [name for found in brackets if found for name in re.findall(r"`([A-Z]\w+)`", found[1])]


def headings(document: Path) -> set[str]:
    """The anchors of a document, as its hosts make them."""
    found = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_noun_of_the_api_has_an_entry() -> None:
    assert nouns() - set(bracketed()) == set()


def test_a_noun_has_one_entry() -> None:
    assert {name for name, times in Counter(bracketed()).items() if times > 1} == set()


def test_no_entry_names_what_the_api_does_not_have() -> None:
    assert len(bracketed()) > 50
    assert set(bracketed()) - nouns() - nested() == set()


def test_every_link_of_an_entry_leads_somewhere() -> None:
    links = LINK.findall(DOCUMENT)
    assert len(links) > 30
    for target, anchor in links:
        document = ROOT / "docs" / target
        assert document.is_file(), target
        assert not anchor or anchor in headings(document), f"{target}#{anchor}"


def test_a_term_has_one_entry() -> None:
    assert len(entries()) == len(ENTRY.findall(DOCUMENT))


def test_the_glossary_is_found_from_where_people_begin() -> None:
    for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        assert "](docs/glossary.md)" in (ROOT / document).read_text(encoding="utf-8")
