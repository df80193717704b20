"""Each setting of the hub, with every magnitude there is in its variable: it is taken, or refused in one clear line."""

import contextlib
import io
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from hubbubd.config import HubSettings
from hubbubd.program.app import FAILED, SUCCEEDED, USAGE, run

MAGNITUDES = (
    "0", "-0", "-1", "0.5", str(2**31), str(-(2**31)), str(2**53), str(2**63), str(2**64), "1e308", "1e400", "-1e400",
    "NaN", "inf", "-inf", "Infinity", "", " ", "9" * 10_000, "0." + "0" * 10_000 + "1", "[1e400]", "٣",
)  # fmt: skip

LONGEST = 2000
"""Characters of a line that a person still reads."""


def checked(words: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    """`hubbubd --check-config`: its exit status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, environ, clear=True), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return run(["--check-config", *words]), out.getvalue(), err.getvalue()


def wrong(status: int, out: str, err: str) -> str:
    """What is against the contract; empty when nothing is."""
    lines = err.splitlines()
    if status not in (SUCCEEDED, FAILED, USAGE) or "Traceback" in err or "fault of its own" in err:
        return f"exit {status}"
    if status == USAGE and len(lines) != 1:
        return f"{len(lines)} lines"
    if not err and status != SUCCEEDED and "FAIL" not in out.upper():
        return "nothing says why"
    long = max(map(len, (*lines, *out.splitlines(), "")))
    return f"a line of {long} characters" if long > LONGEST else ""


@pytest.mark.parametrize("name", sorted(HubSettings.model_fields))
def test_every_magnitude_of_a_setting_is_taken_or_refused_in_one_line_that_names_it(name: str, tmp_path: Path) -> None:
    variable = f"HUBBUBD_{name.upper()}"
    words = [] if name == "data_dir" else ["--data-dir", str(tmp_path / "hub")]
    surroundings = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    found: list[str] = []
    for value in MAGNITUDES:
        status, out, err = checked(words, surroundings | {variable: value})
        what = wrong(status, out, err)
        if not what and status == USAGE and variable not in err:
            what = "it does not say what is wrong"
        if what:
            found.append(f"{value[:30]!r}: {what}, {err[:200]!r}")
    assert found == []


@pytest.mark.parametrize("option", ["--listen", "--data-dir", "--config"])
def test_every_magnitude_of_an_option_is_taken_or_refused_in_one_line(option: str, tmp_path: Path) -> None:
    words = [] if option == "--data-dir" else ["--data-dir", str(tmp_path / "hub")]
    surroundings = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    with contextlib.chdir(tmp_path):
        found = [
            (value[:30], what)
            for value in MAGNITUDES
            if (what := wrong(*checked([*words, option, value], surroundings)))
        ]
    assert found == []
