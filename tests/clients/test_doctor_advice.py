"""What the doctor advises where nothing can be installed."""

import os
from types import SimpleNamespace

import pytest

from hubbub_cli.commands import doctor


@pytest.mark.parametrize(
    ("flags", "command", "words"),
    [
        (os.ST_RDONLY, "npx", "tools"),
        (os.ST_RDONLY, "uvx", "tools"),
        (os.ST_RDONLY, "docker", "install Docker"),
        (0, "npx", "install Node.js"),
    ],
)
def test_in_a_container_the_doctor_names_the_image_that_has_the_command(
    monkeypatch: pytest.MonkeyPatch, flags: int, command: str, words: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=flags))
    assert words in (doctor._advise_on_command(command) or "")


def test_what_the_doctor_does_not_know_is_advised_on_in_general() -> None:
    assert doctor._advise_on_command("something") is None
