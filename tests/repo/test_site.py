"""The documents as a site: whole, without a dead link, and readable without a network."""

import importlib.util
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from playwright.async_api import Browser, Request, expect

from ..web.conftest import browser

__all__ = ["browser"]

ROOT = Path(__file__).parents[2]
MAKEFILE = ROOT / "Makefile"
LIMIT_S = 600
NO_PAGE_OF_A_READER = {"404.html"}
"""What a server shows for what it does not have."""
NOT_IN_NAV = re.compile(r"errors/(?!index)")
"""Pages that a list leads to, and not the navigation: there are too many of them."""


@dataclass
class Page(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    name: str
    links: list[str] = field(default_factory=list[str])
    loads: list[str] = field(default_factory=list[str])
    anchors: set[str] = field(default_factory=set[str])
    nav: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        super().__init__()
        self._navs = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self._navs += tag == "nav"
        if "href" in given:
            (self.loads if tag == "link" else self.links).append(given["href"])
            if self._navs and not given["href"].startswith("#"):  # a page's own headings are in a nav, too
                self.nav.add(given["href"])
        if "src" in given:
            self.loads.append(given["src"])

    def handle_endtag(self, tag: str) -> None:
        self._navs -= tag == "nav"


@dataclass(frozen=True)
class Site:
    """What `make docs` builds."""

    at: Path
    said: str

    @cached_property
    def pages(self) -> dict[str, Page]:
        found = {path.relative_to(self.at).as_posix(): Page(str(path)) for path in self.at.rglob("*.html")}
        for name, page in found.items():
            page.feed((self.at / name).read_text(encoding="utf-8"))
        return found

    def leads_to(self, name: str, link: str) -> str | None:
        """The file of the site that a link of a page leads to; None for one to elsewhere."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return None
        return posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site, built as `make docs` does."""
    at = tmp_path_factory.mktemp("site")
    target = re.search(r"^docs:.*\n\tNO_MKDOCS_2_WARNING=1 \$\(BIN\)/mkdocs (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert target is not None
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", *target[1].split(), "--site-dir", str(at)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert built.returncode == 0, built.stderr
    return Site(at, built.stdout + built.stderr)


def test_it_is_built_without_a_warning(site: Site) -> None:
    said = site.said.splitlines()
    assert any("Documentation built" in line for line in said), "MkDocs says nothing, so it counts no warnings"
    assert [line for line in said if not line.startswith("INFO")] == []
    assert len(site.pages) > 150


def test_every_document_is_reached_from_the_first_page_and_is_in_the_navigation(site: Site) -> None:
    reached, left = set[str](), ["index.html"]
    while left:
        if (name := left.pop()) not in reached and name in site.pages:
            reached.add(name)
            left += [found for link in site.pages[name].links if (found := site.leads_to(name, link)) is not None]
    assert site.pages.keys() - NO_PAGE_OF_A_READER - reached == set()
    navigation = {site.leads_to(name, link) for name, page in site.pages.items() for link in page.nav}
    wanted = {name for name in site.pages.keys() - NO_PAGE_OF_A_READER if not NOT_IN_NAV.match(name)}
    assert wanted - navigation == set()


def test_no_link_and_no_anchor_is_dead(site: Site) -> None:
    dead = list[str]()
    for name, page in site.pages.items():
        for link in page.links:
            if name in NO_PAGE_OF_A_READER or (target := site.leads_to(name, link)) is None:
                continue
            anchor = unquote(urlsplit(link).fragment)
            if not (site.at / target).is_file() or (
                anchor and target in site.pages and anchor not in site.pages[target].anchors
            ):
                dead.append(f"{name}: {link}")
    assert dead == []


def test_every_block_is_shown_as_one(site: Site) -> None:
    assert [name for name in site.pages if "```" in (site.at / name).read_text(encoding="utf-8")] == []


def test_nothing_that_a_page_loads_is_elsewhere_or_missing(site: Site) -> None:
    wrong = list[str]()
    for name, page in site.pages.items():
        for link in page.loads:
            target = site.leads_to(name, link)
            if target is None or not (name in NO_PAGE_OF_A_READER or (site.at / target).exists()):
                wrong.append(f"{name}: {link}")
    for style in site.at.rglob("*.css"):
        wrong += [
            f"{style.name}: {each}" for each in re.findall(r"(?:url\(|@import )['\"]?https?:[^)]*", style.read_text())
        ]
    assert wrong == []


async def test_a_page_that_is_opened_as_a_file_is_searched_and_asks_no_network(site: Site, browser: Browser) -> None:
    tab = await browser.new_page()
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    tab.on("request", note)
    try:
        await tab.goto((site.at / "index.html").as_uri())
        box = tab.get_by_role("textbox", name="Search")
        await box.click()
        await expect(tab.locator(".md-search-result__meta")).to_have_text("Type to start searching")
        await box.press_sequentially("lease on a pending request")
        await expect(tab.locator(".md-search-result__item").first).to_contain_text("claim")
    finally:
        await tab.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []


def maker() -> ModuleType:
    """What makes the pages of the API."""
    spec = importlib.util.spec_from_file_location("api_pages", ROOT / "docs/site/api_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headings(text: str) -> Iterator[str]:
    return (heading[1] for heading in re.finditer(r"^### (\S+)$", text, re.MULTILINE))


def test_every_rpc_message_and_enum_has_a_place_on_the_pages_of_the_api() -> None:
    placed = {name for text in maker().render_pages().values() for name in headings(text)}
    protos = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "protos/hubbub/v1").glob("*.proto"))
    named = re.findall(r"^(?:message|enum) (\w+)", protos, re.MULTILINE)
    assert len(named) > 100
    assert set(named) - placed == set()
    rpcs = set(re.findall(r"^  rpc (\w+)", protos, re.MULTILINE))
    assert rpcs - {name.partition(".")[2] for name in placed} == set()
