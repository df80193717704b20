"""`hubbub inbox watch --exec`: a shell command for every request that becomes open."""

import json
import os
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import anyio

from hubbub_client.cli.output import note
from hubbub_client.events import Event, Removed, Upsert
from hubbub_client.records import PendingRequest

# The watch waits when so many commands run; the hub meanwhile folds its changes together.
MAX_RUNNING = 16


class Executor:
    """Runs a command once for each request that is seen open; does nothing without a command."""

    def __init__(self, command: str | None, environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self._open: set[str] = set()
        self._slots = anyio.Semaphore(MAX_RUNNING)
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.cancel_scope.cancel()
        # The group is not told why: it would wrap the error in an exception group.
        await self._group.__aexit__(None, None, None)

    async def see(self, event: Event) -> None:
        """Starts the command if this event opens a request."""
        match event:
            case Upsert(record=PendingRequest(state="open") as request) if self._command:
                if request.id not in self._open:
                    self._open.add(request.id)
                    await self._slots.acquire()
                    self._group.start_soon(self._run, self._command, request)
            case Upsert(record=PendingRequest(id=name)) | Removed(id=name):
                self._open.discard(name)
            case _:
                pass

    async def _run(self, command: str, request: PendingRequest) -> None:
        about = {
            "HUBBUB_REQUEST_ID": request.id,
            "HUBBUB_REQUEST_KIND": request.kind,
            "HUBBUB_SERVER": request.server,
        }
        try:
            # stdout belongs to the watch's own lines.
            done = await anyio.run_process(
                command,
                input=json.dumps(request.to_json()).encode() + b"\n",
                stdout=2,
                stderr=None,
                check=False,
                env=self._environment | about,
            )
            if done.returncode:
                note(f"{request.id}: the command ended with {done.returncode}")
        except (OSError, subprocess.SubprocessError) as error:
            note(f"{request.id}: {error}")
        finally:
            self._slots.release()
