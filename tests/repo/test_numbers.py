"""Numbers from outside are read by one module: nothing else turns values into numbers, dates or durations."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..syntax import tree

REPOSITORY = Path(__file__).resolve().parents[2]
HUB, CLIENTS = REPOSITORY / "hub" / "hubbubd", REPOSITORY / "clients"

READERS = {HUB / "bounds.py", CLIENTS / "hubbub_client" / "numbers.py"}
CONVERSIONS = {"int", "float"}
CALENDAR = {
    *("fromtimestamp", "utcfromtimestamp", "timedelta", "parsedate_to_datetime", "parsedate", "strptime"),
    *("FromMicroseconds", "FromMilliseconds", "FromNanoseconds", "FromSeconds", "FromTimedelta", "FromDatetime"),
}

EXCEPTIONS = {
    "hub/hubbubd/upstream/stdio/reaper.py": {"int": "arguments that the hub itself gives this program"},
    "hub/hubbubd/upstream/stdio/process.py": {"int": "reports of the hub's own reaper, and names in /proc"},
    "hub/hubbubd/runtime/servers/measures.py": {"int": "of a boolean"},
    "hub/hubbubd/runtime/diagnostics/checks.py": {"timedelta": "a constant"},
    "hub/hubbubd/runtime/calls/tasks/support.py": {"int": "of settings, which have bounds"},
    "hub/hubbubd/store/sqlite/engine.py": {"int": "what SQLite has cast to one"},
    "hub/hubbubd/telemetry/trace.py": {"int": "of a boolean, and of hexadecimal digits that a pattern has counted"},
    "hub/hubbubd/telemetry/process.py": {"int": "what the kernel says of this process"},
    "hub/hubbubd/telemetry/sdk/tracer.py": {"int": "ids that the hub has made, or that a pattern has counted"},
    "hub/hubbubd/config/policy/hosts.py": {"int": "of an address, not of a text"},
    "hub/hubbubd/rpc/auth/jwks.py": {"float": "a constant"},
    "hub/hubbubd/rpc/servicers/catalog.py": {"float": "a place in a list"},
    "hub/hubbubd/rpc/status.py": {"FromMilliseconds": "of what a reader has bounded"},
    "hub/hubbubd/rpc/messages/api_records.py": {
        "FromMicroseconds": "raises for what no calendar has; `shown` shows the rest",
        "FromMilliseconds": "raises for what is longer than any duration; `shown` shows the rest",
    },
    "hub/hubbubd/rpc/messages/json_codec.py": {
        "int": "of digits that a pattern has counted, within the range of the field",
        "float": "of digits that a pattern has counted; what is past a double is refused",
    },
    "hub/hubbubd/rpc/servicers/members.py": {"FromMicroseconds": "bounded"},
    "hub/hubbubd/rpc/spec_fields.py": {"FromMicroseconds": "of what a reader has bounded"},
    "clients/hubbub_tui/panes/pane.py": {"int": "of the time of this machine"},
    "clients/hubbub_agent/rules/limits.py": {"int": "of constants"},
    "clients/hubbub_agent/models/client.py": {"parsedate_to_datetime": "raises ValueError for what is no date"},
    "clients/hubbub_agent/models/chat.py": {"int": "the rule's limit on what a server asks for"},
    "clients/hubbub_client/transport/handshake.py": {"int": "the port of an address that was checked"},
    "clients/hubbub_frontend/display/text.py": {"int": "the difference of two dates"},
    "clients/hubbub_frontend/display/records.py": {"int": "the difference of two dates"},
    "clients/hubbub_cli/machine/checks.py": {"int": "hexadecimal digits of the kernel, in /proc"},
    "clients/hubbub_cli/output/timeline.py": {"int": "the share of a line's width"},
    "clients/hubbub_notify/push.py": {"int": "of the time of this machine"},
    "clients/hubbub_notify/quiet_hours.py": {
        "fromtimestamp": "of the time of this machine, or of a record's date and a week"
    },
    "clients/hubbub_cli/notices/webhook.py": {"int": "of the time of this machine"},
    "clients/hubbub_cli/commands/doctor.py": {"timedelta": "constants"},
    "clients/hubbub_frontend/certs.py": {"timedelta": "days that the command line has bounded"},
    "clients/hubbub_client/services/audit.py": {"FromDatetime": "of a date, which a timestamp can hold"},
}


def raw_conversions(module: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls that make a number, a date or a duration of any value. `case int():` is no call."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            member = node.func.attr if isinstance(node.func, ast.Attribute) else name
            if name in CONVERSIONS or member in CALENDAR:
                yield node.lineno, name or member


def raw_arithmetic(module: ast.AST) -> Iterator[tuple[int, str]]:
    """Arithmetic and comparisons of size with what came right out of a mapping by a literal key."""
    for node in ast.walk(module):
        operands: list[ast.expr] = []
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Mod() | ast.Pow()):
                operands = [node.left, node.right]
            case ast.Compare() if any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops):
                operands = [node.left, *node.comparators]
            case ast.Call(func=ast.Name(id="min" | "max" | "round" | "abs" | "range" | "sum")):
                operands = node.args
            case ast.Call(func=ast.Attribute(attr="sleep" | "fail_after" | "move_on_after" | "call_later")):
                operands = node.args
            case _:
                continue
        for operand in operands:
            if any(map(_out_of_a_mapping, [operand, *getattr(operand, "values", [])])):
                yield node.lineno, ast.unparse(operand)


def _out_of_a_mapping(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str()), *_]):
            return True
        case ast.Subscript(slice=ast.Constant(value=str())):
            return True
        case _:
            return False


def found(path: Path) -> list[str]:
    name = str(path.relative_to(REPOSITORY))
    module = tree(path)
    allowed = EXCEPTIONS.get(name, {})
    conversions = [f"{name}:{line}: {what}" for line, what in raw_conversions(module) if what not in allowed]
    return conversions + [f"{name}:{line}: {what}" for line, what in raw_arithmetic(module)]


@pytest.mark.parametrize("room", [HUB, CLIENTS], ids=["hub", "clients"])
def test_nothing_but_the_readers_makes_numbers_of_what_others_say(room: Path) -> None:
    """Read it with `hubbubd.bounds` (in clients: `hubbub_client.numbers`), or add an exception with its reason."""
    files = [path for path in room.rglob("*.py") if path not in READERS]
    assert len(files) > 50
    assert [problem for path in sorted(files) for problem in found(path)] == []


def test_an_exception_is_for_a_file_that_there_is() -> None:
    assert [name for name in EXCEPTIONS if not (REPOSITORY / name).is_file()] == []


@pytest.mark.parametrize(
    "line",
    [
        "ttl_s = int(wire.get('ttl'))",
        "wait_s = float(headers['retry-after'])",
        "until = datetime.fromtimestamp(at, UTC)",
        "until = email.utils.parsedate_to_datetime(text)",
        "stamp.FromMicroseconds(at)",
        "span = timedelta(seconds=value)",
        "ttl_s = result.get('ttl') / 1000",
        "ttl_s = (result.get('ttl') or 5) * 2",
        "until = now + token['expires_in']",
        "late = claims['exp'] < now",
        "wait_s = min(60, fault.details.get('wait'))",
        "await anyio.sleep(wire['pollInterval'])",
    ],
)
def test_the_check_sees_the_mistake(line: str) -> None:
    module = ast.parse(f"async def planted():\n    {line}\n")
    assert [*raw_conversions(module), *raw_arithmetic(module)]


@pytest.mark.parametrize(
    "line",
    ["ttl_ms = bounds.whole(wire.get('ttl'))", "same = a['x'] == 1", "match value:\n    case int():\n        pass"],
)
def test_the_check_lets_pass_what_is_read_or_only_compared(line: str) -> None:
    module = ast.parse(line)
    assert not [*raw_conversions(module), *raw_arithmetic(module)]
