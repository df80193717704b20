"""Stands between a hub and a server over stdio, and harms the lines that pass. Standard library only.

    interpose.py PLAN COMMAND [ARGUMENT ...]

PLAN is JSON: a list of `[kind, number, fault]`. The kind of a line is its JSON-RPC method, or `answer METHOD`, with `>`
before it on its way to the server and `<` on its way to the hub; the fault befalls the `number`th of its kind, and all
after it where it says so:

    drop     is not passed on            delay     and all after it come a moment later
    twice    comes twice                 swap      comes after the next line of its direction, or after a moment
    tear     is cut in the middle        split     comes in two parts, a moment apart
    trickle  comes byte by byte          stall     neither it nor anything after it is passed on
    close    its direction is closed instead, while the server lives on and the other direction works
    die      the server is killed instead

FAULTED in the environment names a file, which the first fault makes; once it is there, no other process does harm.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

MOMENT_S = 0.3
PLAN: list[tuple[str, int, str]] = [tuple(each) for each in json.loads(sys.argv[1])]
FAULTED = Path(os.environ["FAULTED"])
HARMLESS = FAULTED.exists()
OTHER = {"<": ">", ">": "<"}
methods: dict[Any, str] = {}
"""What was asked, by the JSON of its id."""


class Way:
    """One direction."""

    def __init__(self, sign: str, source: BinaryIO, sink: BinaryIO, server: "subprocess.Popen[bytes]") -> None:
        self.sign = sign
        self.source = source
        self.sink = sink
        self.server = server
        self.seen: dict[str, int] = {}
        self.held: bytes | None = None
        self.turn = threading.Lock()

    def run(self) -> None:
        """Passes lines on until one of the ends is closed."""
        try:
            for line in self.source:
                if self.fault(line) == "close":
                    break
        except OSError:
            pass
        self.close()

    def fault(self, line: bytes) -> str | None:
        """Passes a line on, harmed or not; how it was harmed."""
        match fault := self.planned(line):
            case "drop" | "close":
                pass
            case "stall":
                time.sleep(3600)
            case "die":
                self.server.kill()
            case "delay":
                time.sleep(MOMENT_S)
                self.say(line)
            case "twice":
                self.say(line + line)
            case "tear":
                self.say(line[: len(line) // 2])
            case "split":
                self.say(line[: len(line) // 2])
                time.sleep(MOMENT_S)
                self.say(line[len(line) // 2 :])
            case "trickle":
                for byte in line:
                    self.say(bytes([byte]))
            case "swap":
                self.held = line
                threading.Timer(MOMENT_S, self.release).start()
            case _:
                self.say(line)
                self.release()
        return fault

    def release(self) -> None:
        """Passes on the line that was to come later."""
        with self.turn:
            held, self.held = self.held, None
        if held is not None:
            self.say(held)

    def planned(self, line: bytes) -> str | None:
        message: dict[str, Any] = json.loads(line)
        asked = self.sign + json.dumps(message.get("id"))
        if "method" in message:
            kind = methods[asked] = self.sign + message["method"]
        else:
            kind = f"{self.sign}answer {methods[OTHER[self.sign] + asked[1:]][1:]}"
        number = self.seen[kind] = self.seen.get(kind, 0) + 1
        fault = next((fault for place, turn, fault in PLAN if (place, turn) == (kind, number)), None)
        if fault is None or HARMLESS:
            return None
        FAULTED.touch()
        return fault

    def say(self, data: bytes) -> None:
        with self.turn:
            os.write(self.sink.fileno(), data)

    def close(self) -> None:
        # The descriptor itself: the reader of the other end learns of it, though the object lives on.
        os.close(self.sink.fileno())


def main() -> int:
    server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert server.stdin is not None
    assert server.stdout is not None
    ways = [Way(">", sys.stdin.buffer, server.stdin, server), Way("<", server.stdout, sys.stdout.buffer, server)]
    threads = [threading.Thread(target=way.run, daemon=True) for way in ways]
    for thread in threads:
        thread.start()
    status = server.wait()
    threads[1].join(timeout=5)
    os._exit(status if status >= 0 else 1)


if __name__ == "__main__":
    main()
