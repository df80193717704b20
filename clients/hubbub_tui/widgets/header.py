"""The line at the top: which hub, whether it is reachable, who you are, what waits."""

from rich.text import Text
from textual.widgets import Static

from hubbub_frontend.display.text import line
from hubbub_tui.widgets.part import Part

LOOK_S = 0.3
# From this width on, the line has words beside its signs.
MIN_ROOMY_WIDTH = 100
NOUNS = {"elicitation_form": "form", "elicitation_url": "page", "sampling": "sampling", "roots": "roots"}


class Header(Part, Static):
    """Shows the state of the connection and of the inbox."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._drawn_text = Text()

    def on_mount(self) -> None:
        """Draw the line, and look for changes every LOOK_S seconds."""
        self.set_interval(LOOK_S, self.refresh_line)
        self.refresh_line()

    def refresh_line(self) -> None:
        """Draw the line again, if it has changed."""
        app = self.hub_app
        text = Text(no_wrap=True, overflow="ellipsis")
        is_wide = self.size.width >= MIN_ROOMY_WIDTH
        text.append(" Hubbub ", style="bold reverse").append(f" {line(app.hub.address, 40)} ")
        if is_wide and len(app.hub.addresses) > 1:
            text.append(f"(one of {len(app.hub.addresses)}) ")
        if not app.hub.connected:
            text.append("● lost, reconnecting", style="bold red")
        elif app.boards.refusal:
            text.append(f"● {app.boards.refusal}", style="bold red")
        else:
            text.append("● live" if is_wide else "●", style="green")
        if app.who:
            text.append(f" · as {line(app.who, 20)}")
        kinds = app.boards.count_open_kinds()
        # Without a connection a narrow line has no room for counts. The tab of the inbox shows one anyway.
        if app.hub.connected or is_wide:
            if kinds:
                counts = ", ".join(_count_text(count, NOUNS.get(kind, kind)) for kind, count in sorted(kinds.items()))
                text.append(" · waiting: " if is_wide else " · ").append(counts, style="bold")
            elif not app.boards.loading_status(app.boards.open):
                text.append(" · nothing waits", style="dim")
        if text != self._drawn_text or text.spans != self._drawn_text.spans:
            self._drawn_text = text
            self.update(text, layout=False)


def _count_text(count: int, noun: str) -> str:
    """Return a count with its noun: `2 forms`."""
    return f"{count} {noun}{'' if count == 1 or noun.endswith('s') else 's'}"
