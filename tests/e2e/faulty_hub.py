"""`hubbubd` on a disk with faults: `faulty_hub.py FILE ARGUMENT...`; FILE lists them as JSON, and may change."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

from faulty import Disk, Fault

from hubbubd.program.app import run


class FaultFile:
    """The faults that a file lists now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._faults: Sequence[Fault] = []

    def faults(self) -> Sequence[Fault]:
        text = self._path.read_text()
        if text != self._text:
            self._text, self._faults = text, [Fault(**each) for each in json.loads(text)]
        return self._faults


if __name__ == "__main__":
    disk = Disk(FaultFile(Path(sys.argv[1])).faults)
    disk.install()
    sys.exit(run(sys.argv[2:]))
