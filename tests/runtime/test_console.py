"""What the daemon says at a terminal: nothing that others wrote steers it. In a process, since logging is one's own."""

import os
import pty
import re
import subprocess
import sys

import pytest

from hubbub_shared.legible import clean, is_clean

SPEAKER = r"""
import logging
import structlog
from hubbubd.program import console
from hubbubd.telemetry.logs import LogSink

TRICK = "\x1b]0;EVIL\x07\x1b[31mRED\x1bc\x9b2J\b\b\u202eTURNED\u200b\U000e0041\r\nspoofed"
console.configure_logging(None, LogSink())
log = structlog.get_logger()
told = {TRICK: TRICK, "nested": {TRICK: [TRICK, (TRICK,)]}, "raw": TRICK.encode(), "told": ValueError(TRICK)}
log.warning(TRICK, **told)
logging.getLogger("library").warning("%s %r", TRICK, TRICK)
try:
    raise RuntimeError(TRICK)
except RuntimeError:
    log.exception("failed", server=TRICK)
    logging.getLogger("library").exception("failed: %s", TRICK)
console.print_error(TRICK)
"""


def said_at_a_terminal() -> str:
    screen, own = pty.openpty()
    environ = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    with subprocess.Popen([sys.executable, "-c", SPEAKER], stdout=own, stderr=own, env=environ) as process:
        os.close(own)
        found = b""
        while True:
            try:
                part = os.read(screen, 65536)
            except OSError:  # nobody has the terminal any more
                break
            found += part
        status = process.wait(60)
    os.close(screen)
    assert status == 0, found
    return found.decode(errors="surrogateescape").replace("\r\n", "\n")


@pytest.fixture(scope="module")
def said(processes: None) -> str:
    return said_at_a_terminal()


def test_nothing_that_is_logged_steers_the_terminal(said: str) -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)  # the log's own colours
    assert said.count("EVIL") > 8
    assert clean(plain) == plain
    assert is_clean(plain)
    assert "\x1b[31mRED" not in said


def test_no_text_passes_for_a_line_of_the_log(said: str) -> None:
    assert not [line for line in said.splitlines() if line.startswith("spoofed")]


LEVELS = r"""
import structlog
from hubbubd.program import console
from hubbubd.telemetry.logs import LogSink

console.configure_logging(None, LogSink())
log = structlog.get_logger()
for level in ("info", "debug", "error", "info"):
    console.set_log_level(level)
    for method in ("debug", "info", "error"):
        getattr(log, method)(f"{method} at {level}")
"""


def test_a_changed_level_of_the_log_holds_for_loggers_that_are_in_use(processes: None) -> None:
    ran = subprocess.run([sys.executable, "-c", LEVELS], capture_output=True, text=True, check=True, timeout=60)
    assert re.findall(r'"event": ?"([^"]+)"', ran.stderr) == [
        *("info at info", "error at info"),
        *("debug at debug", "info at debug", "error at debug"),
        "error at error",
        *("info at info", "error at info"),
    ]
