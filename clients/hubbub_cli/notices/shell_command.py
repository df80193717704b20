"""`hubbub inbox watch --exec`: a shell command for every pending request that opens."""

import contextlib
import json
import os
from collections.abc import Mapping
from subprocess import PIPE

import anyio

from hubbub_cli.output.printer import note
from hubbub_client.data.records import PendingRequest
from hubbub_shared.platform import processes


class Command:
    """A shell command of the person who watches.

    Text of servers reaches it on stdin only, never as words of the command.
    """

    def __init__(self, command: str, environment: Mapping[str, str], limit_s: float) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self._limit_s = limit_s

    async def deliver(self, request: PendingRequest) -> None:
        """Run the command, with the pending request as JSON on its stdin; report on stderr if it fails.

        It is killed with everything that it started when its time is over, or when the watch ends.
        """
        variables = {
            "HUBBUB_REQUEST_ID": request.id,
            "HUBBUB_REQUEST_KIND": request.kind,
            "HUBBUB_SERVER": request.server,
        }
        try:
            with anyio.fail_after(self._limit_s):
                status = await self._run(json.dumps(request.to_json()).encode() + b"\n", variables)
        except TimeoutError:
            note(f"{request.id}: the command took longer than {self._limit_s:g} s and was ended")
        except (OSError, ValueError) as error:
            note(f"{request.id}: the command cannot be run: {error}")
        else:
            if status:
                note(f"{request.id}: the command ended with {status}")

    async def _run(self, stdin: bytes, variables: Mapping[str, str]) -> int:
        """Run the command, and return its exit status. If this is cancelled, the command and what it started end."""
        # stdout belongs to the lines of the watch.
        process = await anyio.open_process(
            self._command,
            stdin=PIPE,
            stdout=2,
            stderr=None,
            env={**self._environment, **variables},
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            with contextlib.suppress(anyio.BrokenResourceError, OSError):  # the command need not read its stdin
                await process.stdin.send(stdin)
            with contextlib.suppress(OSError):
                await process.stdin.aclose()
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    processes.kill_group(process.pid)
            with anyio.CancelScope(shield=True):
                await process.aclose()
