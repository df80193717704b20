"""Stands for a server that is forked: launch.py ADDRESS SCRIPT ARGUMENT...; `-I -S` lets it start at once.

The server has the pipes, the variables and the directory of this process, which only passes on signals, and ends as the
server does. When this process is killed, so is the server.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from wire import PACKET_BYTES, ask

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(address: str, script: str, *arguments: str) -> None:
    if any(name.startswith("PYTHON") for name in os.environ):
        os.execv(sys.executable, [sys.executable, script, *arguments])
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    way, _, process = ask(address, script, arguments, os.environ, os.getcwd(), (0, 1, 2))  # noqa: PTH109

    def pass_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):  # it has ended, and the fork server has not said so yet
            signal.pidfd_send_signal(process, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    status = int(way.recv(PACKET_BYTES) or -signal.SIGKILL)
    if status < 0:
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main(*sys.argv[1:])
