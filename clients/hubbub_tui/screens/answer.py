"""The screen that answers a pending request, and holds its claim while it is open."""

import secrets
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import anyio
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Button, Collapsible, Footer, Static

from hubbub_client.data.records import PendingRequest
from hubbub_client.errors import FailedPrecondition, HubbubError, InvalidArgument, NotFound, PermissionDenied
from hubbub_client.payload import as_object
from hubbub_frontend.display.agents import MORE, agent_view
from hubbub_frontend.display.answers import answer_line
from hubbub_frontend.display.approvals import render_rows
from hubbub_frontend.display.call_details import add_arguments, fetch_asking_call
from hubbub_frontend.display.decisions import UNKNOWN_NOTE, decision_choices, find_wider_decision
from hubbub_frontend.display.questions import add_cause, call_over_warning, headline
from hubbub_frontend.display.records import describe_claim
from hubbub_frontend.display.text import DetailText, line, safe_text, time_left
from hubbub_shared.agent_decisions import AgentDecision
from hubbub_tui.screens.answer_body import create_body
from hubbub_tui.screens.dialogs import DEFAULT_REFUSAL, TextPrompt
from hubbub_tui.screens.form import Incomplete
from hubbub_tui.screens.question import headline_text
from hubbub_tui.widgets.header import Header
from hubbub_tui.widgets.part import Part

CLAIM_S = 60.0
TICK_S = 0.25
# Pause between attempts to get a claim that somebody else holds, seconds.
RETRY_CLAIM_S = 1.0
MAX_BANNER_CHARS = 1000
ELICITATIONS = frozenset(("elicitation_form", "elicitation_url"))

MIN_ROOMY_LINES: Final = 30
"""The fewest lines of a screen that shows the arguments of a call below a sampling or roots request."""


class AnswerScreen(Part, Screen[None]):
    """One pending request: what is asked, why, the answer, and what others do with it meanwhile."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", "Send", show=False, priority=True),
        Binding("f5", "approve_wider", "Approve for longer", show=False),
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
        # An idempotency key, too: an answer whose confirmation was lost is repeated safely.
        self._answer_id = secrets.token_hex(16)
        self._has_claim = False
        # Whether nothing can be answered here any more: the request has ended, or this person may only look.
        self._is_closed = False
        # What is on the screen: the headline, the message on who else has the claim, whether the banner stays when this
        # screen gets the claim, and whether the person was warned that the call is over.
        self._drawn_headline = Text()
        self._claimer_message = ""
        self._banner_stays = False
        self._warned_of_end = False
        # Whether the same person has the claim in another window or program, and wants to take it over.
        self._is_claimed_elsewhere = False
        self._take_over = False
        # Ends the pause before the request is claimed again; and whether the last attempt to claim it has an outcome.
        self._claim_again = anyio.Event()
        self._claim_tried = anyio.Event()
        self._headline = Static(id="headline", classes="asked", markup=False)
        self._banner = Static(id="banner", markup=False)
        self._arguments = Static(id="sent", classes="why", markup=False)
        self._arguments.display = False
        self._body = create_body(request)

    def compose(self) -> ComposeResult:
        why = DetailText()
        add_cause(why, self._request)
        yield Header()
        yield self._headline
        yield self._banner
        with VerticalScroll(id="sheet", can_focus=False):
            yield self._body
            yield self._arguments
            if self._request.more:
                more = DetailText()
                render_rows(more, agent_view(self._request).more)
                yield Collapsible(Static(more.text, markup=False), title=MORE, id="more")
            yield Static(why.text, classes="why", markup=False)
        many = "many options" if self._options else "many" if decision_choices(self._request) else ""
        with Horizontal(classes=f"buttons {many}".strip()):
            yield from self.compose_buttons()
        yield Footer()

    def compose_buttons(self) -> ComposeResult:
        """Yield the buttons of what there is to decide, and `#leave`, the button that decides nothing."""
        if self._options:
            yield from self._compose_options()
            return
        elicitation = self._request.kind in ELICITATIONS
        # If several decisions have one action, the button has the label of the first: reversed, it is set last.
        labels = {each.action: each.short for each in reversed(decision_choices(self._request))}
        yield Button(f"{self._body.verb} (ctrl+s)", id="send", variant="success", compact=True)
        if (wider := find_wider_decision(self._request)) is not None:
            yield Button(f"{wider.short} (f5)", id="approve_wider", variant="success", compact=True)
        no = labels.get("decline", "Decline" if elicitation else "Refuse")
        yield Button(f"{no} (f8)", id="decline", variant="error", compact=True)
        if elicitation:
            yield Button(f"{labels.get('cancel', 'Dismiss')} (f9)", id="dismiss", variant="warning", compact=True)
        yield Button("Leave open (esc)", id="leave", compact=True)

    @property
    def _options(self) -> Sequence[AgentDecision]:
        """Return the decisions (allow, reject, ...) that a coding agent offers as fields of its form; else none."""
        return [each for each in decision_choices(self._request) if each.is_field]

    def _compose_options(self) -> ComposeResult:
        """Yield a button for each of the agent's options, a button that declines if no option rejects, and `#leave`."""
        keys = self._option_keys()
        for index, each in enumerate(self._options):
            key = next((f" ({key})" for key, option in keys.items() if option == each), "")
            variant = "error" if each.rejects else "warning" if each.note else "success"
            yield Button(f"{each.short}{key}", id=f"option-{index}", variant=variant, compact=True)
        if "f8" not in keys:
            yield Button("Decline (f8)", id="decline", variant="error", compact=True)
        yield Button("Leave open (esc)", id="leave", compact=True)

    def _option_keys(self) -> Mapping[str, AgentDecision]:
        """Return the options that have a key, by the key: `ctrl+s` allows, `f5` allows more, `f8` rejects.

        An option whose effect only the agent knows (UNKNOWN_NOTE) has no key.
        """
        yes = [each for each in self._options if not each.rejects]
        plain, noted = [each for each in yes if not each.note], [each for each in yes if each.note]
        no = [each for each in self._options if each.rejects]
        found = (("ctrl+s", plain), ("f5", [each for each in noted if each.note != UNKNOWN_NOTE]), ("f8", no))
        return {key: options[0] for key, options in found if options}

    def _answer_with(self, option: AgentDecision | None) -> None:
        """Answer with one of the agent's options, unless the request has ended or there is no such option."""
        if option is not None and not self._is_closed:
            self._start_answering({"accept": {option.member: option.value}})

    def on_mount(self) -> None:
        """Claim the request, show the arguments of its call, and focus the first field, never a button that sends."""
        self._show_banner("")
        self.set_interval(TICK_S, self._refresh)
        self.run_worker(self._hold_claim(), group="claim")
        self.run_worker(self._show_arguments(), group="sent")
        fields = self.query("Body Input, Body Select, Body Consent, Body SelectionList, Body TextArea")
        # Without a field, the button that decides nothing has the focus: keys typed at once must answer nothing.
        first = next((field for field in fields if field.display), self.query("#leave"))
        first.focus()
        self._refresh()

    def on_unmount(self) -> None:
        """Release the claim, unless the request has ended."""
        if not self._is_closed:
            self.hub_app.release(self._request.id, self._claim_id)

    @on(Button.Pressed)
    async def _run_pressed(self, event: Button.Pressed) -> None:
        """Run the action of a button, by the button's id."""
        id_ = event.button.id or "leave"
        if id_.startswith("option-"):
            self._answer_with(self._options[int(id_.removeprefix("option-"))])
            return
        await self.run_action("dismiss_request" if id_ == "dismiss" else id_)

    def action_send(self) -> None:
        """Send what is filled in, or the agent's option that allows (its key is ctrl+s); if all is over, go back."""
        if self._is_closed:
            self.action_leave()
            return
        if self._options:
            self._answer_with(self._option_keys().get("ctrl+s"))
            return
        try:
            answer = self._body.answer()
        except Incomplete:  # the body shows what is missing
            return
        self._start_answering(answer)

    def action_decline(self) -> None:
        """Answer no: by the agent's option that rejects, if it has one; else decline an elicitation at once, or reject
        a sampling or roots request with a reason.
        """
        if self._is_closed:
            return
        if (option := self._option_keys().get("f8")) is not None:
            self._answer_with(option)
            return
        if self._request.kind in ELICITATIONS:
            self._start_answering({"decline": True})
            return

        def reject(reason: str | None) -> None:
            """Refuse with a reason, DEFAULT_REFUSAL for an empty one; None: the person left."""
            if reason is not None:
                self._start_answering({"reject": reason or DEFAULT_REFUSAL})

        self.hub_app.push_screen(TextPrompt("Reason that the server gets", DEFAULT_REFUSAL), reject)

    def action_approve_wider(self) -> None:
        """Answer with the decision that allows more than what is asked now, if there is one."""
        self._answer_with(self._option_keys().get("f5"))
        if not self._is_closed and (wider := find_wider_decision(self._request)) is not None:
            self._start_answering({"accept": {wider.member: wider.value}})

    def action_dismiss_request(self) -> None:
        """Dismiss an elicitation without a choice."""
        if not self._is_closed and self._request.kind in ELICITATIONS and not self._options:
            self._start_answering({"cancel": True})

    def action_take_over(self) -> None:
        """Have the claim loop take over the same person's claim from another window or program."""
        if not self._is_closed and self._is_claimed_elsewhere:
            self._take_over = True
            self._claim_again.set()

    def action_leave(self) -> None:
        """Go back; the pending request stays open."""
        self.dismiss(None)

    def _start_answering(self, answer: dict[str, object]) -> None:
        """Send an answer in the background; a newer one takes its place."""
        self.run_worker(self._answer(answer), group="answer", exclusive=True)

    async def _answer(self, answer: dict[str, object]) -> None:
        """Send an answer, and show why it is refused, or how the request ended."""
        self._show_banner("sending …")
        # Until the hub has answered the claim, it is unknown whether the answer needs the claim's id.
        await self._claim_tried.wait()
        try:
            answered = await self.hub_app.hub.inbox.answer(
                self._request.id,
                claim_id=self._claim_id if self._has_claim else None,
                answer_id=self._answer_id,
                **answer,  # pyright: ignore[reportArgumentType] - the keywords of an answer, from the body
            )
        except InvalidArgument as error:
            self._show_banner("")
            self._body.show_violations(error.violations or (("answer", error.message),))
        except FailedPrecondition as error:
            await self._handle_refusal(error)
        except HubbubError as error:
            self._show_banner(f"{error.message} · what you wrote is kept here: ctrl+s sends it again", "bad")
        else:
            self._show_end(answered, from_here=True)

    async def _handle_refusal(self, error: FailedPrecondition) -> None:
        """Handle the hub's refusal of a claim or an answer.

        If the claim was lost or is somebody else's, have the request claimed again; else show how the request ended.
        """
        if error.reason in ("ALREADY_CLAIMED", "CLAIM_LOST"):
            self._has_claim = False
            self._claim_again.set()
            self._show_banner(f"{error.message}; what you wrote is kept here", "bad")
            return
        try:
            self._show_end(await self.hub_app.hub.inbox.get(self._request.id), from_here=False)
        except HubbubError:
            self._show_banner(error.message, "bad")

    def _refresh(self) -> None:
        """Show what has changed of the pending request, and the time that is left."""
        if self._is_closed:
            return
        headline_ = headline_text(self._request).append("\n").append_text(self.second_line)
        if (deadline := self._request.deadline) is not None:
            headline_.append(" · time left ").append_text(time_left(deadline))
        if headline_ != self._drawn_headline:
            self._drawn_headline = headline_
            self._headline.update(headline_)
        current = self.hub_app.boards.request(self._request.id)
        if current is None:
            return
        if not self._warned_of_end and (warning := call_over_warning(current)):
            self._warned_of_end = True
            self._show_banner(warning, "bad")
        # The response to an answer on its way says itself how the request ended.
        if current.state != "open" and not self._sending:
            self._is_closed = True
            self.run_worker(self._fetch_end(), group="end")
        else:
            self.follow_changes(current)

    @property
    def second_line(self) -> Text:
        """Return the line below the question."""
        return headline(self._request)

    def follow_changes(self, current: PendingRequest) -> None:
        """Do nothing; a subclass handles changes of the open request here. `current` is it without payloads."""

    async def _fetch_end(self) -> None:
        """Read the ended request, and show how it ended. If it cannot be read, the next refresh tries again."""
        try:
            self._show_end(await self.hub_app.hub.inbox.get(self._request.id), from_here=False)
        except NotFound:
            self._show_banner("this request is not there any more", "bad")
        except HubbubError:
            self._is_closed = False

    async def _show_arguments(self) -> None:
        """Fetch and show the arguments of the call that asks, since the person has to know them for an answer."""
        page = DetailText()
        add_arguments(page, await fetch_asking_call(self.hub_app.hub, self._request))
        self._arguments.update(page.text)
        # On a low screen the arguments would push the text of a sampling request out of sight.
        is_space_enough = self._request.kind in ELICITATIONS or self.size.height >= MIN_ROOMY_LINES
        self._arguments.display = bool(page.text) and is_space_enough

    @property
    def _sending(self) -> bool:
        """Return whether an answer is on its way."""
        return any(worker.group == "answer" and worker.is_running for worker in self.workers)

    def _show_end(self, request: PendingRequest, *, from_here: bool) -> None:
        """After an answer from here, leave, unless the person still has to do something; else show how all ended."""
        self._is_closed = True
        if from_here:
            is_accepted = as_object(request.answer).get("action") == "accept"
            follow_up = self._body.follow_up() if is_accepted else None
            self.hub_app.show_outcome(request)
            if follow_up is None:
                self.dismiss(None)
                return
            self._show_banner(follow_up, "good")
        elif request.state == "answered":
            who = line(request.answered_by or "somebody")
            self._show_banner(f"{who} answered it before you: {answer_line(request)}", "bad")
        else:
            self._show_banner(f"{request.state}: {line(request.reason or 'nobody needs an answer any more')}", "bad")
        self._disable_all()

    def _show_forbidden(self, message: str) -> None:
        """Say that this person may only look, and disable all but the way back."""
        self._is_closed = True
        self._show_banner(f"you can only look at this: {message}", "bad")
        self._disable_all()

    def _disable_all(self) -> None:
        """Disable all fields and buttons but the one that goes back."""
        for button in self.query(".buttons Button").results(Button):
            button.disabled = button.id != "leave"
        for control in self.query("Body Input, Body TextArea, Body Select, Body SelectionList, Body Consent"):
            control.disabled = True
        self.query_one("#leave", Button).focus()

    async def _hold_claim(self) -> None:
        """Claim the pending request, and renew the claim while this screen is open."""
        while not self._is_closed:
            pause_s = CLAIM_S / 3
            take_over, self._take_over = self._take_over, False
            self._claim_again, self._claim_tried = anyio.Event(), anyio.Event()
            try:
                await self.hub_app.claim(self._request.id, self._claim_id, CLAIM_S, take_over=take_over)
                self._has_claim = True
                self._show_claimer("")
            except FailedPrecondition as error:
                pause_s = RETRY_CLAIM_S
                if error.reason == "ALREADY_CLAIMED":
                    self._has_claim = False
                    self._explain_claimer(error)
                elif not self._sending:  # the response to an answer on its way says how the request ended
                    await self._handle_refusal(error)
            except PermissionDenied as error:
                self._show_forbidden(error.message)
                return
            except HubbubError:
                pause_s = RETRY_CLAIM_S
            finally:
                self._claim_tried.set()
            with anyio.move_on_after(pause_s):
                await self._claim_again.wait()

    def _explain_claimer(self, refusal: FailedPrecondition) -> None:
        """Say who has the claim; a claim of the same person can be taken over."""
        self._is_claimed_elsewhere = "own" in refusal.metadata  # the hub adds it to a claim of the same person
        if self._is_claimed_elsewhere:
            self._show_claimer("you are answering this in another window or program: f6 answers it here")
            return
        claim = (self.hub_app.boards.request(self._request.id) or self._request).claim
        if claim is not None and claim.host:
            claimer = describe_claim(claim)
        else:
            claimer = f"being answered by {refusal.metadata.get('claimed_by', 'somebody')}"
        self._show_claimer(f"{line(claimer)}: what you send now is refused")

    def _show_claimer(self, message: str) -> None:
        """Show the message that says who else has the claim, if it is new; empty: this screen has the claim."""
        if message != self._claimer_message:
            if message or not self._banner_stays:
                self._show_banner(message, "bad")
            self._claimer_message = message
        if not message:
            self._is_claimed_elsewhere = False

    def _show_banner(self, message: str, css_class: str = "", *, stays: bool = False) -> None:
        """Show a banner; an empty message hides it. With `stays`, the banner remains when the claim arrives."""
        self._banner_stays = stays
        self._banner.update(safe_text(message, MAX_BANNER_CHARS))
        self._banner.display = bool(message)
        self._banner.set_classes(css_class)
