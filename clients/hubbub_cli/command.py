"""`hubbub inbox watch --exec`: a shell command for every request that becomes open."""

import contextlib
import json
import os
import signal
from collections.abc import Mapping
from subprocess import PIPE

import anyio

from hubbub_cli.output import note
from hubbub_client.records import PendingRequest

# What a command may take, seconds, unless the person who watches says otherwise.
LIMIT_S = 300.0


class Command:
    """A shell command of the person who watches. What servers write reaches it on stdin only, never as words."""

    def __init__(self, command: str, environment: Mapping[str, str], limit_s: float = LIMIT_S) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self._limit_s = limit_s

    async def deliver(self, request: PendingRequest) -> None:
        """Runs it, with the request's JSON on stdin; says on stderr when it fails.

        One that takes longer than its limit is ended with all that it has started, as is one that runs when the watch
        ends.
        """
        about = {
            "HUBBUB_REQUEST_ID": request.id,
            "HUBBUB_REQUEST_KIND": request.kind,
            "HUBBUB_SERVER": request.server,
        }
        try:
            with anyio.fail_after(self._limit_s):
                status = await self._run(json.dumps(request.to_json()).encode() + b"\n", about)
        except TimeoutError:
            note(f"{request.id}: the command took longer than {self._limit_s:g} s and was ended")
        except (OSError, ValueError) as error:
            note(f"{request.id}: the command cannot be run: {error}")
        else:
            if status:
                note(f"{request.id}: the command ended with {status}")

    async def _run(self, told: bytes, about: Mapping[str, str]) -> int:
        # stdout belongs to the watch's own lines.
        process = await anyio.open_process(
            self._command, stdin=PIPE, stdout=2, stderr=None, env={**self._environment, **about}, start_new_session=True
        )
        try:
            assert process.stdin is not None
            with contextlib.suppress(anyio.BrokenResourceError, OSError):  # it need not read what it is told
                await process.stdin.send(told)
            with contextlib.suppress(OSError):
                await process.stdin.aclose()
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.aclose()
