"""The documents say what is so."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REASON = re.compile(r"""(?:reason=|code=|_fault\(|faults\.error\(|faults\.fault\(|fault\()\s*"([A-Z][A-Z_]+)\"""")
TABLE_ROW = re.compile(r'^    "([A-Z_]+)": \(Category', re.MULTILINE)


def reasons_in_code() -> set[str]:
    sources = [path.read_text() for path in (ROOT / "hub").rglob("*.py")]
    return {reason for source in sources for pattern in (REASON, TABLE_ROW) for reason in pattern.findall(source)}


def test_every_reason_that_the_hub_gives_has_its_section() -> None:
    sections = set(re.findall(r"^## (.+)$", (ROOT / "docs/errors.md").read_text(), re.MULTILINE))
    assert {reason.lower() for reason in reasons_in_code()} <= sections


def test_every_file_that_a_document_links_to_exists() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
