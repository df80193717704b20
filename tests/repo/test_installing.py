"""What `make run` says while it installs: never long nothing, and all of it when it fails."""

import sys
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run

SCRIPT = Path(__file__).resolve().parents[2] / "docs/demo/installing.py"
START = [sys.executable, str(SCRIPT), "--every", "0.05", "The servers"]


def test_a_command_that_says_nothing_for_long_is_spoken_of_again_and_again(tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = "print('Collecting grpcio', flush=True)\nimport os, time\n"
    waits += f"while not os.path.exists({str(go)!r}):\n time.sleep(0.01)"
    with Popen([*START, sys.executable, "-c", waits], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "The servers ...\n"
        beats = 0
        while beats < 3:
            beats += "Collecting grpcio" in process.stdout.readline()
        go.touch()
        last = process.stdout.read().splitlines()[-1]
    assert process.returncode == 0
    assert last.startswith("The servers: done")


def test_what_a_command_said_is_shown_when_it_fails_and_its_status_passed_on() -> None:
    fails = "print('Looking around'); print('no such \\x1b[2J package'); raise SystemExit(3)"
    done = run([*START, sys.executable, "-c", fails], stdout=PIPE, stderr=STDOUT, text=True, check=False)
    assert done.returncode == 3
    assert "no such ?[2J package" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("The servers: failed")


def test_a_command_that_is_not_there_is_named() -> None:
    done = run([*START, "no-such-command"], stdout=PIPE, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (127, "no-such-command: No such file or directory")
