"""`hubbubd` as its operator meets it: what it says, how it ends, what it leaves on the disk."""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client

pytestmark = pytest.mark.usefixtures("started_for_real")

LIMIT_S = 60
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("HUBBUB_", "HUBBUBD_"))}


async def hubbubd(*words: str, env: dict[str, str] | None = None) -> tuple[int, str, list[str]]:
    """A run of the daemon to its end: exit status, stdout and the lines of stderr."""
    command = [sys.executable, "-m", "hubbubd", *words]
    with anyio.fail_after(LIMIT_S):
        ran = await anyio.run_process(command, check=False, env=CLEAN | (env or {}))
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode().splitlines()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('[servers.a]\ncommand = "x"\ncolour = "red"\n', ["servers.a.colour"]),
        ('[servers.a]\ncommand = "x"\nretries = "many"\n', ["servers.a.retries"]),
        ('[servers.a]\ncommand = "x"\nargs = ["${no variable}"]\n', ["servers.a.args", "no variable"]),
        ('[servers.a]\nurl = "x"\n', ["servers.a", "http"]),
        ("[hub]\nmax_watchers = 0\n", ["hub.max_watchers"]),
        ("[hub\n", ["hub.toml"]),
    ],
)
async def test_a_bad_configuration_ends_it_with_2_and_one_line_that_names_the_key(
    tmp_path: Path, content: str, says: list[str]
) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(content)
    status, out, err = await hubbubd("--config", str(config), "--data-dir", str(tmp_path / "data"))
    assert (status, out, len(err)) == (2, "", 1)
    assert all(word in err[0] for word in ["hubbubd: ", *says]), err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "0.0.0.0:0"], ["listen", "loopback"]),
        (["--listen", "nowhere"], ["listen"]),
        (["--config", "missing.toml"], ["missing.toml"]),
        (["--frobnicate"], ["usage", "--frobnicate"]),
    ],
)
async def test_wrong_usage_ends_it_with_2_and_one_line(words: list[str], says: list[str]) -> None:
    status, out, err = await hubbubd(*words)
    assert (status, out, len(err)) == (2, "", 1)
    assert all(word in err[0] for word in says), err


async def test_a_wrong_variable_of_telemetry_is_named_before_anything_starts(tmp_path: Path) -> None:
    words = ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    for check in ([], ["--check-config"]):
        status, out, err = await hubbubd(*words, *check, env={"OTEL_TRACES_EXPORTER": "zipkin"})
        assert (status, out, len(err)) == (2, "", 1)
        assert "OTEL_TRACES_EXPORTER" in err[0]
    assert not (tmp_path / "data").exists()


async def test_checking_a_good_configuration_starts_nothing(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text('[servers.a]\ncommand = "no-such-command"\n')
    words = ["--config", str(config), "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    status, out, err = await hubbubd(*words, "--check-config")
    assert (status, err) == (0, [])
    assert "ok    configuration: 1 server in" in out
    assert "warn  server a: no-such-command is not on PATH" in out
    assert not (tmp_path / "data").exists()


async def test_a_busy_port_ends_it_with_1_and_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, out, err = await hubbubd("--listen", address, "--data-dir", str(tmp_path))
    assert (status, out, len(err)) == (1, "", 1), err
    assert address in err[0]


async def test_a_data_directory_of_somebody_else_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    theirs = Path("/")
    if os.geteuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir(mode=0o755)
        os.chown(theirs, 1, -1)
    before = theirs.stat()
    status, _, err = await hubbubd("--data-dir", str(theirs), "--listen", "127.0.0.1:0")
    assert (status, len(err)) == (1, 1)
    assert f"{theirs} belongs to another user" in err[0]
    assert (theirs.stat().st_mode, theirs.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


async def test_a_second_hub_on_the_same_data_is_refused_and_disturbs_nothing(start_hub: Any) -> None:
    hub = await start_hub()
    before = Path(hub.ready["client_file"]).read_bytes()
    status, out, err = await hubbubd("--listen", "127.0.0.1:0", "--data-dir", str(hub.data_dir))
    assert (status, out, len(err)) == (1, "", 1), err
    assert str(hub.data_dir) in err[0]
    assert Path(hub.ready["client_file"]).read_bytes() == before
    assert (await hub.hubbub("status")).record["pid"] == hub.process.pid


async def test_the_ready_line_and_the_client_file_say_where_it_is(start_hub: Any, tmp_path: Path) -> None:
    hub = await start_hub()
    assert set(hub.ready) == {"event", "grpc", "pid", "version", "data_dir", "client_file"}
    assert (hub.ready["event"], hub.ready["pid"]) == ("ready", hub.process.pid)
    client_file = Path(hub.ready["client_file"])
    assert client_file == hub.data_dir / "client.json"
    assert client_file.stat().st_mode & 0o777 == 0o600
    assert hub.data_dir.stat().st_mode & 0o777 == 0o700
    found = json.loads(client_file.read_bytes())
    assert set(found) == {"address", "token"}
    assert found["address"] == hub.ready["grpc"]
    async with hubbub_client.connect(found["address"], found["token"]) as client:
        status = await client.admin.status()
    assert (status.pid, status.version) == (hub.process.pid, hub.ready["version"])
    denied = await hub.hubbub("--token", "wrong", "status")
    assert (denied.status, denied.error["code"]) == (1, "UNAUTHENTICATED")


async def test_the_token_stays_over_restarts_and_sigint_ends_it_well(start_hub: Any) -> None:
    hub = await start_hub()
    token = json.loads(Path(hub.ready["client_file"]).read_bytes())["token"]
    hub.process.send_signal(signal.SIGINT)
    with anyio.fail_after(LIMIT_S):
        assert await hub.process.wait() == 0
    again = await start_hub()
    assert json.loads(Path(again.ready["client_file"]).read_bytes())["token"] == token


async def test_an_old_key_of_states_is_replaced_and_still_opens_what_it_has_sealed(start_hub: Any) -> None:
    first = await start_hub()
    await first.terminate()
    file = Path(first.data_dir) / "state_keys.json"
    (key,) = json.loads(file.read_bytes())["keys"]
    file.write_text(json.dumps({"keys": [{**key, "made_at": key["made_at"] - 31 * 86_400}]}))
    await start_hub()
    with anyio.fail_after(LIMIT_S):
        while len(keys := json.loads(file.read_bytes())["keys"]) == 1:
            await anyio.sleep(0.05)
    assert [each["secret"] == key["secret"] for each in keys] == [False, True]
