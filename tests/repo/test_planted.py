"""The table of planted faults is about the code and the tests that there are."""

import ast
from functools import cache
from pathlib import Path

import pytest

from ..planted.run import Fault, faults

REPOSITORY = Path(__file__).resolve().parents[2]
FAULTS = faults()


@cache
def texts(folder: Path) -> str:
    """All tests of a folder: a module may take over those of another."""
    return "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))


def test_each_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_and_names_tests_that_there_are(fault: Fault) -> None:
    source = (REPOSITORY / fault.file).read_text(encoding="utf-8")
    assert fault.planted(source) != source
    if fault.file.endswith(".py"):
        ast.parse(fault.planted(source))
    assert fault.caught_by
    for test in fault.caught_by:
        path, _, name = test.partition("::")
        assert (REPOSITORY / path).is_file(), path
        assert f"def {name.partition('[')[0]}(" in texts((REPOSITORY / path).parent), test
