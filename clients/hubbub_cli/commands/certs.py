"""`hubbub certs`."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import print_json, say
from hubbub_cli.run.session import Usage, get_settings
from hubbub_cli.syntax.group import Commands

if TYPE_CHECKING:
    from hubbub_frontend.certs import Authority

app = Commands("Certificates for a hub that others reach over the network.")


@app.command("dev", example="certs dev certs --host hub.example.com --client alice")
def dev(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files are kept; made when missing.")],
    host: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Another name or address of the hub.")] = None,
    client: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A caller with a certificate, known as `cert:NAME`.")
    ] = None,
) -> None:
    """Make an authority for development, a certificate for the hub, and one for each client; print what to configure.

    The authority is made once, the certificates each time: a running hub reads the new ones by itself.
    """
    with _open_authority(directory) as authority:
        server = authority.issue_server(host or ())
        clients = {name: authority.issue_client(name) for name in client or ()}
    if get_settings(context).json:
        pairs = {name: {"cert": str(pair.cert), "key": str(pair.key)} for name, pair in clients.items()}
        paths = {"ca": str(authority.file), "cert": str(server.cert), "key": str(server.key), "clients": pairs}
        print_json(paths)
        return
    say("# The hub's configuration:\n[hub]")
    say(f"tls_cert = {json.dumps(str(server.cert))}\ntls_key = {json.dumps(str(server.key))}")
    if clients:
        say(f"tls_client_ca = {json.dumps(str(authority.file))}")
    for name in clients:
        say(f'\n[[hub.grants]]\nwho = "cert:{name}"\nroles = ["viewer"]')
    say("\n# Its callers:")
    say(f"#   hubbub --address https://HOST:PORT --ca {authority.file} ...")
    for pair in clients.values():
        say(f"#   hubbub --address https://HOST:PORT --ca {authority.file} --cert {pair.cert} --key {pair.key} ...")


@app.command("member", example="certs member certs a b c")
def member(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files are kept; made when missing.")],
    name: Annotated[list[str], typer.Argument(metavar="NAME...", help="Members of a fleet, by `name` of `[fleet]`.")],
) -> None:
    """Make a certificate for each member of a fleet, and print what to configure.

    The authority is made once, the certificates each time. Use a directory for nothing else: members trust each
    certificate of its authority.
    """
    with _open_authority(directory) as authority:
        members = {each: authority.issue_member(each) for each in name}
    if get_settings(context).json:
        pairs = {each: {"cert": str(pair.cert), "key": str(pair.key)} for each, pair in members.items()}
        print_json({"ca": str(authority.file), "members": pairs})
        return
    for each, pair in members.items():
        say(f"# The configuration of member {each}:\n[fleet]\nname = {json.dumps(each)}")
        say(f"ca = {json.dumps(str(authority.file))}")
        say(f"cert = {json.dumps(str(pair.cert))}\nkey = {json.dumps(str(pair.key))}\n")


@contextmanager
def _open_authority(directory: Path) -> Generator["Authority"]:
    """Open the authority for certificates in a directory for a block; it is made if it is not there.

    Raises Usage if the block gives it a wrong name, TyperException if a file cannot be read or written.
    """
    from hubbub_frontend.certs import Authority  # imported here, since it costs more than most commands take

    try:
        yield Authority.open(directory.absolute())
    except ValueError as error:
        raise Usage(str(error)) from None
    except OSError as error:
        raise typer.TyperException(f"{error.filename or directory}: {error.strerror}") from None
