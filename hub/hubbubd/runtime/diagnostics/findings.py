"""The results of checks, for operators."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of a finding: ok, warn (needs attention), fail (the hub cannot start or serve)."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `about` names what was checked; there is `advice` if the severity is not ok."""

    about: str
    severity: Severity
    message: str
    advice: str = ""
