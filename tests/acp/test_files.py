"""Files and terminals that the agent asks its client for: below one folder, and only with `--fs`."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hubbub_acp.agent import workspace as workspace_module
from hubbub_acp.agent.terminals import MAX_TERMINALS, Terminals
from hubbub_acp.agent.workspace import Workspace
from hubbub_acp.faults import AgentFault
from hubbub_acp.sessions.opening import find_folder
from hubbub_shared.platform import processes

from .conftest import LIMIT_S, StartBridge


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "outside").mkdir()
    return tmp_path / "root"


def test_a_file_is_written_with_its_folders_and_read_by_lines(root: Path) -> None:
    workspace = Workspace(root)
    path = str(root / "a/b/c.txt")
    workspace.write(path, "one\ntwo\nthree\n")
    assert workspace.read(path) == "one\ntwo\nthree\n"
    assert workspace.read(path, 2, 1) == "two\n"
    assert workspace.read(path, 3) == "three\n"
    assert workspace.read(path, None, 1) == "one\n"
    assert workspace.read(path, 9, 9) == ""


def test_a_file_that_is_written_again_keeps_its_rights(root: Path) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o750)
    Workspace(root).write(str(root / "run.sh"), "new")
    assert (root / "run.sh").read_text() == "new"
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "way", ["../secret", "link", "folder/secret", "/etc/passwd", "relative", "nul\0", "deep/../../secret"]
)
def test_no_path_leads_out_of_the_folder(root: Path, way: str) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    (root / "folder").symlink_to(root.parent)
    (root / "deep").mkdir()
    path = way if way.startswith(("/", "relative")) else f"{root}/{way}"
    workspace = Workspace(root)
    for attempt in (lambda: workspace.read(path), lambda: workspace.write(path, "owned")):
        with pytest.raises(AgentFault) as fault:
            attempt()
        assert fault.value.code == "PATH_INVALID"
    assert (root.parent / "secret").read_text() == "secret"


def test_a_link_within_the_folder_is_followed(root: Path) -> None:
    (root / "file").write_text("within")
    (root / "link").symlink_to("file")
    assert Workspace(root).read(str(root / "link")) == "within"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_that_is_put_there_after_the_check_leads_nowhere(
    root: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "folder").mkdir()
    (root / "folder/secret").write_text("mine")
    workspace = Workspace(root)
    checked = workspace.resolve(str(root / "folder/secret"))

    def resolve_and_swap(given: str) -> Path:
        if what == "file":
            (root / "folder/secret").unlink(missing_ok=True)
            (root / "folder/secret").symlink_to(root.parent / "secret")
        elif not (root / "folder").is_symlink():
            (root / "folder").rename(root / "moved")
            (root / "folder").symlink_to(root.parent)
        return checked

    monkeypatch.setattr(workspace, "resolve", resolve_and_swap)
    with pytest.raises(AgentFault, match="secret"):
        workspace.read(str(checked))
    with pytest.raises(AgentFault):
        workspace.write(str(checked), "owned")
    assert (root.parent / "secret").read_text() == "secret"


def test_what_is_no_file_is_refused_and_does_not_block(root: Path) -> None:
    os.mkfifo(root / "pipe")
    workspace = Workspace(root)
    for path in (root / "pipe", root):
        with pytest.raises(AgentFault) as fault:
            workspace.read(str(path))
        assert fault.value.code == "PATH_INVALID"
    with pytest.raises(AgentFault, match="is no file"):
        workspace.write(str(root / "pipe"), "x")
    with pytest.raises(AgentFault) as missing:
        workspace.read(str(root / "missing"))
    assert missing.value.code == "NOT_FOUND"


def test_files_that_are_too_large_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_module, "READ_BYTES", 10)
    monkeypatch.setattr(workspace_module, "WRITE_BYTES", 10)
    (root / "large").write_text("x" * 11)
    for attempt in (
        lambda: Workspace(root).read(str(root / "large")),
        lambda: Workspace(root).write(str(root / "new"), "x" * 11),
    ):
        with pytest.raises(AgentFault) as fault:
            attempt()
        assert fault.value.code == "FILE_TOO_LARGE"


def said(result: dict[str, Any]) -> Any:
    return json.loads(result["content"][0]["text"].strip())


async def test_the_agent_reads_and_writes_below_the_folder(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within(root=work)).host
    result = await host.call("start", prompt="write a.txt one", cwd=str(work))
    assert result["structuredContent"]["changed"] == [str(work / "a.txt")]
    session = result["structuredContent"]["session"]
    assert said(await host.call("continue", session=session, prompt="read a.txt")) == {"content": "one"}
    refused = said(await host.call("continue", session=session, prompt="read /etc/passwd"))
    assert refused["message"] == f"'/etc/passwd' is not below {work}"


async def test_without_a_folder_neither_files_nor_terminals_are_offered(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within()).host
    result = await host.call("start", prompt="show", cwd=str(work))
    assert said(result)["client"] == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    session = result["structuredContent"]["session"]
    for step in ("write a.txt one", "read a.txt", "terminal ls"):
        found = said(await host.call("continue", session=session, prompt=step))
        assert found.get("code", found.get("error", {}).get("code")) == -32601


async def test_a_session_outside_of_the_folder_is_refused(
    start_bridge_within: StartBridge, work: Path, tmp_path: Path
) -> None:
    host = (await start_bridge_within(root=work)).host
    (work / "way out").symlink_to(tmp_path)
    for folder in (tmp_path, work / "way out", work / ".."):
        result = await host.call("start", prompt="say hello", cwd=str(folder))
        assert result["_meta"]["acp/error"]["code"] == "FOLDER_INVALID"
        assert f"not below {work}" in result["content"][0]["text"]


@pytest.mark.usefixtures("processes")
async def test_a_terminal_runs_in_the_folder_and_keeps_the_end_of_its_output(
    start_bridge_within: StartBridge, work: Path
) -> None:
    host = (await start_bridge_within(root=work)).host
    result = await host.call("start", prompt="terminal pwd; exit 3", cwd=str(work))
    ended, output = said(result)
    assert ended == {"exitCode": 3, "signal": None}
    assert output["output"] == f"{work}\n"
    session = result["structuredContent"]["session"]
    prompt = "terminal head -c 400000 /dev/zero | tr '\\0' x"
    text = (await host.call("continue", session=session, prompt=prompt))["content"][0]["text"]
    assert text.endswith('x", "truncated": true, "exitStatus": {"exitCode": 0, "signal": null}}]')


@pytest.mark.usefixtures("processes")
async def test_a_terminal_ends_with_the_turn_that_began_it(start_bridge_within: StartBridge, work: Path) -> None:
    host = (await start_bridge_within(root=work)).host
    params = {"sessionId": "SESSION", "command": "sh", "args": ["-c", "echo $$ >draft; mv draft pid; exec sleep 600"]}
    create = json.dumps({"id": "own", "method": "terminal/create", "params": params})
    await host.call("start", prompt=f"raw {create}\nwait pid\nsay on", cwd=str(work))
    with processes.hold_process(int((work / "pid").read_text())) as process:
        assert process is None or process.wait_for_end(LIMIT_S)


def test_lines_of_a_file_end_with_line_feeds_alone(root: Path) -> None:
    (root / "page.txt").write_bytes("one\f\u2028still one\r\ntwo\n".encode())
    assert Workspace(root).read(str(root / "page.txt"), 2, 1) == "two\n"


def test_a_folder_beside_the_root_is_not_below_it(root: Path) -> None:
    (root.parent / "root2").mkdir()
    with pytest.raises(AgentFault, match="is not below"):
        find_folder(str(root.parent / "root2"), root)
    assert find_folder(str(root), root) == str(root.resolve())


def test_a_folder_whose_name_is_no_utf8_is_refused(root: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(root) + b"/\xff"))
    try:
        strange.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    (root / "link").symlink_to(strange)
    with pytest.raises(AgentFault, match="no UTF-8: rename it"):
        find_folder(str(root / "link"), None)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("within_a_hub", [True, False])
async def test_what_a_terminal_left_running_is_known_by_a_mark(
    root: Path, monkeypatch: pytest.MonkeyPatch, within_a_hub: bool
) -> None:
    monkeypatch.delenv(processes.MARK, raising=False)
    mark = f"{os.getpid()}.hub"
    if within_a_hub:
        monkeypatch.setenv(processes.MARK, mark)
    terminals = Terminals(Workspace(root))
    script = "setsid sh -c 'echo $$ >draft; mv draft pid; exec sleep 600' & wait"
    named = [{"name": processes.MARK, "value": "none"}]
    await terminals.create({"sessionId": "s", "command": "sh", "args": ["-c", script], "env": named}, str(root))
    while not (root / "pid").exists():
        await asyncio.sleep(0.01)
    left = int((root / "pid").read_text())
    await terminals.close()
    with processes.hold_process(left) as process:
        assert (process is not None and not process.wait_for_end(0)) == within_a_hub
    processes.kill_marked(mark)
    with processes.hold_process(left) as process:
        assert process is None or process.wait_for_end(LIMIT_S)


@pytest.mark.usefixtures("processes")
async def test_terminals_that_are_asked_for_at_once_are_counted(root: Path) -> None:
    terminals = Terminals(Workspace(root))
    params = {"sessionId": "s", "command": "/bin/sleep", "args": ["600"]}
    wanted = MAX_TERMINALS + 4
    made = await asyncio.gather(*(terminals.create(params, str(root)) for _ in range(wanted)), return_exceptions=True)
    assert [each.code for each in made if isinstance(each, AgentFault)] == ["TOO_MANY_TERMINALS"] * 4
    terminal_ids = [each["terminalId"] for each in made if isinstance(each, dict)]
    terminals.release({"sessionId": "s", "terminalId": terminal_ids[0]})
    again = await terminals.create(params, str(root))
    with pytest.raises(AgentFault, match="has no terminal"):
        terminals.read_output({"sessionId": "another", **again})
    await terminals.close()
