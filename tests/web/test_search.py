"""The search over the catalogs of all servers: what is found, in which order, and how much of it."""

from types import SimpleNamespace
from typing import Any, cast

from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.hub import Hub
from hubbub_web.records.brief import MAX_TEXT_CHARS
from hubbub_web.records.search import MAX_FOUND, search


def hub(*entries: CatalogEntry) -> Hub:
    """A hub with these entries."""

    async def read() -> tuple[list[CatalogEntry], list[Any]]:
        return [*entries], []

    return cast("Hub", SimpleNamespace(catalog=SimpleNamespace(read=read)))


def tool(name: str, server: str = "git", **more: Any) -> CatalogEntry:
    return CatalogEntry(server=server, kind="tool", object={"name": name, **more})


async def names(text: str, *entries: CatalogEntry) -> list[str]:
    found, many = await search(hub(*entries), text)
    assert many == len(found)
    return [each["name"] for each in found]


async def test_all_words_must_be_there_and_those_of_a_name_count_most() -> None:
    entries = (
        tool("history", description="Shows each commit of git"),
        tool("git_commit", description="Records changes"),
        tool("push"),
        tool("save", server="svn", title="Commit to git"),
    )
    assert await names("git commit", *entries) == ["git_commit", "save", "history"]
    assert await names("GIT PUSH", *entries) == ["push"]
    assert await names("git nothing", *entries) == []


async def test_an_entry_is_found_by_its_address_and_keeps_it() -> None:
    resource = CatalogEntry(server="files", kind="resource", object={"uri": "file:///srv/notes.md", "name": "Notes"})
    template = CatalogEntry(server="files", kind="template", object={"uriTemplate": "log:///{day}", "name": "Logs"})
    found, _ = await search(hub(resource, template, tool("other")), "///")
    assert [each["key"] for each in found] == ["file:///srv/notes.md", "log:///{day}"]


async def test_what_is_found_is_bounded_whatever_a_server_wrote() -> None:
    many = [tool(f"tool {number}", description="x" * 10_000) for number in range(MAX_FOUND + 1)]
    found, count = await search(hub(*many, CatalogEntry(server="odd", kind="tool", object=None)), "tool")
    assert (len(found), count) == (MAX_FOUND, MAX_FOUND + 1)
    assert max(len(each["about"]) for each in found) == MAX_TEXT_CHARS


async def test_a_skill_is_found_by_what_it_says_of_itself_and_opened_by_its_uri() -> None:
    says = {"name": "branches", "description": "How they are named"}
    skill = CatalogEntry(server="git", kind="skill", object={"uri": "skill://branches/SKILL.md", "frontmatter": says})
    (found,), _ = await search(hub(skill), "named")
    assert (found["name"], found["about"], found["key"]) == ("branches", says["description"], skill.uri)
