"""Asks models within the limits of the rules, and keeps what that took."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio

from hubbub_agent.decision import OverBudget
from hubbub_agent.models.chat import most, tokens_of
from hubbub_agent.models.client import ModelEndpoint, NotAsked
from hubbub_agent.rules.limits import NOTHING, OverLimit, UsageMeter, Use
from hubbub_agent.rules.rulebook import Rulebook
from hubbub_agent.usage_ledger import UsageLedger


class Purse:
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
        # The limits that were said and still hold: one that allows nothing, and one that has no room for a request.
        self._said: dict[str, str] = {}
        self._settled = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, rules: Rulebook, say: Callable[[str], None], ledger: UsageLedger | None = None
    ) -> AsyncGenerator["Purse"]:
        """Open the endpoints of all models; `ledger` keeps usage over restarts. Raises LedgerProblem."""
        async with AsyncExitStack() as stack:
            endpoints = {
                name: await stack.enter_async_context(ModelEndpoint.open(model)) for name, model in rules.chat.items()
            }
            yield cls(rules, endpoints, say, ledger)

    def over(self) -> str | None:
        """Return the name of a limit that is reached, else None; the first time it is said."""
        limit = self._meter.over(time.time())
        if limit is None:
            self._said.pop("all", None)
        else:
            self._say_once("all", limit)
        return limit

    def answering(self) -> None:
        """Count an answer when it begins, whatever becomes of it."""
        self._meter.answering(time.time())

    async def ask(self, name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Ask a model: reserve the most that it may take, and settle with the reported usage.

        Raises OverBudget, or AnswerProblem.
        """
        model = self._rules.chat[name]
        reserve = most(body).use(model)
        try:
            while (reserved := self._meter.reserve(reserve, time.time())) is None:
                await self._settled.wait()
        except OverLimit as limit:
            self._say_once("one", str(limit), reserve)
            raise OverBudget(str(limit)) from None
        self._said.pop("one", None)
        used = reserve
        try:
            self._keep()  # before it is spent: a killed agent must not forget it
            said = await self._endpoints[name].ask(body, timeout_s)
            if (tokens := tokens_of(said)) is not None:
                used = tokens.use(model)
        except NotAsked:
            used = NOTHING
            raise
        finally:
            self._meter.settle(reserved, used, time.time())
            self._settled.set()
            self._settled = anyio.Event()
            with suppress(NotAsked):  # then the next request is refused for it
                self._keep()
        return said

    def _keep(self) -> None:
        if self._ledger is None:
            return
        try:
            self._ledger.write(self._meter.minutes(time.time()))
        except OSError as error:
            raise NotAsked(f"the usage cannot be kept, so no model is asked: {error}") from None

    def _say_once(self, kind: str, limit: str, wanted: Use = NOTHING) -> None:
        if limit not in self._said.values():
            self._say(self._meter.says(limit, time.time(), wanted))
        self._said[kind] = limit
