"""Runs a command that installs something, and says every few seconds what it is at.

    installing.py [--every SECONDS] TITLE COMMAND...

Its exit code is that of the command. What the command printed is shown when it fails. It runs before anything is
installed, so it has only the standard library.
"""

import collections
import os
import queue
import subprocess
import sys
import threading
import time

EVERY_S = 3.0
# What is shown of a command that has failed, and of a line while it goes well.
TAIL_LINES = 40
WIDTH = 100
# What pip or uv is at; other lines are advice, or addresses.
STEPS = (
    *("Collecting ", "Downloading ", "Building ", "Preparing ", "Prepared ", "Resolved ", "Getting ", "Installing "),
    "Successfully ",
)


def run(title: str, command: "list[str]", every_s: float) -> int:
    """Runs the command to its end; returns its exit code."""
    began = time.monotonic()
    _say(f"{title} ...")
    try:
        process = subprocess.Popen(  # noqa: S603  (the command of the Makefile)
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return 127
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    step, due = "starting", began + every_s
    while True:
        try:
            line = lines.get(timeout=max(due - time.monotonic(), 0.0))
        except queue.Empty:
            _say(f"  {time.monotonic() - began:3.0f} s  {step}")
            due += every_s
            continue
        if line is None:
            break
        tail.append(line)
        if line.lstrip().startswith(STEPS):
            step = line.strip()[:WIDTH]
    status = process.wait()
    if status:
        for line in tail:
            _say(line)
        _say(f"{title}: failed after {time.monotonic() - began:.0f} s")
    else:
        _say(f"{title}: done, {time.monotonic() - began:.0f} s")
    return status


def _read(process: "subprocess.Popen[bytes]", lines: "queue.Queue[str | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.decode("utf-8", "replace").rstrip())
    lines.put(None)


def _say(line: str) -> None:
    shown = "".join(each if each.isascii() and each.isprintable() else "?" for each in line)
    print(shown, flush=True)


def main(words: "list[str]") -> int:
    """Runs what the command line says."""
    every_s = EVERY_S
    if words[:1] == ["--every"]:
        every_s, words = float(words[1]), words[2:]
    if len(words) < 2:
        _say((__doc__ or "").split("\n\n")[1].strip())
        return os.EX_USAGE
    return run(words[0], words[1:], every_s)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
