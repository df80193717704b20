"""What the commands that notify have in common: the rules, and where pending requests are answered."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub_cli.output.printer import note
from hubbub_cli.run.session import Settings
from hubbub_client.data.records import PendingRequest
from hubbub_local.platform_dirs import Machine, find_config_file, find_data_dir, list_config_files

if TYPE_CHECKING:
    from hubbub_notify.notifier import FindAnswerPlace
    from hubbub_notify.rules import Rules


def read_rules(
    options: dict[str, Any], config: Path | None, *, ignored_keys: Collection[str] = ()
) -> "tuple[Rules, str]":
    """Return the rules of the table [notify], replaced by options that are given, and for messages where they stand.

    The table is in the file `config`, else in the first file of HUBBUBD_CONFIG that has one, else in the default file.
    Its keys in `ignored_keys` are not read. Raises NoticeRuleProblem.
    """
    from hubbub_notify.rules import NoticeRuleProblem, parse_rules, read_table

    listed = list_config_files(os.environ)
    default = find_config_file(Machine.here())
    files = [config] if config else listed or ([default] if default.exists() else [])
    chosen = {name: value for name, value in options.items() if value is not None}
    unread_keys = {*chosen, *ignored_keys}  # these need no variable
    first_table = next(
        ((each, file) for file in files if (each := read_table(file, os.environ, except_=unread_keys))), None
    )
    if first_table is None and config is not None and not chosen.get("urls"):
        raise NoticeRuleProblem(f"{config}: it has no table [notify]; docs/notify.md says what belongs there")
    if chosen:
        try:
            parse_rules(chosen)
        except NoticeRuleProblem as problem:
            key, colon, why = str(problem).partition(":")
            raise NoticeRuleProblem(f"{_name_option(key)}{colon}{why}") from None
    if first_table is None:
        return parse_rules(chosen), "options"
    content, file = first_table
    return parse_rules({**content, **chosen}, f"{file}: notify."), f"{file}: notify.urls"


def _name_option(key: str) -> str:
    """Return the command-line option of a key of the rules."""
    name = key.partition(".")[0].removesuffix("_s").replace("_", "-")
    return {"urls": "URL", "servers": "--server", "kinds": "--kind"}.get(name, f"--{name}")


def make_link_finder(settings: Settings, rules: "Rules") -> "FindAnswerPlace":
    """Return a function that finds where pending requests are answered: the link to a page, else a command.

    The page is the one that the rules name, else the one that runs for this data directory.
    """
    import anyio.to_thread

    from hubbub_frontend.links import Links, find_page_url

    directory = find_data_dir(settings.data_dir)

    def find_link(requests: Sequence[PendingRequest], page_path: str) -> str:
        """Return a link to the page; without a page, a command. The link logs in if the rules want that. Blocks."""
        running_page = find_page_url(directory)
        base_url = rules.link or running_page
        if base_url is None:
            return f"hubbub inbox answer {requests[0].id}" if len(requests) == 1 else "hubbub inbox list --state open"
        if running_page is None or not rules.login:  # a page elsewhere does not know links of this directory
            return f"{base_url}/#/{page_path}"
        request = requests[0].id if len(requests) == 1 else None
        try:
            return f"{base_url}/#login={Links(directory).create(page_path, rules.link_lasts_s, request)}&to={page_path}"
        except OSError as error:
            note(f"no link could be made, so people have to log in themselves: {error.strerror}")
            return f"{base_url}/#/{page_path}"

    async def find_link_in_thread(requests: Sequence[PendingRequest], page_path: str) -> str:
        """Return the same as `find_link`, which blocks, without blocking the event loop."""
        return await anyio.to_thread.run_sync(find_link, requests, page_path)

    return find_link_in_thread
