"""Takes over servers of hosts: shows them, asks which, asks for values, keeps secrets, and writes the file."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from hubbub_cli.output.printer import console, note, plain_table, print_json, say
from hubbub_cli.run.session import Settings, Usage
from hubbub_client.numbers import whole_text
from hubbub_local import config_check, config_file, file_replacement
from hubbub_local.config_file import Unchangeable
from hubbub_local.hosts.imports import Imported, answered, shown
from hubbub_local.hosts.offers import Offer, offers, variables
from hubbub_local.hosts.servers import FoundServer, Trouble
from hubbub_local.hosts.texts import InputPrompt, Surround, literal
from hubbub_local.keyring import Keyring, NoKeyring, system_keyring
from hubbub_local.platform_dirs import Machine
from hubbub_local.secrecy import Secret, Way, asked_for, replaced, secret_at, secrets
from hubbub_shared.legible import clean

STATES: Mapping[str, str] = {
    "new": "",
    "disabled": "switched off there",
    "differs": "the configuration has another of this name",
    "there": "is in the configuration",
    "cannot": "cannot be taken over",
}
LARGEST_NUMBER = 100_000
ALL_NUMBERS = re.compile(r"\s*\d+\s*(-\s*\d+\s*)?([,\s]\s*\d+\s*(-\s*\d+\s*)?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """How servers are taken over: into which file, with all that is new (`everything`) or asked, or only shown."""

    settings: Settings
    file: Path
    everything: bool
    dry_run: bool = False
    again: str = "hubbub init"
    """The command, for people."""

    @property
    def asks(self) -> bool:
        """Whether a person is asked."""
        return self.settings.interactive and not self.everything


@dataclass(slots=True)
class ImportOutcome:
    """What came of it."""

    taken: list[Offer] = field(default_factory=list[Offer])
    left: list[tuple[Offer, str]] = field(default_factory=list[tuple[Offer, str]])
    """With the reason."""

    kept: list[str] = field(default_factory=list[str])
    """Secrets that are in the keyring, and what they are for."""

    written: list[str] = field(default_factory=list[str])
    """Secrets that are in the file."""

    backup: Path | None = None


def take(taking: Taking, found: Sequence[FoundServer | Trouble]) -> ImportOutcome | None:
    """Take over what is wanted of the found servers. None if nothing was to be done. Raises Usage, TyperException."""
    at = Machine.here()
    text = read(taking.file)
    around = Surround(home=at.home, environ=os.environ, read=variables, platform=sys.platform)
    try:
        listed, troubles = offers(found, around, config_file.servers(text))
    except Unchangeable as exc:
        raise typer.TyperException(f"{taking.file}: {exc}") from None
    if taking.settings.json:
        for offer in listed:
            print_json(_shape(offer))
        for trouble in troubles:
            print_json({"file": str(trouble.place.file), "host": trouble.place.host, "problem": trouble.why})
    else:
        _show(listed, troubles)
    open_ = [offer for offer in listed if offer.state in ("new", "disabled", "differs")]
    if taking.dry_run or not open_:
        return None
    if not taking.everything and not taking.settings.interactive:
        raise Usage(f"nobody can be asked which to take: `{taking.again} --yes` takes all that are new")
    wanted = [each for each in open_ if each.state == "new"] if taking.everything else _chosen(listed, open_)
    if not wanted:
        return None
    return _write(taking, text, wanted)


def read(file: Path) -> str:
    """Return the text of a configuration file, empty if there is none. Raises TyperException."""
    try:
        return config_file.read(file)
    except (Unchangeable, OSError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise typer.TyperException(f"{file} cannot be used: {why}") from None


def put(file: Path, before: str, text: str) -> Path | None:
    """Replace a configuration file by one that the hub takes. Return where the old one is. Raises TyperException."""
    problem = problem_of(file, text)
    if problem is not None and problem.refused:
        raise typer.TyperException(f"{file} is left as it was: {problem.says}")
    backup = replace(file, before, text)
    if problem is not None:
        note(f"a server of it cannot be connected, as seen from here: {problem.says}")
    return backup


def problem_of(file: Path, text: str) -> config_check.Problem | None:
    """Return what the hub says of a text that is to be the content of a file. Raises TyperException."""
    try:
        return config_check.problem(text, file, os.environ)
    except OSError as exc:
        raise typer.TyperException(f"{file} cannot be written: {exc.strerror}") from None


def replace(file: Path, before: str, text: str) -> Path | None:
    """Replace a configuration file, unless it has changed since `before` was read. Return where the old one is.

    Raises TyperException.
    """
    if read(file) != before:
        raise typer.TyperException(f"{file} is left as it was: it has been changed meanwhile; try again")
    try:
        return file_replacement.put(file, text, private=True)
    except OSError as exc:
        raise typer.TyperException(f"{file} cannot be written: {exc.strerror}") from None


def _show(listed: Sequence[Offer], troubles: Sequence[Trouble]) -> None:
    if listed:
        rows = [
            [
                str(number),
                offer.server.name,
                offer.hosts,
                offer.server.transport or "-",
                _what(offer),
                _attention(offer),
            ]
            for number, offer in enumerate(listed, 1)
        ]
        table(("", "name", "host", "transport", "command or address", "attention"), rows)
    for trouble in troubles:
        note(f"not read: {trouble.place.file} ({trouble.place.title}): {trouble.why}")


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout, laid out for the terminal if there is one."""
    cells = [[clean(cell).replace("\n", " ") or "-" for cell in row] for row in rows]
    plain = None if sys.stdout.isatty() else plain_table(names, cells)
    if plain is not None:
        say(plain.rstrip("\n"))
        return
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        shown.add_column(name, overflow="fold")
    for row in cells:
        shown.add_row(*map(Text, row))
    console().print(shown)


def _what(offer: Offer) -> str:
    return shown(offer.server.spec) if offer.server.spec is not None else ""


def _attention(offer: Offer) -> str:
    server = offer.server
    brought = not server.found.place.of_person and offer.state in ("new", "disabled", "differs")
    parts = [STATES[offer.state], "this folder brings it: look at what it starts" if brought else "", *server.notes]
    if offer.state in ("new", "disabled", "differs"):
        parts += [f"asks for {ask.id}" for ask in server.asks]
        parts += [f"{secret.where}: {secret.why}" for secret in secrets(server.spec or {})]
    return "; ".join(part for part in parts if part)


def _shape(offer: Offer) -> dict[str, Any]:
    server = offer.server
    return {
        "name": server.name,
        "state": offer.state,
        "host": server.found.place.host,
        "file": str(server.found.place.file),
        "also": list(offer.also),
        "transport": server.transport or None,
        "what": _what(offer) or None,
        "attention": list(server.notes),
        "asks": [ask.id for ask in server.asks],
        "secrets": [secret.where for secret in secrets(server.spec or {})],
    }


def _chosen(listed: Sequence[Offer], open_: Sequence[Offer]) -> list[Offer]:
    """Ask which ones; what a folder brings may be from anybody, so Enter leaves that. Raises Abort."""
    new = [each for each in open_ if each.state == "new"]
    own = [each for each in new if each.server.found.place.of_person]
    count = "the one that is new" if len(own) == 1 else f"all {len(own)} that are new"
    ways = ["numbers such as 1 3-5", *(["all"] if own != new else []), "none"]
    if own:
        rest = "" if own == new else " and not from this folder"
        ways.insert(0, f"Enter takes {count}{rest}")
    hint = "; or ".join(ways)
    while True:
        typed = _asked(f"Which? ({hint}) ").lower()
        if typed == "" and own:
            return own
        if typed == "all":
            return new
        if typed in ("none", "n", "no", "0"):
            return []
        numbers = list(_numbers(typed, len(listed)))
        chosen = [listed[number - 1] for number in numbers if 0 < number <= len(listed)]
        if numbers and len(chosen) == len(numbers) and all(each in open_ for each in chosen):
            return chosen
        note("type numbers of the first column, of servers that can be taken over and are not there yet")


def _numbers(typed: str, most: int) -> Iterator[int]:
    """Yield the numbers that somebody typed, each once; nothing if it is no list of numbers."""
    if not ALL_NUMBERS.fullmatch(typed):
        return
    seen: set[int] = set()
    for part in re.split(r"[,\s]+", re.sub(r"\s*-\s*", "-", typed.strip())):
        first, _, last = part.partition("-")
        begin, end = (whole_text(each, LARGEST_NUMBER) or 0 for each in (first, last or first))
        for number in range(begin, min(end, most + 1) + 1):
            if number not in seen:
                seen.add(number)
                yield number


def _write(taking: Taking, before: str, wanted: Sequence[Offer]) -> ImportOutcome:
    text = before
    outcome = ImportOutcome()
    keyring = _keyring(taking, wanted)
    known: dict[tuple[Path, str], str] = {}
    for offer in wanted:
        server = _with_values(taking, offer.server, known)
        if server.asks:
            lacking = ", ".join(ask.id for ask in server.asks)
            how = "nothing was given" if taking.asks else f"`{taking.again}` on a terminal asks for it"
            outcome.left.append((offer, f"it needs {lacking}; {how}"))
            continue
        asked = asked_for(offer.server.spec or {}, [ask.id for ask in offer.server.asks if ask.secret])
        spec = _without_secrets(server.name, server.spec or {}, asked, keyring, outcome)
        place = server.found.place
        try:
            text = config_file.with_server(text, server.name, spec, f"From {place.title}: {place.file}")
        except Unchangeable as exc:
            raise typer.TyperException(f"{taking.file} is left as it was: {exc}") from None
        outcome.taken.append(offer)
    if outcome.taken:
        outcome.backup = put(taking.file, before, text)
    return outcome


def _with_values(taking: Taking, server: Imported, known: dict[tuple[Path, str], str]) -> Imported:
    """Ask for what a server needs, each thing once for each file."""
    values: dict[str, str] = {}
    for ask in server.asks:
        key = (server.found.place.file, ask.id)
        if key not in known:
            value = _value(server, ask) if taking.asks else ask.default
            if value is None:
                continue
            known[key] = literal(value)
        values[ask.id] = known[key]
    return answered(server, values)


def _value(server: Imported, ask: InputPrompt) -> str | None:
    of = f" [{'/'.join(ask.choices)}]" if ask.choices else ""
    default = f" (Enter: {ask.default})" if ask.default else ""
    while True:
        typed = _asked(f"{server.name} asks for {ask.prompt}{of}{default}: ", hidden=ask.secret)
        if not typed or not ask.choices or typed in ask.choices:
            return typed or ask.default
        note(f"type one of {', '.join(ask.choices)}")


def _keyring(taking: Taking, wanted: Sequence[Offer]) -> Keyring | None:
    """Return the keyring if secrets are to be kept there; None if in the file."""
    several = [secret for offer in wanted for secret in secrets(offer.server.spec or {})]
    asked = [ask for offer in wanted for ask in offer.server.asks if ask.secret]
    if not several and not asked:
        return None
    try:
        keyring = system_keyring()
    except NoKeyring as exc:
        note(f"secrets go into the file, which only you can read; there is no keyring for them: {exc}")
        return None
    return keyring if taking.everything or _wants_keyring(len(several) + len(asked)) else None


def _wants_keyring(count: int) -> bool:
    what = "1 secret" if count == 1 else f"{count} secrets"
    typed = _asked(f"Keep {what} in your system's keyring instead of the file? (Enter: yes, or no) ").lower()
    return not typed.startswith("n")


def offered_to_keyring(settings: Settings, name: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a server's spec with its secrets in the keyring, if a person at the terminal wants that.

    Says where each goes. Raises Abort when they leave.
    """
    found = secrets(spec)
    if not found:
        return spec
    keyring, outcome = None, ImportOutcome()
    if settings.interactive:
        with suppress(NoKeyring):
            keyring = system_keyring()
            keyring = keyring if _wants_keyring(len(found)) else None
    spec = _without_secrets(name, spec, (), keyring, outcome)
    for each in outcome.kept:
        note(f"in the keyring: {each}")
    for each in outcome.written:
        note(f"goes into the file, which only you can read: {each}")
    return spec


def _without_secrets(
    name: str, spec: Mapping[str, Any], asked: Sequence[Way], keyring: Keyring | None, outcome: ImportOutcome
) -> Mapping[str, Any]:
    """Return a spec with its secrets in the keyring, as far as that takes them; so is what was `asked` for as one."""
    found = secrets(spec)
    known = {each.way for each in found}
    for secret in [*found, *(secret_at(spec, way) for way in asked if way not in known)]:
        what = f"{name}: {secret.where} ({secret.why})"
        try:
            if keyring is None:
                raise NoKeyring
            reference = keyring.keep(entry_name(name, secret), secret.value)
        except NoKeyring as exc:
            if str(exc):
                note(f"{what} goes into the file: {exc}")
            outcome.written.append(what)
            continue
        spec = replaced(spec, secret, reference)
        outcome.kept.append(what)
    return spec


def entry_name(server: str, secret: Secret) -> str:
    """Return the name of a secret in the keyring: no brace may be in a reference."""
    return re.sub(r"[{}\s]", "_", f"{server}/{'/'.join(map(str, secret.way[1:])) or secret.way[0]}")


def _asked(prompt: str, *, hidden: bool = False) -> str:
    """Return what a person types. Raises Abort at the end of input, and when they leave."""
    if hidden:
        from getpass import getpass

        try:
            return getpass(clean(prompt), stream=sys.stderr).strip()
        except (EOFError, KeyboardInterrupt):
            raise typer.Abort from None
    note(prompt, end="")
    line = sys.stdin.readline()
    if not line:
        raise typer.Abort
    return line.strip()


def report(taking: Taking, outcome: ImportOutcome) -> None:
    """Say what was done."""
    if taking.settings.json:
        print_json(
            {
                "file": str(taking.file),
                "backup": outcome.backup and str(outcome.backup),
                "taken": [offer.server.name for offer in outcome.taken],
                "left": {offer.server.name: why for offer, why in outcome.left},
                "in_keyring": outcome.kept,
                "in_file": outcome.written,
            }
        )
        return
    for offer, why in outcome.left:
        note(f"left out: {offer.server.name}: {why}")
    if outcome.kept:
        note("in the keyring:\n" + "\n".join(f"  {each}" for each in outcome.kept))
    if outcome.written:
        note("in the file, which only you can read:\n" + "\n".join(f"  {each}" for each in outcome.written))
    if not outcome.taken:
        note("nothing was written")
        return
    names = ", ".join(offer.server.name for offer in outcome.taken)
    say(f"{taking.file}: {names}")
    if outcome.backup is not None:
        note(f"as it was: {outcome.backup}")
