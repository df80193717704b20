"""One run of a command: global options, the connection to the hub, and its end."""

import inspect
import json
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from hubbub_cli.run import exit_status, streams
from hubbub_cli.syntax.usage import Failed
from hubbub_client import payload
from hubbub_client.transport.discovery import HubLocation, discover

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

T = TypeVar("T")
HubWork = Callable[..., Awaitable[bool | None]]
"""What a command does at a hub: gets the `Hub`, the `Settings`, and the command's own parameters. False: exit 1."""

RUNNER = "hubbub_cli.runner"
DEFAULT_CONNECT_TIMEOUT_S = 5.0
MAX_QUOTED_CHARS = 60
"""Characters of a wrong value that are repeated in the message."""

UP_AT_FREE_ADDRESS = ("up", "-d", "--listen", "127.0.0.1:0")
"""Starts a hub though another one has the default address."""


class Usage(typer.TyperException):
    """The command line is wrong."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Global options."""

    address: str | None
    token: str | None
    data_dir: str | None
    ca: str | None
    cert: str | None
    key: str | None
    name: str | None
    json: bool
    connect_timeout_s: float | None
    """How long to wait for a hub, seconds; None if no option says so."""

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "Settings":
        """Return the settings that the values of the global options describe. `--output` wins over `--json`."""
        output, timeout_s = params["output"], params["connect_timeout_s"]
        # Absolute paths, since commands that are printed may be typed in another folder.
        files = ("data_dir", "ca", "cert", "key")
        paths = {name: params[name] and str(Path(params[name]).absolute()) for name in files}
        return cls(
            **{name: params[name] for name in ("address", "token", "name")},
            **paths,
            json=params["as_json"] if output is None else output == "json",
            connect_timeout_s=DEFAULT_CONNECT_TIMEOUT_S if params["wait"] and timeout_s is None else timeout_s,
        )

    @property
    def where(self) -> HubLocation:
        """Return how the library finds the hub."""
        return HubLocation(self.address, self.token, self.data_dir, self.ca, self.cert, self.key)

    @property
    def interactive(self) -> bool:
        """Return whether a person can be asked: at a terminal, and without JSON output."""
        return not self.json and sys.stdin.isatty() and sys.stderr.isatty()

    def command(self, *words: str) -> str:
        """Return a command that reaches the same hub under the same name; it never contains the token."""
        options = [
            ("--address", self.address),
            ("--data-dir", self.data_dir),
            ("--ca", self.ca),
            ("--cert", self.cert),
            ("--key", self.key),
            ("--as", self.name),
        ]
        option_words = [word for option, value in options if value for word in (option, value)]
        return shlex.join(("hubbub", *option_words, *words))

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment with which another `hubbub` reaches the same hub."""
        variables = {
            "HUBBUB_ADDRESS": self.address,
            "HUBBUB_TOKEN": self.token,
            "HUBBUB_DATA_DIR": self.data_dir,
            "HUBBUB_CA": self.ca,
            "HUBBUB_CERT": self.cert,
            "HUBBUB_KEY": self.key,
        }
        return {name: value for name, value in variables.items() if value}

    def connect(self, name: str | None = None, *, patient: bool = True) -> "AbstractAsyncContextManager[Hub]":
        """Return a connection to the hub as a context manager. `name` overrides the name that the options give.

        With `patient`, it waits for a hub that is not there, 5 s or as the options say; else only if they say how long.
        """
        from hubbub_client.hub import connect  # imported late, as asyncio below: help and wrong usage need neither

        return connect(
            **self.where._asdict(),
            name=name or self.name,
            connect_timeout_s=DEFAULT_CONNECT_TIMEOUT_S if self.connect_timeout_s is None else self.connect_timeout_s,
            patient=patient or self.connect_timeout_s is not None,
        )


def get_settings(context: typer.Context) -> Settings:
    """Return the global options of this run."""
    assert isinstance(context.obj, Settings)
    return context.obj


def run_in_loop(context: typer.Context, work: "Coroutine[Any, Any, T]") -> "T":
    """Return the result of a coroutine. All of a run use one event loop, since gRPC serves only one in a process."""
    import asyncio

    root = context.find_root()
    runner = root.meta.get(RUNNER)
    if runner is None:
        runner = root.meta[RUNNER] = asyncio.Runner()
        root.call_on_close(runner.close)
    return runner.run(work)


def run_with_hub(
    context: typer.Context, work: "Callable[[Hub], Awaitable[bool | None]]", *, endless: bool = False
) -> None:
    """Connect to the hub, await `work`, and exit 1 if it returns False. Raises HubbubError.

    A person at a terminal is first offered to start a hub on this machine if none runs. An `endless` work waits for a
    hub, and SIGINT ends it with status 0.
    """
    settings = get_settings(context)
    is_local = not (settings.address or os.environ.get("HUBBUB_ADDRESS"))
    if is_local and settings.interactive and settings.connect_timeout_s is None:
        from hubbub_cli.run.start_offer import offer_to_start

        offer_to_start(settings.data_dir, settings.command("down"), settings.command(*UP_AT_FREE_ADDRESS))
    if not endless and settings.connect_timeout_s is None:
        # Fails at once where there is no hub, without the imports that only a connection needs.
        discover(settings.where)

    from hubbub_client.transport import trace_context

    async def connect_and_work() -> bool | None:
        """Connect, and return the result of `work`; its RPCs belong to the trace that the environment names."""
        trace_context.continue_environment_trace()
        async with settings.connect(patient=endless) as hub:
            return await work(hub)

    interrupted_status = 0 if endless else 1
    try:
        succeeded = run_in_loop(context, connect_and_work())
    except BaseException as error:  # noqa: BLE001 - all but the leaving of a reader or a person is raised again
        match exit_status.find_first_exception(error):
            case BrokenPipeError():  # the reader of the output has left
                streams.discard_output(1)
            case KeyboardInterrupt():  # the person has left
                pass
            case other:
                raise other from None
        raise typer.Exit(interrupted_status) from None
    if succeeded is False:
        raise Failed


def hub_command(*, endless: bool = False) -> Callable[[HubWork], Callable[..., None]]:
    """Return a decorator that makes a coroutine function a command, which connects to the hub first.

    If the coroutine returns False, the command exits 1. An `endless` command waits for a hub, and SIGINT ends it with
    status 0.
    """

    def decorate(work: HubWork) -> Callable[..., None]:
        """Return a command that connects to the hub and awaits `work`, with the parameters of `work` as its own."""

        def command(context: typer.Context, **params: Any) -> None:
            # No docstring: it is that of `work`, the text of the help.
            run_with_hub(context, lambda hub: work(hub, get_settings(context), **params), endless=endless)

        # Typer makes options and arguments of the parameters: of all but the hub and the settings.
        _, _, *own_params = inspect.signature(work).parameters.values()
        context_param = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        command.__signature__ = inspect.Signature([context_param, *own_params])  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {each.name: each.annotation for each in (context_param, *own_params)}
        command.__name__, command.__doc__ = work.__name__, work.__doc__
        return command

    return decorate


def parse_json(text: str, name: str) -> Any:
    """Return the JSON value of a text of the command line. Raises Usage, naming the argument, if it cannot be sent."""
    try:
        value = payload.loads(text.encode())
        payload.dumps(value)  # some values can be read, and not be written
    except RecursionError:
        raise Usage(f"{name} nests too deep to be sent") from None
    except ValueError as error:
        raise Usage(
            f"{_cut_quotation(text)}, given as {name}, is no valid JSON: {_describe_json_error(error)}"
        ) from None
    return value


def _cut_quotation(text: str) -> str:
    """Return a text for a message, cut if it is longer than MAX_QUOTED_CHARS."""
    return text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}..."


def _describe_json_error(error: ValueError) -> str:
    """Return what is wrong with a JSON text, and at which character, counted from one."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
    return str(error)


def parse_json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """Return the JSON object of a text of the command line; None without a text. Raises Usage, naming the argument."""
    if text is None:
        return None
    value = parse_json(text, name)
    if not isinstance(value, Mapping):
        raise Usage(f"{name} must be a JSON object")
    return cast("dict[str, Any]", value)
