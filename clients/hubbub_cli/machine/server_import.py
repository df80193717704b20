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

from hubbub_cli.output.printer import make_cell, note, print_json, print_table, say
from hubbub_cli.run.session import Settings, Usage
from hubbub_client.numbers import whole_text
from hubbub_local import config_check, config_file, file_replacement
from hubbub_local.config_file import Unchangeable
from hubbub_local.hosts.imports import Imported, describe_target, fill_in_values
from hubbub_local.hosts.offers import Offer, make_offers, make_text_environment
from hubbub_local.hosts.servers import FoundServer, Trouble
from hubbub_local.hosts.texts import InputPrompt, escape
from hubbub_local.keyring import Keyring, NoKeyring, open_system_keyring
from hubbub_local.platform_dirs import Machine
from hubbub_local.secrecy import (
    Secret,
    SpecPath,
    find_prompted_paths,
    find_secrets,
    make_prompted_secret,
    replace_secret,
)
from hubbub_shared.legible import clean

STATE_TEXTS: Mapping[str, str] = {
    "new": "",
    "disabled": "switched off there",
    "differs": "the configuration has another of this name",
    "there": "is in the configuration",
    "cannot": "cannot be taken over",
}
LARGEST_NUMBER = 100_000
NUMBER_LIST = re.compile(r"\s*\d+\s*(-\s*\d+\s*)?([,\s]\s*\d+\s*(-\s*\d+\s*)?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """How servers are taken over: into which file, with all that is new (`everything`) or asked, or only shown."""

    settings: Settings
    file: Path
    everything: bool
    dry_run: bool = False
    same_command: str = "hubbub init"
    """The command as it was typed, for advice."""
    confirm: bool | None = False
    """Whether people approve calls of tools that are not marked read-only; None asks where there is a terminal."""

    @property
    def is_interactive(self) -> bool:
        """Whether a person is asked."""
        return self.settings.interactive and not self.everything


@dataclass(slots=True)
class ImportOutcome:
    """What came of an import."""

    imported: list[Offer] = field(default_factory=list[Offer])
    skipped: list[tuple[Offer, str]] = field(default_factory=list[tuple[Offer, str]])
    """Offers that were chosen and not imported, each with the reason."""

    keyring_secrets: list[str] = field(default_factory=list[str])
    """Descriptions of the secrets that were stored in the keyring."""

    file_secrets: list[str] = field(default_factory=list[str])
    """Descriptions of the secrets that were written into the file."""

    backup: Path | None = None


def import_servers(request: ImportRequest, found: Sequence[FoundServer | Trouble]) -> ImportOutcome | None:
    """Print the servers that were found, and take those that the person wants into the configuration file.

    Return the outcome; None if none is to be taken. Raises Usage, TyperException, Abort.
    """
    config_text = read_config(request.file)
    try:
        listed, troubles = make_offers(
            found, make_text_environment(Machine.here()), config_file.list_servers(config_text)
        )
    except Unchangeable as exc:
        raise typer.TyperException(f"{request.file}: {exc}") from None
    if request.settings.json:
        for offer in listed:
            print_json(_make_offer_json(offer))
        for trouble in troubles:
            print_json({"file": str(trouble.place.file), "host": trouble.place.host, "problem": trouble.why})
    else:
        _print_found(listed, troubles)
    importable = [offer for offer in listed if offer.is_importable]
    if request.dry_run or not importable:
        return None
    if not request.everything and not request.settings.interactive:
        raise Usage(f"nobody can be asked which to take: `{request.same_command} --yes` takes all that are new")
    chosen_offers = (
        [each for each in importable if each.state == "new"]
        if request.everything
        else _ask_which_servers(listed, importable)
    )
    if not chosen_offers:
        return None
    return _import_wanted(request, config_text, chosen_offers)


def read_config(file: Path) -> str:
    """Return the text of a configuration file, empty if there is none. Raises TyperException."""
    try:
        return config_file.read_config(file)
    except (Unchangeable, OSError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise typer.TyperException(f"{file} cannot be used: {why}") from None


def replace_checked(file: Path, before: str, text: str) -> Path | None:
    """Replace a configuration file if the hub would accept the text; return the path of a copy of the old file.

    None if there was no old file. Raises TyperException.
    """
    problem = find_problem(file, text)
    if problem is not None and problem.refused:
        raise typer.TyperException(f"{file} is left as it was: {problem.message}")
    backup = replace_unchanged(file, before, text)
    if problem is not None:
        note(f"a server of it cannot be connected, as seen from here: {problem.message}")
    return backup


def find_problem(file: Path, text: str) -> config_check.Problem | None:
    """Return what the hub finds wrong with a text as the content of a file; None if nothing. Raises TyperException."""
    try:
        return config_check.find_problem(text, file, os.environ)
    except OSError as exc:
        raise typer.TyperException(f"{file} cannot be written: {exc.strerror}") from None


def replace_unchanged(file: Path, before: str, text: str) -> Path | None:
    """Replace a configuration file, unless its text is no longer `before`; return the path of a copy of the old file.

    None if there was no old file. Raises TyperException.
    """
    if read_config(file) != before:
        raise typer.TyperException(f"{file} is left as it was: it has been changed meanwhile; try again")
    try:
        return file_replacement.replace_file(file, text, private=True)
    except OSError as exc:
        raise typer.TyperException(f"{file} cannot be written: {exc.strerror}") from None


def _print_found(listed: Sequence[Offer], troubles: Sequence[Trouble]) -> None:
    """Print a table of the servers that were found, and the files that could not be read."""
    if listed:
        rows = [
            [
                str(number),
                offer.server.name,
                offer.hosts,
                offer.server.transport or "-",
                _describe_target(offer),
                _describe_attention(offer),
            ]
            for number, offer in enumerate(listed, 1)
        ]
        names = ("", "name", "host", "transport", "command or address", "attention")
        print_table(names, [[make_cell(cell) for cell in row] for row in rows])
    for trouble in troubles:
        note(f"not read: {trouble.place.file} ({trouble.place.title}): {trouble.why}")


def _describe_target(offer: Offer) -> str:
    """Return the command or the address of an offered server; empty if it cannot be taken over."""
    return describe_target(offer.server.spec) if offer.server.spec is not None else ""


def _describe_attention(offer: Offer) -> str:
    """Return what to look at before taking a server: its state, where it is from, notes, values to give, secrets."""
    server = offer.server
    warns_of_folder = offer.is_importable and not server.found.place.of_person
    parts = [
        STATE_TEXTS[offer.state],
        "this folder brings it: look at what it starts" if warns_of_folder else "",
        *server.notes,
    ]
    if offer.is_importable:
        parts += [f"asks for {ask.id}" for ask in server.asks]
        parts += [f"{secret.where}: {secret.why}" for secret in find_secrets(server.spec or {})]
    return "; ".join(part for part in parts if part)


def _make_offer_json(offer: Offer) -> dict[str, Any]:
    server = offer.server
    return {
        "name": server.name,
        "state": offer.state,
        "host": server.found.place.host,
        "file": str(server.found.place.file),
        "also": list(offer.also),
        "transport": server.transport or None,
        "what": _describe_target(offer) or None,
        "attention": list(server.notes),
        "asks": [ask.id for ask in server.asks],
        "secrets": [secret.where for secret in find_secrets(server.spec or {})],
    }


def _ask_which_servers(listed: Sequence[Offer], importable: Sequence[Offer]) -> list[Offer]:
    """Ask which servers to take, and return those. Raises Abort.

    Enter takes all that are new, but none that a folder brings: that may be from anybody.
    """
    new = [each for each in importable if each.state == "new"]
    new_of_person = [each for each in new if each.server.found.place.of_person]
    count = "the one that is new" if len(new_of_person) == 1 else f"all {len(new_of_person)} that are new"
    choices = ["numbers such as 1 3-5", *(["all"] if new_of_person != new else []), "none"]
    if new_of_person:
        rest = "" if new_of_person == new else " and not from this folder"
        choices.insert(0, f"Enter takes {count}{rest}")
    hint = "; or ".join(choices)
    while True:
        reply = _prompt(f"Which? ({hint}) ").lower()
        if reply == "" and new_of_person:
            return new_of_person
        if reply == "all":
            return new
        if reply in ("none", "n", "no", "0"):
            return []
        numbers = list(_parse_numbers(reply, len(listed)))
        chosen = [listed[number - 1] for number in numbers if 0 < number <= len(listed)]
        if numbers and len(chosen) == len(numbers) and all(each in importable for each in chosen):
            return chosen
        note("type numbers of the first column, of servers that can be taken over and are not there yet")


def _parse_numbers(text: str, max_number: int) -> Iterator[int]:
    """Yield the numbers of a list as `1 3-5`, each once; for a wrong one 0 or `max_number + 1`; nothing for no list."""
    if not NUMBER_LIST.fullmatch(text):
        return
    yielded_numbers: set[int] = set()
    for part in re.split(r"[,\s]+", re.sub(r"\s*-\s*", "-", text.strip())):
        first, _, last = part.partition("-")
        low, high = (min(whole_text(each, LARGEST_NUMBER) or 0, max_number + 1) for each in (first, last or first))
        for number in range(low, high + 1) or (0,):  # a range such as 5-3 is wrong
            if number not in yielded_numbers:
                yielded_numbers.add(number)
                yield number


def _import_wanted(request: ImportRequest, before: str, chosen_offers: Sequence[Offer]) -> ImportOutcome:
    """Ask for what the chosen servers need, add them to the text of the file, and write it if any could be added.

    Return the outcome. Raises TyperException, Abort.
    """
    text = before
    outcome = ImportOutcome()
    keyring = _offer_keyring(request, chosen_offers)
    confirms = _ask_about_approvals() if request.confirm is None and request.is_interactive else bool(request.confirm)
    known_values: dict[tuple[Path, str], str] = {}
    for offer in chosen_offers:
        server = _ask_for_values(request, offer.server, known_values)
        if server.asks:
            missing = ", ".join(ask.id for ask in server.asks)
            remedy = (
                "nothing was given" if request.is_interactive else f"`{request.same_command}` on a terminal asks for it"
            )
            outcome.skipped.append((offer, f"it needs {missing}; {remedy}"))
            continue
        secret_paths = find_prompted_paths(offer.server.spec or {}, [ask.id for ask in offer.server.asks if ask.secret])
        spec = _move_secrets(server.name, server.spec or {}, secret_paths, keyring, outcome)
        spec = {**spec, "confirm": "writes"} if confirms else spec
        place = server.found.place
        try:
            text = config_file.add_server(text, server.name, spec, f"From {place.title}: {place.file}")
        except Unchangeable as exc:
            raise typer.TyperException(f"{request.file} is left as it was: {exc}") from None
        outcome.imported.append(offer)
    if outcome.imported:
        outcome.backup = replace_checked(request.file, before, text)
    return outcome


def _ask_for_values(request: ImportRequest, server: Imported, known_values: dict[tuple[Path, str], str]) -> Imported:
    """Return a server with the values that it needs: known ones, else those that the person types, else defaults.

    New ones go into `known_values`, by the host's file and the prompt's id.
    """
    values: dict[str, str] = {}
    for ask in server.asks:
        key = (server.found.place.file, ask.id)
        if key not in known_values:
            value = _ask_for_value(server, ask) if request.is_interactive else ask.default
            if value is None:
                continue
            known_values[key] = escape(value)
        values[ask.id] = known_values[key]
    return fill_in_values(server, values)


def _ask_for_value(server: Imported, ask: InputPrompt) -> str | None:
    """Return the value that a person types for a prompt, else its default; None if they type nothing without one."""
    choices_text = f" [{'/'.join(ask.choices)}]" if ask.choices else ""
    default_text = f" (Enter: {ask.default})" if ask.default else ""
    while True:
        typed = _prompt(f"{server.name} asks for {ask.prompt}{choices_text}{default_text}: ", hidden=ask.secret)
        if not typed or not ask.choices or typed in ask.choices:
            return typed or ask.default
        note(f"type one of {', '.join(ask.choices)}")


def _offer_keyring(request: ImportRequest, chosen_offers: Sequence[Offer]) -> Keyring | None:
    """Ask whether the secrets go into the system's keyring, and return it if so; with `everything` nobody is asked.

    None if the secrets go into the file, if there are none, or if there is no keyring, which is printed.
    """
    written_secrets = [secret for offer in chosen_offers for secret in find_secrets(offer.server.spec or {})]
    prompted_secrets = [ask for offer in chosen_offers for ask in offer.server.asks if ask.secret]
    if not written_secrets and not prompted_secrets:
        return None
    try:
        keyring = open_system_keyring()
    except NoKeyring as exc:
        note(f"secrets go into the file, which only you can read; there is no keyring for them: {exc}")
        return None
    return keyring if request.everything or _ask_about_keyring(len(written_secrets) + len(prompted_secrets)) else None


def _ask_about_keyring(count: int) -> bool:
    """Ask whether to store secrets in the keyring, and return whether the person agrees."""
    what = "1 secret" if count == 1 else f"{count} secrets"
    typed = _prompt(f"Keep {what} in your system's keyring instead of the file? (Enter: yes, or no) ").lower()
    return not typed.startswith("n")


def _ask_about_approvals() -> bool:
    """Ask whether calls that may write need approval, and return whether the person agrees."""
    note("Shall somebody approve each call before it is made, of tools that are not marked as only reading?")
    return (
        not _prompt("You can change it for each server: `confirm` in the file. (Enter: yes, or no) ")
        .lower()
        .startswith("n")
    )


def move_secrets_to_keyring(settings: Settings, name: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move a server's secrets to the keyring, if a person at the terminal agrees, and return the changed spec.

    Prints where each secret goes. Raises Abort if the person leaves.
    """
    secrets = find_secrets(spec)
    if not secrets:
        return spec
    keyring, outcome = None, ImportOutcome()
    if settings.interactive:
        with suppress(NoKeyring):
            keyring = open_system_keyring()
            keyring = keyring if _ask_about_keyring(len(secrets)) else None
    spec = _move_secrets(name, spec, (), keyring, outcome)
    for each in outcome.keyring_secrets:
        note(f"in the keyring: {each}")
    for each in outcome.file_secrets:
        note(f"goes into the file, which only you can read: {each}")
    return spec


def _move_secrets(
    name: str,
    spec: Mapping[str, Any],
    prompted_paths: Sequence[SpecPath],
    keyring: Keyring | None,
    outcome: ImportOutcome,
) -> Mapping[str, Any]:
    """Move the secrets of a spec to the keyring, add each to `outcome`, and return the changed spec.

    Without a keyring, secrets stay in the spec. The texts at `prompted_paths` are secrets in any case.
    """
    found = find_secrets(spec)
    found_paths = {each.path for each in found}
    for secret in [*found, *(make_prompted_secret(spec, path) for path in prompted_paths if path not in found_paths)]:
        description = f"{name}: {secret.where} ({secret.why})"
        try:
            if keyring is None:
                raise NoKeyring  # without words: the person knows, so nothing is printed
            reference = keyring.store_secret(make_keyring_name(name, secret), secret.value)
        except NoKeyring as exc:
            if str(exc):
                note(f"{description} goes into the file: {exc}")
            outcome.file_secrets.append(description)
            continue
        spec = replace_secret(spec, secret, reference)
        outcome.keyring_secrets.append(description)
    return spec


def make_keyring_name(server: str, secret: Secret) -> str:
    """Return the name of a secret in the keyring: without braces and blanks, which a reference cannot have."""
    return re.sub(r"[{}\s]", "_", f"{server}/{'/'.join(map(str, secret.path[1:])) or secret.path[0]}")


def _prompt(prompt: str, *, hidden: bool = False) -> str:
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


def print_outcome(request: ImportRequest, outcome: ImportOutcome) -> None:
    """Print which servers were imported, which were skipped and why, and where their secrets are."""
    if request.settings.json:
        print_json(
            {
                "file": str(request.file),
                "backup": outcome.backup and str(outcome.backup),
                "taken": [offer.server.name for offer in outcome.imported],
                "left": {offer.server.name: why for offer, why in outcome.skipped},
                "in_keyring": outcome.keyring_secrets,
                "in_file": outcome.file_secrets,
            }
        )
        return
    for offer, why in outcome.skipped:
        note(f"left out: {offer.server.name}: {why}")
    if outcome.keyring_secrets:
        note("in the keyring:\n" + "\n".join(f"  {each}" for each in outcome.keyring_secrets))
    if outcome.file_secrets:
        note("in the file, which only you can read:\n" + "\n".join(f"  {each}" for each in outcome.file_secrets))
    if not outcome.imported:
        note("nothing was written")
        return
    names = ", ".join(offer.server.name for offer in outcome.imported)
    say(f"{request.file}: {names}")
    if outcome.backup is not None:
        note(f"as it was: {outcome.backup}")
