"""What `make containers` says, and what it knows of the files of Compose; the rest of it is tried by running it."""

import pytest
import yaml

from . import fleet, images, machine, single
from .__main__ import REPOSITORY
from .report import Report, StepFailed, expect

FILES = {single.FILE: single.SERVICES, fleet.FILE: fleet.SERVICES}


@pytest.mark.parametrize("file", FILES)
def test_each_image_that_a_file_would_fetch_has_one_that_stands_for_it(file: str) -> None:
    services = yaml.safe_load((REPOSITORY / file).read_text())["services"]
    fetched = {each["image"].partition(":")[0] for each in services.values() if not each["image"].endswith(":local")}
    assert fetched <= set(images.STANDS_FOR)
    standing = {path.name.partition(".")[0] for path in (REPOSITORY / "tests/containers/images").glob("*.Dockerfile")}
    assert {images.STANDS_FOR[name] for name in fetched} <= standing


@pytest.mark.parametrize("file", FILES)
def test_all_services_that_go_on_are_waited_for(file: str) -> None:
    services = yaml.safe_load((REPOSITORY / file).read_text())["services"]
    assert set(services) - {"keys"} == set(FILES[file])


def test_who_is_not_root_is_told_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    assert machine.find_obstacle().startswith("make containers needs root")
    assert "\n" not in machine.find_obstacle()


def test_a_step_that_fails_is_in_the_table_and_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    with report.step("first") as step:
        step.figure = "1 MB"
    with pytest.raises(StepFailed), report.step("second"):
        expect(False, "it is\nnot so")
    assert report.has_failed
    assert report.table().splitlines()[2:] == ["| first | ok | 1 MB |", "| second | FAILED | it is not so |"]
    assert "FAILED" in capsys.readouterr().out
