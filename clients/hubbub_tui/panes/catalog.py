"""The pane of the catalog: what the servers offer, as a tree, and the way to use it."""

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import anyio
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget
from textual.widgets import Input, Static, Tree
from textual.widgets.tree import TreeNode

from hubbub_client.data.records import CatalogEntry, CatalogList
from hubbub_client.errors import HubbubError
from hubbub_client.payload import as_object
from hubbub_frontend.display import text
from hubbub_frontend.display.records import local_datetime
from hubbub_frontend.display.text import DetailText
from hubbub_tui.boards import MAX_ROWS
from hubbub_tui.panes.pane import SETTLE_S, TICK_S, PaneFilter
from hubbub_tui.widgets.part import UP_DOWN, Part, Scroll

PLURALS = {"tool": "tools", "resource": "resources", "template": "templates", "prompt": "prompts"}
KINDS = list(PLURALS)
USES = {"tool": "call it", "resource": "read it", "template": "read one", "prompt": "get it"}
# Up to so many tools are shown without being asked for.
FEW = 100

Node = TreeNode[Any]


class Branches(Tree[Any]):
    """The tree, with the keys of the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [*UP_DOWN]


class CatalogPane(Part, Vertical):
    """A branch per server, and below it one per kind. Entries are fetched when their branch is opened or searched."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("r", "fetch", "Fetch anew"),
        Binding("escape", "back", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._seen: object = None
        self._detailed: object = self
        self._branches: dict[str, Node] = {}
        # By list: its state when its entries were fetched, the entries, and those that its branch shows.
        self._asked: dict[str, CatalogList] = {}
        self._entries: dict[str, Sequence[CatalogEntry]] = {}
        self._shown: dict[str, Sequence[CatalogEntry]] = {}
        self._summary = Static(classes="summary", markup=False)
        self._filter = PaneFilter()
        self._tree = Branches("servers")
        self._tree.show_root, self._tree.guide_depth = False, 3
        self._text = Static(markup=False)
        self._detail = Scroll(self._text, classes="detail")

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self._filter
        with Container(classes="split"):
            yield self._tree
            yield self._detail

    def on_mount(self) -> None:
        """Start following changes."""
        self.set_interval(TICK_S, self.refresh_lists)

    def focus_list(self) -> None:
        """Focus the tree."""
        self._tree.focus()

    def refresh_lists(self) -> None:
        """Update the branches to the lists that exist, while the pane is visible."""
        boards = self.hub_app.boards
        board, unknown = boards.lists, boards.unknown(boards.lists)
        seen = (board.version, unknown, self._filter.words)
        if seen == self._seen or not cast("Widget", self.parent).display:
            return
        self._seen = seen
        lists = sorted((row.record for row in board.rows.values()), key=lambda each: each.server)
        tools = sum(each.count for each in lists if each.kind == "tool")
        known = {each.id for each in lists}
        for gone in self._asked.keys() - known:
            del self._asked[gone]
            self._entries.pop(gone, None)
        for gone in [key for key, branch in self._branches.items() if branch.data is not None and key not in known]:
            self._drop(gone)
        for each in lists:
            self._draw(each, show=each.kind == "tool" and tools <= FEW)
        servers = len({each.server for each in lists})
        entries = sum(each.count for each in lists)
        said = f"{entries} entr{'y' if entries == 1 else 'ies'} of {servers} server{'' if servers == 1 else 's'}"
        said = f"{said} · enter opens" if lists else unknown or "No server offers anything yet"
        if words := self._filter.words:
            said += f" · {sum(map(len, self._shown.values()))} with {text.line(' '.join(words))}"
        self._summary.update(said)
        self.call_after_refresh(self._show_detail)

    def _draw(self, entries: CatalogList, *, show: bool) -> None:
        found, searched = self._entries.get(entries.id), bool(self._filter.words)
        if searched:
            if self._asked.get(entries.id) != entries:
                self._ask(entries)
            found = [each for each in found or () if self._filter.lets_through(_words(each))]
            if not found:
                self._drop(entries.id)
                return
        elif (
            not entries.count
            and entries.id not in self._branches
            and entries.freshness in ("empty", "unknown", "fresh")
        ):
            return
        branch = self._branch(entries)
        shown = self._shown.get(entries.id)
        if (searched and shown != found) or (show and shown is None):
            branch.expand()
        if branch.is_expanded and self._asked.get(entries.id) != entries:
            self._ask(entries)
        if found is not None and shown != found:
            self._shown[entries.id] = found
            branch.remove_children()
            for entry in found[:MAX_ROWS]:
                branch.add_leaf(Text(text.line(entry.title or entry.name, 60)), data=entry)
            if len(found) > MAX_ROWS:
                branch.add_leaf(Text(f"… {len(found) - MAX_ROWS} more", style="dim"))

    def _branch(self, entries: CatalogList) -> Node:
        tree = self._tree
        server, label = self._branches.get(entries.server), text.line(entries.server)
        if server is None:
            before = _place(tree.root, lambda other: str(other.label) > label)
            server = tree.root.add(Text(label, style="bold"), expand=True, before=before)
            self._branches[entries.server] = server
            if tree.cursor_node is None or tree.cursor_line < 0:
                tree.cursor_line = 0
        branch = self._branches.get(entries.id)
        if branch is None:
            before = _place(server, lambda other: _rank(other.data) > _rank(entries))
            branch = self._branches[entries.id] = server.add("", expand=False, before=before)
        branch.data = entries
        fresh = "" if entries.freshness == "fresh" else f" {entries.freshness}"
        counted = Text(f"{PLURALS[entries.kind]} {entries.count}")
        branch.set_label(counted.append(fresh, style=text.STYLES.get(entries.freshness, "dim")))
        return branch

    def _drop(self, key: str) -> None:
        """Remove a branch, and its server's when it was the last one."""
        branch = self._branches.pop(key, None)
        self._shown.pop(key, None)
        if branch is None or branch.parent is None:
            return
        server = branch.parent
        branch.remove()
        if not server.children:
            self._branches = {key: each for key, each in self._branches.items() if each is not server}
            server.remove()

    @on(Tree.NodeExpanded)
    def _opened(self, event: Tree.NodeExpanded[Any]) -> None:
        entries = event.node.data
        if isinstance(entries, CatalogList) and self._asked.get(entries.id) != entries:
            self._ask(entries)

    def _ask(self, entries: CatalogList) -> None:
        self._asked[entries.id] = entries

        async def work() -> None:
            try:
                found, _ = await self.hub_app.hub.catalog.read(entries.kind, entries.server)
            except HubbubError as error:
                self._asked.pop(entries.id, None)
                self.hub_app.tell(error)
                return
            self._entries[entries.id] = found
            self._seen = None

        self.run_worker(work(), group=entries.id, exclusive=True)

    def action_filter(self) -> None:
        """Focus the filter."""
        self._filter.ask()

    def action_back(self) -> None:
        """Show all entries again."""
        self._filter.clear_words()
        self.focus_list()

    @on(Input.Submitted, ".filter")
    def _filtered(self) -> None:
        self.focus_list()
        # A node has a line only after it was drawn.
        self.call_after_refresh(self._go_to_first)

    def _go_to_first(self) -> None:
        branch = next((each for each in self._branches.values() if each.data is not None), None)
        if branch is not None and branch.children:
            self._tree.move_cursor(branch.children[0])
            self._show_detail()

    @on(Input.Changed, ".filter")
    def _filtering(self) -> None:
        self.refresh_lists()

    @on(Tree.NodeHighlighted)
    def _moved(self) -> None:
        self._show_detail()

    def _show_detail(self) -> None:
        # Textual does not report every change of the node under the cursor: a new node may have taken the old one's
        # line.
        node = self._tree.cursor_node
        data = node.data if node is not None else None
        wanted = self._nothing() if data is None else data
        if wanted is self._detailed or (data is None and wanted == self._detailed):
            return
        self._detailed = wanted

        async def work() -> None:
            await anyio.sleep(SETTLE_S)
            self._text.update(_described(wanted))
            self._detail.scroll_home(animate=False)

        self.run_worker(work(), group="detail", exclusive=True)

    def _nothing(self) -> str:
        """Return what the detail says while there is no entry."""
        lists = self.hub_app.boards.lists
        if self._filter.words and not self._tree.root.children:
            return "Nothing that the servers offer has all these words; escape shows everything."
        if lists.rows:
            return "Open a branch to see what the server offers."
        unknown = self.hub_app.boards.unknown(lists)
        return "" if unknown else "What servers offer appears here. 2 shows the servers; there, a adds one."

    @on(Tree.NodeSelected)
    def _chosen(self, event: Tree.NodeSelected[Any]) -> None:
        if isinstance(event.node.data, CatalogEntry):
            self.hub_app.use(event.node.data)

    def action_fetch(self) -> None:
        """Refresh the lists of the server under the cursor."""
        node = self._tree.cursor_node
        while node is not None and node.data is None:
            node = node.children[0] if node.children else None
        if node is not None and node.data is not None:
            server = node.data.server
            self.hub_app.do(self.hub_app.hub.catalog.refresh(server), f"the lists of {server} are fetched anew")


def _place(parent: Node, after: Callable[[Node], bool]) -> Node | None:
    """Return the first child that sorts after another; None for the end."""
    return next((child for child in parent.children if after(child)), None)


def _rank(entries: CatalogList | None) -> int:
    return KINDS.index(entries.kind) if entries is not None else len(KINDS)


def _words(entry: CatalogEntry) -> str:
    return f"{entry.server} {entry.kind} {entry.name} {entry.title or ''} {entry.uri or ''} {entry.description or ''}"


def _described(what: object) -> Text:
    page = DetailText()
    match what:
        case CatalogList():
            page.fact("server", what.server).fact("kind", what.kind).fact("entries", what.count)
            page.fact("freshness", text.styled_state(what.freshness))
            page.fact("fetched", local_datetime(what.fetched_at))
            if what.error:
                page.fact("error", f"{what.error.code}: {what.error.message}", "red")
        case CatalogEntry():
            page.paragraph(Text(text.line(what.title or what.name), style="bold"))
            page.paragraph(f"enter to {USES.get(what.kind, 'use it')}", "dim")
            page.fact("name", what.name if what.title else None).fact("server", what.server).fact("uri", what.uri)
            page.paragraph(what.description)
            rest = {key: value for key, value in as_object(what.object).items() if key not in SAID}
            if rest:
                page.heading("Definition").paragraph(json.dumps(rest, indent=2, ensure_ascii=False))
        case _:
            page.paragraph(str(what), "dim")
    return page.text


SAID = frozenset(("name", "title", "description", "uri", "uriTemplate", "icons"))
