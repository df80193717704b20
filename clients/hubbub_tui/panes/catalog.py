"""The pane of the catalog: a tree of what the servers offer; entries can be used from it."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, cast

import anyio
from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, Tree
from textual.widgets.tree import TreeNode

from hubbub_client.data.catalog import CatalogEntry, CatalogList
from hubbub_client.errors import HubbubError
from hubbub_client.payload import as_object
from hubbub_frontend.display import text
from hubbub_frontend.display.records import local_datetime
from hubbub_frontend.display.text import DetailText
from hubbub_tui.boards import MAX_ROWS
from hubbub_tui.panes.pane import CURSOR_REST_S, TICK_S, FilteredPane
from hubbub_tui.widgets.part import UP_DOWN

PLURALS = {"tool": "tools", "resource": "resources", "template": "templates", "prompt": "prompts", "skill": "skills"}
KINDS = list(PLURALS)
SHOWN_KEYS = frozenset(("name", "title", "description", "uri", "uriTemplate", "icons"))
USES = {"tool": "call it", "resource": "read it", "template": "read one", "prompt": "get it", "skill": "read it"}
# Up to so many tools are shown without being asked for.
MAX_TOOLS_EXPANDED = 100

# Lists that have been read, or never will be: an empty one is not shown.
SETTLED_FRESHNESS = ("empty", "unknown", "fresh")

Node = TreeNode[Any]


class Branches(Tree[Any]):
    """The tree, with the keys of the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [*UP_DOWN]


class CatalogPane(FilteredPane):
    """A branch per server, and below it one per kind. Entries are fetched when their branch is opened or searched."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "fetch", "Fetch again")]

    def __init__(self) -> None:
        self._tree = Branches("servers")
        self._tree.show_root, self._tree.guide_depth = False, 3
        super().__init__(self._tree)
        # The list, entry or hint that is shown; at first the pane itself, which is none of these.
        self._detailed: object = self
        # The nodes of servers by name, and those of lists by id.
        self._branches: dict[str, Node] = {}
        # By list: its state when its entries were fetched, the entries, and those that its branch shows.
        self._fetched: dict[str, CatalogList] = {}
        self._entries: dict[str, Sequence[CatalogEntry]] = {}
        self._drawn_entries: dict[str, Sequence[CatalogEntry]] = {}

    def on_mount(self) -> None:
        """Look for changes of the lists, every TICK_S seconds."""
        self.set_interval(TICK_S, self.refresh_lists)

    def focus_list(self) -> None:
        """Put the focus on the tree."""
        self._tree.focus()

    def refresh_lists(self) -> None:
        """Update the branches to the lists that exist, while the pane is visible."""
        boards = self.hub_app.boards
        board = boards.lists
        version = (board.version, boards.loading_status(board), self._filter.words)
        if version == self._drawn_version or not cast("Widget", self.parent).display:
            return
        self._drawn_version = version
        lists = sorted((row.record for row in board.rows.values()), key=lambda entries: entries.server)
        self._remove_lists_except({entries.id for entries in lists})
        tools = sum(entries.count for entries in lists if entries.kind == "tool")
        for entries in lists:
            self._draw_list(entries, expand=entries.kind == "tool" and tools <= MAX_TOOLS_EXPANDED)
        self._summary.update(self._summary_line(lists))
        self.call_after_refresh(self._show_detail)

    def _remove_lists_except(self, list_ids: Collection[str]) -> None:
        """Forget and remove all lists other than these."""
        for list_id in [id_ for id_ in self._fetched if id_ not in list_ids]:
            del self._fetched[list_id]
            self._entries.pop(list_id, None)
        list_branches = [key for key, branch in self._branches.items() if branch.data is not None]
        for key in list_branches:
            if key not in list_ids:
                self._remove_branch(key)

    def _summary_line(self, lists: Sequence[CatalogList]) -> str:
        """Return the line above the tree: how many entries there are, of how many servers, and how many match."""
        servers = len({entries.server for entries in lists})
        count = sum(entries.count for entries in lists)
        if lists:
            summary = f"{count} entr{'y' if count == 1 else 'ies'} of {servers} server{'' if servers == 1 else 's'}"
            summary += " · enter opens"
        else:
            boards = self.hub_app.boards
            summary = boards.loading_status(boards.lists) or "No server offers anything yet"
        if words := self._filter.words:
            summary += f" · {sum(map(len, self._drawn_entries.values()))} with {text.line(' '.join(words))}"
        return summary

    def _draw_list(self, entries: CatalogList, *, expand: bool) -> None:
        """Draw the branch of a list, with the entries that were fetched; fetch them if the branch shows them.

        With `expand`, a new branch is opened. With a filter, only branches with a match are drawn, and all lists are
        fetched. An empty list has no branch, unless it may still be read.
        """
        found = self._entries.get(entries.id)
        filtering = bool(self._filter.words)
        if filtering:
            if self._fetched.get(entries.id) != entries:
                self._start_fetch(entries)
            found = [entry for entry in found or () if self._filter.matches(_search_text(entry))]
            if not found:
                self._remove_branch(entries.id)
                return
        elif entries.id not in self._branches and not entries.count and entries.freshness in SETTLED_FRESHNESS:
            return
        branch = self._ensure_branch(entries)
        drawn = self._drawn_entries.get(entries.id)
        if (filtering and drawn != found) or (expand and drawn is None):
            branch.expand()
        if branch.is_expanded and self._fetched.get(entries.id) != entries:
            self._start_fetch(entries)
        if found is not None and drawn != found:
            self._drawn_entries[entries.id] = found
            branch.remove_children()
            for entry in found[:MAX_ROWS]:
                branch.add_leaf(Text(text.line(entry.title or entry.name, 60)), data=entry)
            if len(found) > MAX_ROWS:
                branch.add_leaf(Text(f"… {len(found) - MAX_ROWS} more", style="dim"))

    def _ensure_branch(self, entries: CatalogList) -> Node:
        """Return the branch of a list, with its present label; make the branch, and that of its server, if missing."""
        tree = self._tree
        server, server_label = self._branches.get(entries.server), text.line(entries.server)
        if server is None:
            before = _first_child_after(tree.root, lambda other: str(other.label) > server_label)
            server = tree.root.add(Text(server_label, style="bold"), expand=True, before=before)
            self._branches[entries.server] = server
            if tree.cursor_node is None or tree.cursor_line < 0:
                tree.cursor_line = 0
        branch = self._branches.get(entries.id)
        if branch is None:
            before = _first_child_after(server, lambda other: _kind_rank(other.data) > _kind_rank(entries))
            branch = self._branches[entries.id] = server.add("", expand=False, before=before)
        branch.data = entries
        freshness = "" if entries.freshness == "fresh" else f" {entries.freshness}"
        label = Text(f"{PLURALS[entries.kind]} {entries.count}")
        branch.set_label(label.append(freshness, style=text.STYLES.get(entries.freshness, "dim")))
        return branch

    def _remove_branch(self, list_id: str) -> None:
        """Remove the branch of a list; remove the branch of its server, too, if it has no other list."""
        branch = self._branches.pop(list_id, None)
        self._drawn_entries.pop(list_id, None)
        if branch is None or branch.parent is None:
            return
        server = branch.parent
        branch.remove()
        if not server.children:
            self._branches = {key: node for key, node in self._branches.items() if node is not server}
            server.remove()

    @on(Tree.NodeExpanded)
    def _fetch_expanded(self, event: Tree.NodeExpanded[Any]) -> None:
        """Fetch the entries of a branch that is opened, unless they were fetched in the list's present state."""
        entries = event.node.data
        if isinstance(entries, CatalogList) and self._fetched.get(entries.id) != entries:
            self._start_fetch(entries)

    def _start_fetch(self, entries: CatalogList) -> None:
        """Fetch the entries of a list in the background; the next refresh draws them."""
        self._fetched[entries.id] = entries  # noted before the fetch, so that no refresh fetches the same state again

        async def fetch() -> None:
            """Fetch the entries and store them; after an error, show it and let a refresh fetch again."""
            try:
                found, _ = await self.hub_app.hub.catalog.read(entries.kind, entries.server)
            except HubbubError as error:
                self._fetched.pop(entries.id, None)
                self.hub_app.show_error(error)
                return
            self._entries[entries.id] = found
            self._drawn_version = None

        self.run_worker(fetch(), group=entries.id, exclusive=True)

    def action_back(self) -> None:
        """Show all entries again, and put the focus on the tree."""
        self._filter.clear_and_hide()
        self.focus_list()

    @on(Input.Submitted, ".filter")
    def _focus_first_match(self) -> None:
        """Put the focus on the tree, and once it is drawn, the cursor on the first entry that matches."""
        self.focus_list()
        # The cursor can move to a node only after the node was drawn.
        self.call_after_refresh(self._select_first_entry)

    def _select_first_entry(self) -> None:
        """Move the cursor to the first entry, and show it."""
        branch = next((node for node in self._branches.values() if node.data is not None), None)
        if branch is not None and branch.children:
            self._tree.move_cursor(branch.children[0])
            self._show_detail()

    @on(Input.Changed, ".filter")
    def _apply_filter(self) -> None:
        """Show only the branches that match."""
        self.refresh_lists()

    @on(Tree.NodeHighlighted)
    def _show_detail(self) -> None:
        """Show what is under the cursor, if it is not shown yet."""
        # Textual does not report every change of the node under the cursor: a new node may have taken the old one's
        # line.
        node = self._tree.cursor_node
        data = node.data if node is not None else None
        subject = self._empty_hint() if data is None else data
        # Lists and entries are compared by identity, since a fetch makes new objects. Hints are compared by text.
        if subject is self._detailed or (data is None and subject == self._detailed):
            return
        self._detailed = subject

        async def show_subject() -> None:
            """Show the detail once the cursor has rested. A newer detail cancels this."""
            await anyio.sleep(CURSOR_REST_S)
            self._text.update(_render_detail(subject))
            self._detail.scroll_home(animate=False)

        self.run_worker(show_subject(), group="detail", exclusive=True)

    def _empty_hint(self) -> str:
        """Return what the detail says while there is no entry under the cursor."""
        lists = self.hub_app.boards.lists
        if self._filter.words and not self._tree.root.children:
            return "Nothing that the servers offer has all these words; escape shows everything."
        if lists.rows:
            return "Open a branch to see what the server offers."
        if self.hub_app.boards.loading_status(lists):
            return ""
        return "What servers offer appears here. 2 shows the servers; there, a adds one."

    @on(Tree.NodeSelected)
    def _invoke_selected(self, event: Tree.NodeSelected[Any]) -> None:
        """Call, read or get the entry that is chosen."""
        if isinstance(event.node.data, CatalogEntry):
            self.hub_app.invoke(event.node.data)

    def action_fetch(self) -> None:
        """Have the hub fetch the lists of the server under the cursor again."""
        node = self._tree.cursor_node
        # The node of a server has no data: its first list names the server.
        while node is not None and node.data is None:
            node = node.children[0] if node.children else None
        if node is not None and node.data is not None:
            server = node.data.server
            self.hub_app.start_action(
                self.hub_app.hub.catalog.refresh(server), f"the lists of {server} are fetched again"
            )


def _first_child_after(parent: Node, is_after: Callable[[Node], bool]) -> Node | None:
    """Return the first child for which `is_after` holds, to add a node before it; None to add the node at the end."""
    return next((child for child in parent.children if is_after(child)), None)


def _kind_rank(entries: CatalogList | None) -> int:
    """Return the sort position of a list's kind among the branches of a server; None (no list) comes last."""
    return KINDS.index(entries.kind) if entries is not None else len(KINDS)


def _search_text(entry: CatalogEntry) -> str:
    """Return the text of an entry that the filter searches."""
    return f"{entry.server} {entry.kind} {entry.name} {entry.title or ''} {entry.uri or ''} {entry.description or ''}"


def _render_detail(subject: object) -> Text:
    """Render a list, an entry, or a hint."""
    page = DetailText()
    match subject:
        case CatalogList():
            page.fact("server", subject.server).fact("kind", subject.kind).fact("entries", subject.count)
            page.fact("freshness", text.styled_state(subject.freshness))
            page.fact("fetched", local_datetime(subject.fetched_at))
            if subject.error:
                page.fact("error", f"{subject.error.code}: {subject.error.message}", "red")
        case CatalogEntry():
            page.paragraph(Text(text.line(subject.title or subject.name), style="bold"))
            page.paragraph(f"enter to {USES.get(subject.kind, 'use it')}", "dim")
            page.fact("name", subject.name if subject.title else None).fact("server", subject.server)
            page.fact("uri", subject.uri).paragraph(subject.description)
            rest = {key: value for key, value in as_object(subject.object).items() if key not in SHOWN_KEYS}
            if rest:
                page.heading("Definition").json(rest)
        case _:
            page.paragraph(str(subject), "dim")
    return page.text
