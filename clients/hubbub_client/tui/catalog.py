"""The catalog: what the servers offer, as a tree, and the way to use it."""

import json
from typing import Any, ClassVar, cast

import anyio
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static, Tree
from textual.widgets.tree import TreeNode

from hubbub_client import text
from hubbub_client.errors import HubbubError
from hubbub_client.records import CatalogEntry, CatalogList
from hubbub_client.text import Page
from hubbub_client.tui.boards import MAX_ROWS
from hubbub_client.tui.pane import SETTLE_S, TICK_S
from hubbub_client.tui.part import Part

PLURALS = {"tool": "tools", "resource": "resources", "template": "templates", "prompt": "prompts"}
USES = {"tool": "call it", "resource": "read it", "template": "read one", "prompt": "get it"}
# Tools are shown without being asked for while there are no more of them.
FEW = 100

Node = TreeNode[Any]


class CatalogPane(Part, Vertical):
    """A branch per server, below it one per kind. Entries are fetched when their branch is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "fetch", "Fetch anew")]

    def __init__(self) -> None:
        super().__init__()
        self._seen = -1
        self._branches: dict[str, Node] = {}
        self._loaded: dict[str, CatalogList] = {}
        self._summary = Static(classes="summary", markup=False)
        self._tree: Tree[Any] = Tree("servers")
        self._tree.show_root, self._tree.guide_depth = False, 3
        self._text = Static(markup=False)
        self._detail = VerticalScroll(self._text, classes="detail", can_focus=True)

    def compose(self) -> ComposeResult:
        """The parts."""
        yield self._summary
        with Container(classes="split"):
            yield self._tree
            yield self._detail

    def on_mount(self) -> None:
        """Looks for changes from now on."""
        self.set_interval(TICK_S, self.refresh_lists)

    def focus_list(self) -> None:
        """Puts the keyboard on the tree."""
        self._tree.focus()

    def refresh_lists(self) -> None:
        """Makes the branches those of the lists that there are, when they can be seen."""
        board = self.hub_app.boards.lists
        if board.version == self._seen or not cast("Widget", self.parent).display:
            return
        self._seen = board.version
        lists = sorted((row.record for row in board.rows.values()), key=lambda each: each.server)
        tools = sum(each.count for each in lists if each.kind == "tool")
        known = {each.id for each in lists} | {each.server for each in lists}
        for gone in [key for key in self._branches if key not in known]:
            self._branches.pop(gone).remove()
            self._loaded.pop(gone, None)
        for each in lists:
            self._branch(each, show=each.kind == "tool" and tools <= FEW)
        servers = len({each.server for each in lists})
        entries = sum(each.count for each in lists)
        self._summary.update(
            f"{entries} entries of {servers} servers · enter opens" if lists else "No server offers anything yet"
        )

    def _branch(self, entries: CatalogList, *, show: bool) -> None:
        tree = self._tree
        server = self._branches.get(entries.server)
        if server is None:
            server = tree.root.add(Text(text.line(entries.server), style="bold"), expand=True)
            self._branches[entries.server] = server
            if tree.cursor_node is None or tree.cursor_line < 0:
                tree.cursor_line = 0
        branch = self._branches.get(entries.id)
        if branch is None:
            if not entries.count and entries.freshness in ("empty", "unknown", "fresh"):
                return
            branch = self._branches[entries.id] = server.add("", expand=False)
        branch.data = entries
        fresh = "" if entries.freshness == "fresh" else f" {entries.freshness}"
        label = Text(f"{PLURALS.get(entries.kind, entries.kind)} {entries.count}")
        branch.set_label(label.append(fresh, style=text.STYLES.get(entries.freshness, "dim")))
        if show and entries.id not in self._loaded:
            branch.expand()
        if branch.is_expanded and self._loaded.get(entries.id) != entries:
            self._load(branch, entries)

    @on(Tree.NodeExpanded)
    def _opened(self, event: Tree.NodeExpanded[Any]) -> None:
        entries = event.node.data
        if isinstance(entries, CatalogList) and self._loaded.get(entries.id) != entries:
            self._load(event.node, entries)

    def _load(self, branch: Node, entries: CatalogList) -> None:
        self._loaded[entries.id] = entries

        async def work() -> None:
            try:
                found, _ = await self.hub_app.hub.catalog.read(entries.kind, entries.server)
            except HubbubError as error:
                self._loaded.pop(entries.id, None)
                self.hub_app.tell(error)
                return
            branch.remove_children()
            for entry in found[:MAX_ROWS]:
                branch.add_leaf(Text(text.line(entry.title or entry.name, 60)), data=entry)
            if len(found) > MAX_ROWS:
                branch.add_leaf(Text(f"… {len(found) - MAX_ROWS} more", style="dim"))

        self.run_worker(work(), group=entries.id, exclusive=True)

    @on(Tree.NodeHighlighted)
    def _moved(self, event: Tree.NodeHighlighted[Any]) -> None:
        async def work() -> None:
            await anyio.sleep(SETTLE_S)
            self._text.update(_described(event.node.data))
            self._detail.scroll_home(animate=False)

        self.run_worker(work(), group="detail", exclusive=True)

    @on(Tree.NodeSelected)
    def _chosen(self, event: Tree.NodeSelected[Any]) -> None:
        if isinstance(event.node.data, CatalogEntry):
            self.hub_app.use(event.node.data)

    def action_fetch(self) -> None:
        """Has the hub fetch the lists of the server under the cursor."""
        node = self._tree.cursor_node
        while node is not None and node.data is None:
            node = node.children[0] if node.children else None
        if node is not None and node.data is not None:
            server = node.data.server
            self.hub_app.do(self.hub_app.hub.catalog.refresh(server), f"the lists of {server} are fetched anew")


def _described(what: object) -> Text:
    page = Page()
    match what:
        case CatalogList():
            page.fact("server", what.server).fact("kind", what.kind).fact("entries", what.count)
            page.fact("freshness", text.state(what.freshness))
            page.fact("fetched", text.moment(what.fetched_at))
            if what.error:
                page.fact("error", f"{what.error.code}: {what.error.message}", "red")
        case CatalogEntry():
            page.paragraph(Text(text.line(what.title or what.name), style="bold"))
            page.paragraph(f"enter to {USES.get(what.kind, 'use it')}", "dim")
            page.fact("name", what.name if what.title else None).fact("server", what.server).fact("uri", what.uri)
            page.paragraph(what.description)
            rest = {key: value for key, value in what.object.items() if key not in SAID}
            if rest:
                page.heading("Definition").paragraph(json.dumps(rest, indent=2, ensure_ascii=False))
        case _:
            page.paragraph("Open a branch to see what the server offers.", "dim")
    return page.text


SAID = frozenset(("name", "title", "description", "uri", "uriTemplate", "icons"))
