"""What an agent has used of its models counts over its restarts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from hubbub_agent.decision import OverBudget
from hubbub_agent.models.budget import ModelBudget
from hubbub_agent.models.client import ModelEndpoint
from hubbub_agent.rules.limits import DAY_S, HOUR_S, Minute, ModelUsage, OverLimit, UsageLimits, UsageMeter
from hubbub_agent.rules.rulebook import parse_rules
from hubbub_agent.usage_ledger import LedgerProblem, UsageLedger, usage_file

NOW = 1_800_000_000.0


def spend(meter: UsageMeter, use: ModelUsage, now: float) -> None:
    number = meter.reserve(use, now)
    assert number is not None
    meter.settle(number, use, now)


def test_what_an_earlier_run_has_used_counts_for_an_hour_and_a_day_but_not_for_this_run() -> None:
    limits = UsageLimits(tokens_per_hour=100, cost_per_day=2.0, tokens_per_run=60, requests_per_day=10)
    meter = UsageMeter(limits, [Minute(NOW - 1800, ModelUsage(60, 1.0, 3))])
    with pytest.raises(OverLimit, match="tokens_per_hour"):
        meter.reserve(ModelUsage(41), NOW)
    spend(meter, ModelUsage(40, 0.5, 1), NOW)
    assert meter.reached_limit(NOW) == "tokens_per_hour"
    assert meter.reached_limit(NOW + HOUR_S) is None
    with pytest.raises(OverLimit, match="tokens_per_run"):
        meter.reserve(ModelUsage(21), NOW + HOUR_S)
    with pytest.raises(OverLimit, match="cost_per_day"):
        meter.reserve(ModelUsage(1, 0.6), NOW + HOUR_S)
    with pytest.raises(OverLimit, match="requests_per_day"):
        meter.reserve(ModelUsage(1, 0.1, 7), NOW + HOUR_S)
    assert meter.reserve(ModelUsage(1, 0.6), NOW + DAY_S) is not None


def test_a_limit_says_how_much_is_used_and_who_answers_then() -> None:
    meter = UsageMeter(UsageLimits(tokens_per_hour=1000, cost_per_run=0.5))
    spend(meter, ModelUsage(1000, 0.5), NOW)
    assert meter.describe_limit("tokens_per_hour", NOW) == (
        "tokens_per_hour is reached (1,000 of 1,000 used): for at most an hour, people answer"
    )
    assert "until the agent is started again" in meter.describe_limit("cost_per_run", NOW)


class Model:
    """A model that says this was used."""

    def __init__(self, usage: Any) -> None:
        self.usage = usage

    async def ask(self, _: Mapping[str, Any], __: float) -> Mapping[str, Any]:
        return {"usage": self.usage}


def model_budget(model: Model, said: list[str], **limits: int) -> ModelBudget:
    chat = {"m": {"base_url": "http://127.0.0.1:1", "model": "m"}}
    book = parse_rules({"chat": chat, "limits": limits, "rule": [{"chat": "m"}]})
    return ModelBudget(book, {"m": cast("ModelEndpoint", model)}, said.append, None)


@pytest.mark.parametrize("usage", [None, {"input_tokens": 1, "output_tokens": 1}, {"prompt_tokens": "1"}])
async def test_where_a_model_does_not_say_what_was_used_all_that_was_reserved_counts(usage: Any) -> None:
    held = model_budget(Model(usage), [], tokens_per_run=1500)
    await held.ask("m", {"max_tokens": 1000}, 60)
    with pytest.raises(OverBudget, match="tokens_per_run"):
        await held.ask("m", {"max_tokens": 1000}, 60)


async def test_a_limit_without_room_for_a_request_says_so_once_and_what_to_change() -> None:
    said: list[str] = []
    held = model_budget(Model({"prompt_tokens": 30}), said, tokens_per_hour=1500)
    await held.ask("m", {"max_tokens": 1000}, 60)
    for _ in range(3):
        assert held.reached_limit() is None
        with pytest.raises(OverBudget, match="tokens_per_hour"):
            await held.ask("m", {"max_tokens": 1500}, 60)
    (line,) = said
    assert line.startswith("tokens_per_hour has no room for a request that may take 1,519 (30 of 1,500 used)")
    assert line.endswith("raise it, or lower max_tokens")


def test_usage_is_kept_in_a_file_for_its_owner_and_what_is_reserved_counts_as_used(tmp_path: Path) -> None:
    path = usage_file(tmp_path / "data", "ro/bot")
    meter = UsageMeter(UsageLimits(tokens_per_day=100))
    spend(meter, ModelUsage(10, 0.1, 1), NOW)
    assert meter.reserve(ModelUsage(20, 0.2, 1), NOW + 1) is not None  # the agent is killed while the model works
    with UsageLedger.open_locked(path) as ledger:
        assert ledger.read() == ()
        ledger.write(meter.minutes(NOW + 1))
    assert path.name == "agent-ro_bot.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with UsageLedger.open_locked(path) as ledger:
        next_run = UsageMeter(UsageLimits(tokens_per_day=100), ledger.read())
    with pytest.raises(OverLimit, match="tokens_per_day"):
        next_run.reserve(ModelUsage(71), NOW + 2)
    assert next_run.reserve(ModelUsage(70), NOW + 2) is not None
    assert not next_run.minutes(NOW + 2 * DAY_S)[:-1]


def test_two_agents_do_not_count_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    with (
        UsageLedger.open_locked(path),
        pytest.raises(LedgerProblem, match="hubbub --as NAME agent"),
        UsageLedger.open_locked(path),
    ):
        pass
    with UsageLedger.open_locked(path):
        pass


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "{}", '{"version": 2}', "\xff"])
def test_a_file_that_is_no_usage_is_refused_and_never_counts_as_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "agent.json"
    path.write_text(content, encoding="latin-1")
    with UsageLedger.open_locked(path) as ledger, pytest.raises(LedgerProblem, match="remove it to count from zero"):
        ledger.read()


def test_numbers_of_the_file_that_cannot_be_are_not_credited(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    odd = [{"since": NOW, "tokens": -5, "cost": -1.0, "requests": "x"}, {"since": "soon"}, {"since": NOW, "tokens": 5}]
    path.write_text(json.dumps({"version": 1, "minutes": odd}))
    with UsageLedger.open_locked(path) as ledger:
        assert [each.use for each in ledger.read()] == [ModelUsage(0), ModelUsage(5)]


def test_a_place_where_nothing_can_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(LedgerProblem, match="name another file"),
        UsageLedger.open_locked(tmp_path / "file" / "agent.json"),
    ):
        pass
