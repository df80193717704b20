"""Answers by a program: the pending request as JSON on its stdin, the answer as JSON on its stdout."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from json import JSONDecodeError
from subprocess import PIPE

import anyio
from anyio.abc import ByteReceiveStream, Process

from hubbub_agent.rules.problems import AnswerProblem
from hubbub_agent.rules.rulebook import Answer, parse_answer
from hubbub_client import payload
from hubbub_client.data.records import PendingRequest
from hubbub_shared.platform import processes

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
MAX_STDERR_BYTES = 64 * 1024


async def run_program(
    command: Sequence[str], request: PendingRequest, timeout_s: float, report: Callable[[str], None]
) -> Answer | None:
    """Return the program's answer; None if it leaves the pending request to others. Raises AnswerProblem.

    Its stderr goes to `report`, line by line. It is started without a shell. The program, and all processes that it
    started in its session, are killed at the latest when `timeout_s` is over.
    """
    try:
        process = await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True)
    except OSError as error:
        raise AnswerProblem(f"{command[0]} cannot be started: {error}") from None
    try:
        with anyio.fail_after(timeout_s):
            output = await _exchange(process, request, report)
            status = await process.wait()
    except TimeoutError:
        raise AnswerProblem(f"{command[0]} took longer than {timeout_s:g} s") from None
    finally:
        with suppress(ProcessLookupError):  # nothing of its group is left
            processes.kill_group(process.pid)
        # The pipes are closed, and the end of the program is awaited, also when this coroutine is cancelled.
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if status:
        raise AnswerProblem(f"{command[0]} ended with status {status}")
    if len(output) > MAX_OUTPUT_BYTES:
        raise AnswerProblem(f"{command[0]} printed more than {MAX_OUTPUT_BYTES} bytes")
    try:
        # `null` counts as `{}`, which leaves the request to others.
        return parse_answer(payload.loads(output) or {})
    except JSONDecodeError as error:
        raise AnswerProblem(f"{command[0]} printed no JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise AnswerProblem(f"{command[0]}: {error}") from None


async def _exchange(process: Process, request: PendingRequest, report: Callable[[str], None]) -> bytes:
    """Send the program a request on its stdin, and return its output until it closes its stdout and stderr.

    If the program prints too much, the rest is dropped, and the bytes returned are more than MAX_OUTPUT_BYTES.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    output = bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_bounded, process.stdout, output, MAX_OUTPUT_BYTES)
        tasks.start_soon(_forward_stderr, process.stderr, request.id, report)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the program need not read its stdin
            await process.stdin.send(payload.dumps(request.to_json()) + b"\n")
        await process.stdin.aclose()
    return bytes(output)


async def _forward_stderr(stream: ByteReceiveStream, request_id: str, report: Callable[[str], None]) -> None:
    """Read a program's stderr to its end, then call `report` with each of its lines, up to MAX_STDERR_BYTES."""
    output = bytearray()
    await _read_bounded(stream, output, MAX_STDERR_BYTES)
    for line in output[:MAX_STDERR_BYTES].decode(errors="replace").splitlines():
        report(f"{request_id}: {line}")


async def _read_bounded(stream: ByteReceiveStream, output: bytearray, max_bytes: int) -> None:
    """Read a stream to its end, so that the program never blocks, and add the bytes to `output`.

    Once `output` is longer than `max_bytes`, the rest is dropped. So the length of `output` shows whether there was
    more.
    """
    async for chunk in stream:
        if len(output) <= max_bytes:
            output += chunk
