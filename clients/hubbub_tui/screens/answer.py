"""The screen that answers a pending request, and holds its claim while it is open."""

import secrets
from typing import ClassVar, Final

import anyio
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Button, Footer, Static

from hubbub_client.data.records import PendingRequest
from hubbub_client.errors import FailedPrecondition, HubbubError, InvalidArgument, NotFound
from hubbub_client.payload import as_object
from hubbub_frontend.display.answers import answer_line
from hubbub_frontend.display.call_details import add_arguments, fetch_asking_call
from hubbub_frontend.display.questions import add_cause, call_over_warning, headline
from hubbub_frontend.display.records import describe_claim
from hubbub_frontend.display.text import DetailText, line, safe_text, time_left
from hubbub_tui.screens.answer_body import Body, body_for
from hubbub_tui.screens.dialogs import REFUSED, Ask
from hubbub_tui.screens.form import Incomplete
from hubbub_tui.screens.question import title
from hubbub_tui.widgets.header import Header
from hubbub_tui.widgets.part import Part

CLAIM_S = 60.0
LOOK_S = 0.25
# Pause between attempts to get a claim that somebody else holds, seconds.
AGAIN_S = 1.0
MAX_BANNER_CHARS = 1000
ELICITATIONS = frozenset(("elicitation_form", "elicitation_url"))

ROOMY: Final = 30
"""Lines of a screen that has room for more than the question."""


class AnswerScreen(Part, Screen[None]):
    """One pending request: what is asked, why, the answer, and what others do with it meanwhile."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", "Send", show=False, priority=True),
        Binding("f8", "decline", "No", show=False),
        Binding("f9", "dismiss_request", "Dismiss", show=False),
        Binding("f6", "take_over", "Answer it here", show=False),
        Binding("escape", "leave", "Leave open", show=False),
    ]

    def __init__(self, request: PendingRequest) -> None:
        super().__init__()
        self._request = request
        # The claim's id is an idempotency key: claiming again after a lost response is harmless.
        self._claim_id = secrets.token_urlsafe(18)
        self._held = False
        self._over = False
        self._said = Text()
        # What this screen has said about other claimers, and about the call.
        self._told_holder = ""
        self._told_over = False
        self._own_elsewhere = False
        self._again = anyio.Event()
        self._claimed = anyio.Event()
        self._take_over = False
        self._headline = Static(id="headline", classes="asked", markup=False)
        self._banner = Static(id="banner", markup=False)
        self._sent = Static(id="sent", classes="why", markup=False)
        self._sent.display = False
        # Idempotency key: an answer whose confirmation was lost is repeated safely.
        self._answer_id = secrets.token_hex(16)

    def compose(self) -> ComposeResult:
        elicitation = self._request.kind in ELICITATIONS
        yield Header()
        yield self._headline
        yield self._banner
        with VerticalScroll(id="sheet", can_focus=False):
            yield (body := body_for(self._request))
            yield self._sent
            why = DetailText()
            add_cause(why, self._request)
            yield Static(why.text, classes="why", markup=False)
        with Horizontal(classes="buttons"):
            yield Button(f"{body.verb} (ctrl+s)", id="send", variant="success", compact=True)
            yield Button("Decline (f8)" if elicitation else "Refuse (f8)", id="decline", variant="error", compact=True)
            if elicitation:
                yield Button("Dismiss (f9)", id="dismiss", variant="warning", compact=True)
            yield Button("Leave open (esc)", id="leave", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        """Claim the pending request, and follow its changes."""
        self._tell("")
        self.set_interval(LOOK_S, self._look)
        self.run_worker(self._hold(), group="claim")
        self.run_worker(self._fetch_sent(), group="sent")
        first = self.query("Body Input, Body Select, Body Consent, Body SelectionList, Body TextArea").first()
        # Without a field, the harmless button: what is typed at once must answer nothing.
        first.focus() if first.display else self.query_one("#leave").focus()
        self._look()

    def on_unmount(self) -> None:
        """Release the claim."""
        if not self._over:
            self.hub_app.release(self._request.id, self._claim_id)

    @on(Button.Pressed)
    async def _pressed(self, event: Button.Pressed) -> None:
        actions = {"send": "send", "decline": "decline", "dismiss": "dismiss_request", "leave": "leave"}
        await self.run_action(actions[event.button.id or "leave"])

    def action_send(self) -> None:
        """Send the answer."""
        if self._over:
            self.action_leave()
            return
        try:
            answer = self._body.answer()
        except Incomplete:
            return
        self._give(answer)

    def action_decline(self) -> None:
        """Decline an elicitation at once; reject a sampling or roots request with a reason."""
        if self._over:
            return
        if self._request.kind in ELICITATIONS:
            self._give({"decline": True})
            return

        def refuse(reason: str | None) -> None:
            if reason is not None:
                self._give({"reject": reason or REFUSED})

        self.hub_app.push_screen(Ask("Reason that the server gets", REFUSED), refuse)

    def action_dismiss_request(self) -> None:
        """Dismiss an elicitation without a choice."""
        if not self._over and self._request.kind in ELICITATIONS:
            self._give({"cancel": True})

    def action_take_over(self) -> None:
        """Take over the same person's claim from another window or program."""
        if not self._over and self._own_elsewhere:
            self._take_over = True
            self._again.set()

    def action_leave(self) -> None:
        """Go back; the pending request stays open."""
        self.dismiss(None)

    @property
    def _body(self) -> Body:
        return self.query_one(Body)

    def _give(self, answer: dict[str, object]) -> None:
        self.run_worker(self._answer(answer), group="answer", exclusive=True)

    async def _answer(self, answer: dict[str, object]) -> None:
        self._tell("sending …")
        await self._claimed.wait()  # while the claim is on its way, it is not known whether the answer needs its id
        try:
            given = await self.hub_app.hub.inbox.answer(
                self._request.id,
                claim_id=self._claim_id if self._held else None,
                answer_id=self._answer_id,
                **answer,  # pyright: ignore[reportArgumentType] - the keywords of an answer, from the body
            )
        except InvalidArgument as error:
            self._tell("")
            self._body.show_violations(error.violations or (("answer", error.message),))
        except FailedPrecondition as error:
            await self._refused(error)
        except HubbubError as error:
            self._tell(f"{error.message} · what you wrote is kept here: ctrl+s sends it again", "bad")
        else:
            self._end(given, mine=True)

    async def _refused(self, error: FailedPrecondition) -> None:
        if error.reason in ("ALREADY_CLAIMED", "CLAIM_LOST"):
            self._held = False
            self._again.set()
            self._tell(f"{error.message}; what you wrote is kept here", "bad")
            return
        try:
            self._end(await self.hub_app.hub.inbox.get(self._request.id), mine=False)
        except HubbubError:
            self._tell(error.message, "bad")

    def _look(self) -> None:
        """Follow the changes of the pending request."""
        if self._over:
            return
        seen = self.hub_app.boards.request(self._request.id)
        said = title(self._request).append("\n").append_text(headline(self._request))
        if (deadline := self._request.deadline) is not None:
            said.append(" · time left ").append_text(time_left(deadline))
        if said != self._said:
            self._said = said
            self._headline.update(said)
        if seen is not None and not self._told_over and (over := call_over_warning(seen)):
            self._told_over = True
            self._tell(over, "bad")
        if seen is not None and seen.state != "open" and not self._sending:
            self._over = True
            self.run_worker(self._fetch_end(), group="end")

    async def _fetch_end(self) -> None:
        try:
            self._end(await self.hub_app.hub.inbox.get(self._request.id), mine=False)
        except NotFound:
            self._tell("this request is not there any more", "bad")
        except HubbubError:
            self._over = False

    async def _fetch_sent(self) -> None:
        """Show what the call that asks was sent with: who approves it has to know."""
        page = DetailText()
        add_arguments(page, await fetch_asking_call(self.hub_app.hub, self._request))
        self._sent.update(page.text)
        # On a low screen it would push what a sampling says itself out of sight.
        self._sent.display = bool(page.text) and (self._request.kind in ELICITATIONS or self.size.height >= ROOMY)

    @property
    def _sending(self) -> bool:
        return any(worker.group == "answer" and worker.is_running for worker in self.workers)

    def _end(self, request: PendingRequest, *, mine: bool) -> None:
        self._over = True
        if mine:
            todo = self._body.accepted() if as_object(request.answer).get("action") == "accept" else None
            self.hub_app.show_outcome(request)
            if todo is None:
                self.dismiss(None)
                return
            self._tell(todo, "good")
        elif request.state == "answered":
            answer = answer_line(request)
            self._tell(f"{line(request.answered_by or 'somebody')} answered it before you: {answer}", "bad")
        else:
            self._tell(f"{request.state}: {line(request.reason or 'nobody needs an answer any more')}", "bad")
        for button in self.query(".buttons Button").results(Button):
            button.disabled = button.id != "leave"
        for control in self.query("Body Input, Body TextArea, Body Select, Body SelectionList, Body Consent"):
            control.disabled = True
        self.query_one("#leave", Button).focus()

    async def _hold(self) -> None:
        """Claim the pending request, and renew the claim while this screen is open."""
        while not self._over:
            pause_s, take_over, self._take_over = CLAIM_S / 3, self._take_over, False
            self._again, self._claimed = anyio.Event(), anyio.Event()
            try:
                await self.hub_app.claim(self._request.id, self._claim_id, CLAIM_S, take_over=take_over)
                self._held = True
                self._taken("")
            except FailedPrecondition as error:
                pause_s = AGAIN_S
                if error.reason == "ALREADY_CLAIMED":
                    self._held = False
                    self._taken_by(error)
                elif not self._sending:
                    await self._refused(error)
            except HubbubError:
                pause_s = AGAIN_S
            finally:
                self._claimed.set()
            with anyio.move_on_after(pause_s):
                await self._again.wait()

    def _taken_by(self, refusal: FailedPrecondition) -> None:
        self._own_elsewhere = "own" in refusal.metadata
        if self._own_elsewhere:
            self._taken("you are answering this in another window or program: f6 answers it here")
        else:
            claim = (self.hub_app.boards.request(self._request.id) or self._request).claim
            by = refusal.metadata.get("claimed_by", "somebody")
            holds = describe_claim(claim) if claim is not None and claim.host else f"being answered by {by}"
            self._taken(f"{line(holds)}: what you send now is refused")

    def _taken(self, words: str) -> None:
        if words != self._told_holder:
            self._told_holder = words
            self._tell(words, "bad")
        if not words:
            self._own_elsewhere = False

    def _tell(self, words: str, mood: str = "") -> None:
        self._banner.update(safe_text(words, MAX_BANNER_CHARS))
        self._banner.display = bool(words)
        self._banner.set_classes(mood)
