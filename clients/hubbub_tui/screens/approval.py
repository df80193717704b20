"""The screen of a call to approve: yes, yes for a while, yes to other arguments, or no with a reason."""

from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Button

from hubbub_client.data.records import PendingRequest
from hubbub_client.errors import FailedPrecondition, HubbubError
from hubbub_frontend.display.approvals import ApprovalView, approval_view
from hubbub_frontend.display.argument_rows import change_lines
from hubbub_frontend.display.text import editable_json, safe_text
from hubbub_tui.screens.answer import AnswerScreen
from hubbub_tui.screens.answer_body import ApprovalBody
from hubbub_tui.screens.dialogs import ChoicePrompt, Confirm, TextPrompt
from hubbub_tui.screens.earlier_calls import EarlierCalls
from hubbub_tui.screens.form import Incomplete

MAX_CONFIRMED_LINES = 16
"""Lines of a change that a person confirms, on a screen of 24."""


class ApprovalScreen(AnswerScreen):
    """One call that waits for approval. What is sent names the digest of the arguments that are shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f5", "remember", "Approve for a while", show=False),
        Binding("ctrl+e", "change", "Change", show=False, priority=True),
        Binding("f7", "earlier", "Called before", show=False),
    ]

    def __init__(self, request: PendingRequest) -> None:
        super().__init__(request)
        assert isinstance(self._body, ApprovalBody)
        self._call = self._body
        # Whether the arguments have changed since the person last tried to approve. The next attempt may be meant for
        # the old arguments, so it sends nothing and only clears this.
        self._must_review = False
        self._is_reading = False  # whether the call is being read again

    @property
    def _view(self) -> ApprovalView | None:
        """Return the call to approve as plain data; None if it cannot be read."""
        return approval_view(self._request)

    @property
    def second_line(self) -> Text:
        """Return how many have to approve, or the rule; and the key that shows the caller's earlier calls, if any."""
        view = self._view
        if view is None:
            return Text()
        text = Text(view.progress or f"rule {view.rule}", style="yellow" if view.progress else "")
        count = len(view.before)
        calls = "its call" if count == 1 else f"its {count} calls"
        return text.append(f" · f7 shows {calls} before" if count else "")

    def compose_buttons(self) -> ComposeResult:
        """Yield the ways to decide that the rule allows."""
        view = self._view
        yield Button("Approve (ctrl+s)", id="send", variant="success", compact=True)
        if view is not None and (view.remember or view.suggestions):
            yield Button("For a while (f5)", id="remember", variant="success", compact=True)
        if view is not None and view.may_change:
            yield Button("Change (^e)", id="change", variant="warning", compact=True)
        yield Button("Deny (f8)", id="decline", variant="error", compact=True)
        yield Button("Leave (esc)", id="leave", compact=True)

    def follow_changes(self, current: PendingRequest) -> None:
        """Read the call again when somebody has approved it or changed its arguments."""
        state = (current.arguments_digest, current.approvals)
        if state != (self._request.arguments_digest, self._request.approvals) and not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_again(), group="news")

    async def _read_again(self) -> None:
        """Read the call again and show it; if its arguments have changed, the person has to look at it again."""
        try:
            request = await self.hub_app.hub.inbox.get(self._request.id)
        except HubbubError:
            return  # the next `follow_changes` tries again
        finally:
            self._is_reading = False
        if request.state != "open":
            return
        is_changed = request.arguments_digest != self._request.arguments_digest
        self._request = request
        self._call.show_request(request)
        if is_changed:
            self._must_review = True
            view = self._view
            self._show_banner(
                f"{view.changed if view else 'this call has changed'}: look at it again", "bad", stays=True
            )

    def action_send(self) -> None:
        """Approve the call that is shown; changed arguments are shown once more before they are sent."""
        self._approve({})

    def action_remember(self) -> None:
        """Ask for how long, or with which suggestion of the host, to approve the call; then approve the call that way.

        If the rule allows neither, only notify.
        """
        view = self._view
        if self._is_closed or view is None:
            return
        options = further_options(view)
        if not options:
            self.notify("this rule is asked each time: nothing is remembered")
            return

        def approve(index: int | None) -> None:
            """Approve with the option at an index; None: the person left."""
            if index is not None:
                self._approve(options[index][1])

        question = f"For how long may {view.caller} call {view.tool} on {view.server} without being asked about?"
        if not view.remember:
            question = f"Approve it, and what else may {view.caller} do?"
        self.hub_app.push_screen(ChoicePrompt(question, [label for label, _ in options], 0), approve)

    def action_change(self) -> None:
        """Switch between the call and its arguments as JSON."""
        view = self._view
        if self._is_closed:
            return
        if view is not None and view.may_change:
            self._call.switch_editor()
        else:
            self.notify("this rule does not allow to change arguments")

    def action_decline(self) -> None:
        """Deny the call with a reason."""

        def deny(reason: str | None) -> None:
            """Deny with a reason, which may be empty; None: the person left."""
            if reason is not None:
                self._start_answering({"deny": reason})

        if not self._is_closed:
            self.hub_app.push_screen(TextPrompt("Deny it. Why? The caller gets this", ""), deny)

    def action_earlier(self) -> None:
        """Show what the caller called before."""
        view = self._view
        if view is not None and view.before:
            self.hub_app.push_screen(EarlierCalls(view.caller, view.server, view.before))

    def _approve(self, options: dict[str, Any]) -> None:
        """Approve the call, after a question if this person has changed its arguments.

        If somebody else has changed the call since it was shown, only ask to look at it; if all is over, go back.
        """
        if self._is_closed:
            self.action_leave()
            return
        if self._must_review:
            self._must_review = False
            self._show_banner("this is not what you saw before: look at it, then press it once more", "bad", stays=True)
            return
        try:
            answer = self._call.answer()
        except Incomplete:  # the body shows what is wrong
            return
        answer["approve"].update(options)
        if "arguments" not in answer["approve"]:
            self._start_answering(answer)
            return
        question = describe_change(self._call.arguments, answer["approve"]["arguments"])

        def send_if_confirmed(confirmed: bool | None) -> None:
            """Send the changed arguments, if the person said yes and nothing has changed meanwhile."""
            if confirmed and not self._must_review:
                self._start_answering(answer)

        self.hub_app.push_screen(Confirm(question), send_if_confirmed)

    async def _show_arguments(self) -> None:
        """Show no arguments: the screen shows the whole call."""

    async def _handle_refusal(self, error: FailedPrecondition) -> None:
        """If the call has changed, or this person has approved it, say this and show the call as it is now.

        Any other refusal has the request claimed again, or shows how the request ended.
        """
        if error.reason not in ("ARGUMENTS_CHANGED", "ALREADY_APPROVED"):
            await super()._handle_refusal(error)
            return
        self._show_banner(error.message, "bad", stays=True)
        await self._read_again()

    def _show_end(self, request: PendingRequest, *, from_here: bool) -> None:
        """Leave after an approval from here if others have to approve, too; else show the end of the request."""
        if not (from_here and request.state == "open"):
            super()._show_end(request, from_here=from_here)
            return
        view = approval_view(request)
        self.notify(f"You have approved it. {view.progress if view else ''}")
        self.dismiss(None)


def further_options(view: ApprovalView) -> list[tuple[str, dict[str, Any]]]:
    """Return the ways to approve more than this call: each in words, and as the arguments of an approval."""
    remembered = [
        (
            f"{each.label}, {'these arguments only' if same else 'any arguments'}",
            {"remember_s": each.seconds, "same_arguments": same},
        )
        for each in view.remember
        for same in (False, True)
    ]
    return [*remembered, *((each.label, {"suggestions": [each.index]}) for each in view.suggestions)]


def describe_change(old: object, new: object) -> str:
    """Return the question whether changed arguments are to be sent, with what is different."""
    lines = [safe_text(each, 200) for each in change_lines(editable_json(old), editable_json(new))]
    more = [f"… {len(lines) - MAX_CONFIRMED_LINES} lines more"] if len(lines) > MAX_CONFIRMED_LINES else []
    return "\n".join(("Approve it with these changes?", "", *lines[:MAX_CONFIRMED_LINES], *more))
