"""One run of a command: the global options, the connection to the hub, and how it ends."""

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, cast

import typer

from hubbub_client import payload, tracing
from hubbub_client.hub import Hub, connect


class Usage(typer.TyperException):
    """The command line is wrong."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The global options."""

    address: str | None
    token: str | None
    data_dir: str | None
    ca: str | None
    cert: str | None
    key: str | None
    name: str | None
    json: bool
    connect_timeout_s: float

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked."""
        return not self.json and sys.stdin.isatty() and sys.stderr.isatty()

    def command(self, *words: str) -> str:
        """A command to type that reaches the same hub; its token is never repeated."""
        where = [
            ("--address", self.address),
            ("--data-dir", self.data_dir),
            ("--ca", self.ca),
            ("--cert", self.cert),
            ("--key", self.key),
        ]
        given = [word for option, value in where if value for word in (option, value)]
        return shlex.join(("hubbub", *given, *words))

    @property
    def environment(self) -> dict[str, str]:
        """What another `hubbub` needs in its environment to reach the same hub."""
        given = {
            "HUBBUB_ADDRESS": self.address,
            "HUBBUB_TOKEN": self.token,
            "HUBBUB_DATA_DIR": self.data_dir,
            "HUBBUB_CA": self.ca,
            "HUBBUB_CERT": self.cert,
            "HUBBUB_KEY": self.key,
        }
        return {name: value for name, value in given.items() if value}

    def connect(self, name: str | None = None) -> AbstractAsyncContextManager[Hub]:
        """The hub, as `hubbub_client.connect` finds it; a `name` goes before that of the options."""
        return connect(
            self.address,
            self.token,
            self.data_dir,
            ca=self.ca,
            cert=self.cert,
            key=self.key,
            name=name or self.name,
            connect_timeout_s=self.connect_timeout_s,
        )


def settings_of(context: typer.Context) -> Settings:
    """The global options of this run."""
    assert isinstance(context.obj, Settings)
    return context.obj


def run(context: typer.Context, work: Callable[[Hub], Awaitable[bool | None]], *, endless: bool = False) -> None:
    """Connects, does the work, and exits 1 if it returns False. An `endless` work ends well by SIGINT.

    Raises HubbubError.
    """
    settings = settings_of(context)

    async def session() -> bool | None:
        tracing.from_environment()
        async with settings.connect() as hub:
            return await work(hub)

    interrupted = 0 if endless else 1
    try:
        good = asyncio.run(session())
    except KeyboardInterrupt:
        raise typer.Exit(interrupted) from None
    except BrokenPipeError:
        # Whoever read the output has left; the interpreter must not stumble over it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(interrupted) from None
    if good is False:
        raise typer.Exit(1)


def json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """A JSON object that stands on the command line, None for none. Raises Usage, naming the argument."""
    if text is None:
        return None
    try:
        value = payload.loads(text.encode())
    except ValueError as error:
        raise Usage(f"{name} is not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise Usage(f"{name} must be a JSON object")
    return cast("dict[str, Any]", value)
