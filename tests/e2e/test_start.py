"""What a start leaves out is made up for as soon as the program is up."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 60
AT_THE_END = "import atexit, gc, sys; atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))"


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("hubbubd.__main__", ["--help"]), ("hubbub_cli", ["--data-dir", "DIRECTORY", "status"])],
)
def test_garbage_is_looked_for_again_once_all_is_imported(module: str, arguments: list[str], tmp_path: Path) -> None:
    words = [str(tmp_path) if word == "DIRECTORY" else word for word in arguments]
    done = subprocess.run(
        [sys.executable, "-c", f"{AT_THE_END}; from {module} import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout.splitlines()[-1] == "True True", done.stderr
