"""Asks models within the limits of the rules, and stores their usage."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio

from hubbub_agent.decision import OverBudget
from hubbub_agent.models.chat import max_usage, reported_usage
from hubbub_agent.models.client import ModelEndpoint, ModelNotAsked
from hubbub_agent.rules.limits import NO_USAGE, ModelUsage, OverLimit, UsageMeter
from hubbub_agent.rules.rulebook import Rulebook
from hubbub_agent.usage_ledger import UsageLedger


class ModelBudget:
    """The models of the rules, and the rest of their limits. `report` gets messages for the operator."""

    def __init__(
        self,
        rules: Rulebook,
        endpoints: Mapping[str, ModelEndpoint],
        report: Callable[[str], None],
        ledger: UsageLedger | None,
    ) -> None:
        self._rules = rules
        self._endpoints = endpoints
        self._report = report
        self._ledger = ledger
        self._meter = UsageMeter(rules.limits, ledger.read() if ledger is not None else ())
        # Names of limits that the operator knows of and that still hold: under "all" one that is reached, under
        # "one" one that had no room for a request.
        self._reported_limits: dict[str, str] = {}
        # Set, and replaced by a new one, when a reservation has been replaced by the real usage.
        self._usage_settled = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, rules: Rulebook, report: Callable[[str], None], ledger: UsageLedger | None = None
    ) -> AsyncGenerator["ModelBudget"]:
        """Open the endpoints of all models; `ledger` stores usage over restarts. Raises LedgerProblem."""
        async with AsyncExitStack() as stack:
            endpoints = {
                name: await stack.enter_async_context(ModelEndpoint.open(model)) for name, model in rules.chat.items()
            }
            yield cls(rules, endpoints, report, ledger)

    def reached_limit(self) -> str | None:
        """Return the name of a limit that is reached, else None; report the limit to the operator the first time."""
        limit = self._meter.reached_limit(time.time())
        if limit is None:
            self._reported_limits.pop("all", None)
        else:
            self._report_once("all", limit)
        return limit

    def count_answer(self) -> None:
        """Count an answer when it begins, whatever its outcome."""
        self._meter.count_answer(time.time())

    async def ask(self, name: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Ask a model, and return its completion. Raises OverBudget, or AnswerProblem.

        Before, reserve the most that the request may use, and wait while other reservations are in the way. Afterwards
        the usage that the model reports replaces the reservation.
        """
        model = self._rules.chat[name]
        maximum = max_usage(body).to_model_usage(model)
        try:
            while (ticket := self._meter.reserve(maximum, time.time())) is None:
                await self._usage_settled.wait()
        except OverLimit as limit:
            self._report_once("one", str(limit), maximum)
            raise OverBudget(str(limit)) from None
        self._reported_limits.pop("one", None)
        used = maximum  # counts if the usage does not become known
        try:
            self._save_usage()  # before it is spent: a killed agent must not forget it
            completion = await self._endpoints[name].ask(body, timeout_s)
            if (tokens := reported_usage(completion)) is not None:
                used = tokens.to_model_usage(model)
        except ModelNotAsked:
            used = NO_USAGE
            raise
        finally:
            self._meter.settle(ticket, used, time.time())
            self._usage_settled.set()
            self._usage_settled = anyio.Event()
            with suppress(ModelNotAsked):  # the next request tries again to save it, and is refused if that fails
                self._save_usage()
        return completion

    def _save_usage(self) -> None:
        """Write the usage into the ledger, if there is one. Raises ModelNotAsked."""
        if self._ledger is None:
            return
        try:
            self._ledger.write(self._meter.minutes(time.time()))
        except OSError as error:
            raise ModelNotAsked(f"the usage cannot be kept, so no model is asked: {error}") from None

    def _report_once(self, scope: str, limit: str, requested: ModelUsage = NO_USAGE) -> None:
        """Report a limit to the operator, unless it was reported and still holds.

        `scope` is a key of `_reported_limits`.
        """
        if limit not in self._reported_limits.values():
            self._report(self._meter.describe_limit(limit, time.time(), requested))
        self._reported_limits[scope] = limit
