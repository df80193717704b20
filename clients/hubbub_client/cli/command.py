"""`hubbub inbox watch --exec`: a shell command for every request that becomes open."""

import json
import os
import subprocess
from collections.abc import Mapping

import anyio

from hubbub_client.cli.output import note
from hubbub_client.records import PendingRequest


class Command:
    """A shell command of the person who watches. What servers write reaches it on stdin only, never as words."""

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}

    async def deliver(self, request: PendingRequest) -> None:
        """Runs it, with the request's JSON on stdin; says on stderr when it fails."""
        about = {
            "HUBBUB_REQUEST_ID": request.id,
            "HUBBUB_REQUEST_KIND": request.kind,
            "HUBBUB_SERVER": request.server,
        }
        try:
            # stdout belongs to the watch's own lines.
            done = await anyio.run_process(
                self._command,
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
