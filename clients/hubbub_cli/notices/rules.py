"""What the commands that notify have in common: the rules, and where pending requests are answered."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub_cli.output.printer import note
from hubbub_cli.run.session import Settings
from hubbub_client.data.records import PendingRequest
from hubbub_local.platform_dirs import Machine, config_file

if TYPE_CHECKING:
    from hubbub_notify.notifier import AnswerAt
    from hubbub_notify.rules import Rules

CONFIG = "HUBBUBD_CONFIG"


def data_directory(settings: Settings) -> Path:
    """Return the data directory of this machine's hub. Raises Unavailable if there is no home directory."""
    from hubbub_client.transport.discovery import Where, client_file  # imported late: the help does without the library

    return client_file(Where(data_dir=settings.data_dir)).parent


def given_rules(options: dict[str, Any], config: Path | None, *, without: Collection[str] = ()) -> "tuple[Rules, str]":
    """Return the rules of the table [notify] with the options over them, and its place. Raises NoticeRuleProblem.

    The table is that of `config`, else of the first file of HUBBUBD_CONFIG that has one, else of the default file; its
    keys of `without` are not read.
    """
    from hubbub_notify.rules import NoticeRuleProblem, parse_rules, read_table

    named = [Path(each) for each in os.environ.get(CONFIG, "").split(os.pathsep) if each]
    default = config_file(Machine.here())
    files = [config] if config else named or ([default] if default.exists() else [])
    given = {name: value for name, value in options.items() if value is not None}
    unread = {*given, *without}  # these need no variable
    found = next(((each, file) for file in files if (each := read_table(file, os.environ, except_=unread))), None)
    if found is None and config is not None and not given.get("urls"):
        raise NoticeRuleProblem(f"{config}: it has no table [notify]; docs/notify.md says what belongs there")
    if given:
        try:
            parse_rules(given)
        except NoticeRuleProblem as problem:
            key, colon, why = str(problem).partition(":")
            raise NoticeRuleProblem(f"{_option(key)}{colon}{why}") from None
    if found is None:
        return parse_rules(given), "options"
    content, file = found
    return parse_rules({**content, **given}, f"{file}: notify."), f"{file}: notify.urls"


def _option(key: str) -> str:
    """Return the option of a key, which may have the number of a value."""
    name = key.partition(".")[0].removesuffix("_s").replace("_", "-")
    return {"urls": "URL", "servers": "--server", "kinds": "--kind"}.get(name, f"--{name}")


def answer_at(settings: Settings, rules: "Rules") -> "AnswerAt":
    """Return what says where pending requests are answered: in the page that runs for this data directory, else by a
    command.
    """
    import anyio.to_thread

    from hubbub_frontend.links import Links, find_page_url

    directory = data_directory(settings)

    def find(requests: Sequence[PendingRequest], to: str) -> str:
        running = find_page_url(directory)
        base = rules.link or running
        if base is None:
            return f"hubbub inbox answer {requests[0].id}" if len(requests) == 1 else "hubbub inbox list --state open"
        if running is None or not rules.login:  # a page elsewhere does not know links of this directory
            return f"{base}/#/{to}"
        request = requests[0].id if len(requests) == 1 else None
        try:
            return f"{base}/#login={Links(directory).create(to, rules.link_lasts_s, request)}&to={to}"
        except OSError as error:
            note(f"no link could be made, so people have to log in themselves: {error.strerror}")
            return f"{base}/#/{to}"

    async def where(requests: Sequence[PendingRequest], to: str) -> str:
        return await anyio.to_thread.run_sync(find, requests, to)

    return where
