"""What the site has besides the files below docs/: documents of the top level, pages that are made (about the API out
of the protos, about errors out of the texts of `hubbub explain`), and source files that documents link to.

A link is written as it works in a checkout. Here it is made to lead to the same document within the site.
"""

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from mkdocs.structure.files import File, Files

from hubbub_frontend import error_help

sys.path.append(str(Path(__file__).resolve().parent))
import api_pages

ROOT = Path(__file__).resolve().parents[2]
PROTOS = "protos/hubbub/v1"
"""A link to this folder, or to a file in it, leads to its page about the API."""
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "RELEASING.md": "project/releasing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Documents outside of docs/, and where the site has them."""
ERRORS = "errors.md"
"""The document that gets the list of all codes; the page about each is made of the source of `hubbub explain`."""
SHOWN = (".md", ".png", ".svg")
"""What the site has of docs/ as it is. Other files that a document links to are sources, and are shown as text."""
INSIDE = {place: name for name, place in OUTSIDE.items()}
FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)
"""The beginning of a block whose second word is for tests, which the site would not take for a block."""
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


class TwoSpaces(Extension):
    """What belongs to an item of a list is indented by two spaces, as in the rest of the repository."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the library's name
        md.tab_length = 2


def on_config(config: Any) -> Any:
    """Called by MkDocs before it reads files."""
    config.markdown_extensions.append(TwoSpaces())
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds what is outside of docs/, and takes back the source files that documents link to."""
    for name, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    for code in error_help.entries():
        files.append(File.generated(config, f"errors/{code.lower()}.md", content=error_help.render_page(code)))
    for name, text in api_pages.render_pages().items():
        files.append(File.generated(config, f"api/{name}", content=text))
    sources = {name for file in files.documentation_pages() for name in find_linked(file) if site_path(name) == name}
    for name in sorted(sources):
        if files.get_file_from_path(source := f"source/{name}.txt") is None:
            files.append(File.generated(config, source, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes links lead to where the site has what they name, and blocks begin as the site knows them."""
    here = source_path(page.file)
    if page.file.src_uri == ERRORS:
        markdown += "\n## All codes\n\n" + "".join(
            f"- [{code}](errors/{code.lower()}.md): {summary}\n" for code, summary in error_help.code_summaries()
        )

    def rewrite_link(link: re.Match[str]) -> str:
        start, target, anchor, end = link.groups()
        name = resolve_link(here, target)
        if name is None:
            return link[0]
        place = site_path(name)
        place = f"source/{name}.txt" if place == name else place
        return f"{start}{posixpath.relpath(place, posixpath.dirname(page.file.src_uri))}{anchor or ''}{end}"

    return FENCE.sub(r"\1", LINK.sub(rewrite_link, markdown))


def source_path(file: File) -> str:
    """The path of a page within the repository."""
    return INSIDE.get(file.src_uri, f"docs/{file.src_uri}")


def find_linked(file: File) -> Iterator[str]:
    """The files of the repository that a page links to."""
    here = source_path(file)
    for link in LINK.finditer(file.content_string):
        if (name := resolve_link(here, link[2])) is not None:
            yield name


def resolve_link(here: str, target: str) -> str | None:
    """The file of the repository that a link leads to; a folder is its README. None if there is no such file."""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if name == PROTOS:
        return name
    if (ROOT / name).is_dir():
        name += "/README.md"
    return name if not name.startswith("..") and (ROOT / name).is_file() else None


def site_path(name: str) -> str:
    """Where the site has a file; the file's own name if it has none of its kind."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    if name == PROTOS:
        return "api/README.md"
    if name.startswith(PROTOS) and name.endswith(".proto"):
        return f"api/{Path(name).stem}.md"
    if name.startswith("docs/") and name.endswith(SHOWN):
        return name.removeprefix("docs/")
    return name
