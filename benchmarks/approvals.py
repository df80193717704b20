"""What rules of approvals cost: a call that they judge and let pass, by itself and through a hub, and a replay."""

import json
import statistics
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import TEXT, Figure, Work, run_in_turns
from processes import HubProcess, start_hub, stdio_server

from hubbubd import payload
from hubbubd.conditions import CallFacts
from hubbubd.config.sections.approvals import ApprovalSettings
from hubbubd.core.approvals.facts import collect_facts
from hubbubd.core.approvals.replay import Replay
from hubbubd.core.approvals.rules import CallRules
from hubbubd.core.calls.call_states import Call

RULES = 100
TURNS = 20
ARGUMENTS = {"text": TEXT, "repo": "shop", "branch": "release/1.4"}
CONDITIONS = [{"when": f"args.text == 'x{number}' && caller != 'nobody'"} for number in range(RULES)]
"""Each is about every call, and none of the conditions holds."""
OTHERS = [{"tools": [f"other_{number}_*"], "when": "args.text == 'x'"} for number in range(RULES)]
"""Not one is about a call."""


async def measure_approvals(directory: Path, *, rounds: int, calls: int) -> list[Figure]:
    """The figures of rules that let all calls pass, whose goals are what a person would not notice."""
    conditions, others = _read_rules(CONDITIONS), _read_rules(OTHERS)
    facts = CallFacts(
        server="light",
        tool="echo",
        args=ARGUMENTS,
        argument_bytes=len(payload.dumps(ARGUMENTS)),
        hints={},
        caller="local",
        roles=("admin",),
        host="",
        profile="",
        now=datetime.now(UTC),
    )
    return [
        Figure(f"a call judged by {RULES} conditions", _us(lambda: conditions.decide(facts), calls), "us", 50),
        Figure(f"by {RULES} rules about other tools", _us(lambda: others.decide(facts), calls), "us", 50),
        Figure(f"{25 * calls} calls replayed by {RULES} conditions", _replay_s(conditions, 25 * calls), "s", 5),
        *await _through_hubs(directory, rounds=rounds, calls=calls),
    ]


async def _through_hubs(directory: Path, *, rounds: int, calls: int) -> list[Figure]:
    """The processor time per call of hubs with rules, to that of one without, in the same rounds."""
    rows = {
        "none": {},
        "conditions": {"HUBBUBD_APPROVALS__RULES": json.dumps(CONDITIONS)},
        "others": {"HUBBUBD_APPROVALS__RULES": json.dumps(OTHERS)},
    }
    async with AsyncExitStack() as open_:
        hubs = [await open_.enter_async_context(_start(directory / name, environ)) for name, environ in rows.items()]
        works, clocks = [_echo(running) for running in hubs], [running.cpu_s for running in hubs]
        series = await run_in_turns(works, rounds=rounds, calls=calls, in_flight=1, clocks=clocks)
    plain, *judged = series
    ratios = [
        statistics.median(b.cpu_ms / a.cpu_ms for a, b in zip(plain.rounds, each.rounds, strict=True))
        for each in judged
    ]
    return [
        Figure("processor per call without rules", plain.cpu_ms, "ms"),
        Figure(f"with {RULES} conditions, to without", ratios[0], "ratio"),
        Figure(f"with {RULES} rules about other tools, to without", ratios[1], "ratio"),
    ]


def _start(directory: Path, environ: Mapping[str, str]) -> Any:
    directory.mkdir()
    return start_hub({"light": stdio_server("light_stdio.py")}, directory, environ=environ)


def _echo(running: HubProcess) -> Work:
    return lambda: running.client.call_tool("light", "echo", ARGUMENTS)


def _read_rules(rows: list[dict[str, Any]]) -> CallRules:
    return CallRules.from_settings(ApprovalSettings.model_validate({"rules": rows}), {})


def _us(work: Callable[[], object], times: int) -> float:
    """Microseconds that the work takes, in the middle one of several turns."""
    took: list[float] = []
    for _ in range(TURNS):
        began = perf_counter()
        for _ in range(max(times // TURNS, 1)):
            work()
        took.append((perf_counter() - began) / max(times // TURNS, 1))
    return statistics.median(took) * 1e6


def _replay_s(rules: CallRules, count: int) -> float:
    """Seconds in which the rules judge so many calls that were made."""
    params = {"name": "echo", "arguments": ARGUMENTS}
    written = payload.dumps(params)
    history = [
        Call(
            id=f"call_{number}",
            server="light",
            method="tools/call",
            params=written,
            principal="local",
            detached=False,
            timeout_s=300,
            max_s=3600,
            created_at=1_700_000_000 + number,
        )
        for number in range(count)
    ]
    replay, began = Replay(rules), perf_counter()
    for _ in replay.judge_in_steps(
        (call, collect_facts(call, payload.loads_object(call.params, ""), {}, call.created_at)) for call in history
    ):
        pass
    replay.summarize()
    return perf_counter() - began
