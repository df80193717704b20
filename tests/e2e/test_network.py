"""docs/tls.md, run as written, and what a daemon says that may not serve the network."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import anyio

from hubbub_frontend.certs import Authority

from .conftest import LIMIT_S, Ran, environment, running

DOCUMENT = (Path(__file__).parents[2] / "docs/tls.md").read_text()


async def shell(command: str, **env: str) -> Ran:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(["bash", "-c", command], env={**environment(), "PATH": path, **env}, check=False)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


async def hubbubd(*words: str) -> Ran:
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process([sys.executable, "-m", "hubbubd", *words], env=environment(), check=False)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


async def test_the_document_works_as_written(tmp_path: Path) -> None:
    make, remote, *local = "".join(
        re.findall(r"^```sh tls\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    ).splitlines()
    [config] = re.findall(r"^```toml tls\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)

    def here(text: str) -> str:
        return text.replace("certs/", f"{tmp_path}/certs/").replace("0.0.0.0:7878", "127.0.0.1:0")

    made = await shell(f"cd {tmp_path} && {make}")
    assert made.status == 0, made.err
    # What the command prints is what the document shows, but for where the files are.
    shown = [line for line in config.splitlines() if line and not line.startswith("listen")]
    assert [line for line in made.out.replace(f"{tmp_path}/", "").splitlines() if line and line[0] != "#"] == shown

    (tmp_path / "hub.toml").write_text(here(config))
    data_dir = tmp_path / "data"
    async with running(["--config", str(tmp_path / "hub.toml"), "--data-dir", str(data_dir)]) as hub:
        address = hub.ready["grpc"].replace("127.0.0.1", "localhost")
        seen = await shell(here(remote).replace("hub.example.com:7878", address))
        assert seen.status == 0, seen.err
        assert "cert:ada" in seen.out
        for command in local:
            said = await shell(command, HUBBUB_DATA_DIR=str(data_dir))
            assert said.status == 0, said.err
        assert (data_dir / "hub.sock").stat().st_mode & 0o777 == 0o600


async def test_strangers_add_no_line_to_the_log(tmp_path: Path) -> None:
    """Anybody may send anything, as often as they like: the disk is not theirs to fill."""
    authority = Authority.open(tmp_path / "certs")
    pair = authority.issue_server()
    (tmp_path / "hub.toml").write_text(
        f'[hub]\ntls_cert = "{pair.cert}"\ntls_key = "{pair.key}"\ntls_client_ca = "{authority.file}"\n'
        'listen = "127.0.0.1:0"\nconnect_listen = "127.0.0.1:0"\nmetrics_listen = "127.0.0.1:0"\n'
    )
    arguments = ["--config", str(tmp_path / "hub.toml"), "--data-dir", str(tmp_path / "data")]
    with (tmp_path / "log").open("wb") as log:
        async with running(arguments, stderr=log) as hub:
            for port in (re.search(r":(\d+)", hub.ready[name]) for name in ("grpc", "connect", "metrics")):
                assert port is not None
                for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01garbage", b"no HTTP\r\n\r\n"):
                    with anyio.fail_after(LIMIT_S):
                        async with await anyio.connect_tcp("127.0.0.1", int(port[1])) as stranger:
                            await stranger.send(words)
                            await stranger.send_eof()
                            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                                while True:
                                    await stranger.receive()
    assert (tmp_path / "log").read_text() == ""


async def test_a_data_directory_too_deep_for_its_socket_is_named(tmp_path: Path) -> None:
    pair = Authority.open(tmp_path).issue_server()
    config = tmp_path / "hub.toml"
    config.write_text(f'[hub]\nlisten = "127.0.0.1:0"\ntls_cert = "{pair.cert}"\ntls_key = "{pair.key}"\n')
    ended = await hubbubd("--config", str(config), "--data-dir", str(tmp_path / ("x" * 100)))
    assert ended.status == 2
    assert "hub.data_dir" in ended.err
    assert "hub.sock" in ended.err
