"""Asks models within the limits of the rules, and keeps what that took."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio

from hubbub_agent.decision import OverBudget
from hubbub_agent.models.chat import max_usage, reported_usage
from hubbub_agent.models.client import ModelEndpoint, NotAsked
from hubbub_agent.rules.limits import NO_USAGE, ModelUsage, OverLimit, UsageMeter
from hubbub_agent.rules.rulebook import Rulebook
from hubbub_agent.usage_ledger import UsageLedger


class ModelBudget:
    """The models of the rules, and what may still be spent on them. `say` gets messages for the operator."""

    def __init__(
        self,
        rules: Rulebook,
        endpoints: Mapping[str, ModelEndpoint],
        say: Callable[[str], None],
        ledger: UsageLedger | None,
    ) -> None:
        self._rules = rules
        self._endpoints = endpoints
        self._say = say
        self._ledger = ledger
        self._meter = UsageMeter(rules.limits, ledger.read() if ledger is not None else ())
        # Names of limits that the operator knows of and that still hold: under "all" one that is reached, under
        # "one" one that had no room for a request.
        self._announced: dict[str, str] = {}
        # Set, and replaced by a new one, when a reservation has been replaced by the real usage.
        self._settled = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, rules: Rulebook, say: Callable[[str], None], ledger: UsageLedger | None = None
    ) -> AsyncGenerator["ModelBudget"]:
        """Open the endpoints of all models; `ledger` keeps usage over restarts. Raises LedgerProblem."""
        async with AsyncExitStack() as stack:
            endpoints = {
                name: await stack.enter_async_context(ModelEndpoint.open(model)) for name, model in rules.chat.items()
            }
            yield cls(rules, endpoints, say, ledger)

    def reached_limit(self) -> str | None:
        """Return the name of a limit that is reached, else None; report it to the operator the first time."""
        limit = self._meter.reached_limit(time.time())
        if limit is None:
            self._announced.pop("all", None)
        else:
            self._announce_once("all", limit)
        return limit

    def count_answer(self) -> None:
        """Count an answer when it begins, whatever becomes of it."""
        self._meter.count_answer(time.time())

    async def ask(self, name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Ask a model, and return its completion. Raises OverBudget, or AnswerProblem.

        The most that the request may take is reserved first; this waits while other reservations are in the way.
        Afterwards the usage that the model reports replaces the reservation.
        """
        model = self._rules.chat[name]
        most = max_usage(body).at_prices_of(model)
        try:
            while (ticket := self._meter.reserve(most, time.time())) is None:
                await self._settled.wait()
        except OverLimit as limit:
            self._announce_once("one", str(limit), most)
            raise OverBudget(str(limit)) from None
        self._announced.pop("one", None)
        used = most  # counts if the usage does not become known
        try:
            self._save_usage()  # before it is spent: a killed agent must not forget it
            completion = await self._endpoints[name].ask(body, timeout_s)
            if (tokens := reported_usage(completion)) is not None:
                used = tokens.at_prices_of(model)
        except NotAsked:
            used = NO_USAGE
            raise
        finally:
            self._meter.settle(ticket, used, time.time())
            self._settled.set()
            self._settled = anyio.Event()
            with suppress(NotAsked):  # the next request tries again to save it, and is refused if that fails
                self._save_usage()
        return completion

    def _save_usage(self) -> None:
        """Write the usage into the ledger, if there is one. Raises NotAsked."""
        if self._ledger is None:
            return
        try:
            self._ledger.write(self._meter.minutes(time.time()))
        except OSError as error:
            raise NotAsked(f"the usage cannot be kept, so no model is asked: {error}") from None

    def _announce_once(self, scope: str, limit: str, requested: ModelUsage = NO_USAGE) -> None:
        """Report a limit to the operator, unless it was reported and still holds; `scope` is a key of `_announced`."""
        if limit not in self._announced.values():
            self._say(self._meter.describe_limit(limit, time.time(), requested))
        self._announced[scope] = limit
