"""Whether a release may be made of this tree, and what is said of it.

    release.py check TAG     the tag, the version, the changelog and the licence fit together
    release.py notes         what the changelog says of the version

The version is in one place, `hub/hubbub_shared/__init__.py`, where both distributions have it from. Needs nothing
that is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.compile(r'^__version__(?:: \w+)? = "([^"]+)"$', re.MULTILINE)
HEADING = re.compile(r"^## (\S+), (.+)$", re.MULTILINE)
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class NotReady(Exception):
    """No release can be made of this tree; the text says what to do first."""


def version(root: Path = ROOT) -> str:
    """The version of this tree."""
    found = VERSION.search((root / "hub/hubbub_shared/__init__.py").read_text())
    if found is None:
        raise NotReady("hub/hubbub_shared/__init__.py has no __version__")
    return found[1]


def newest(root: Path = ROOT) -> tuple[str, str, str]:
    """The newest version of the changelog, its day or `not released`, and what it says."""
    text = (root / "CHANGELOG.md").read_text()
    found = HEADING.search(text)
    if found is None:
        raise NotReady("CHANGELOG.md has no heading `## VERSION, YYYY-MM-DD`")
    return found[1], found[2], text[found.end() :].partition("\n## ")[0].strip()


def check(tag: str, root: Path = ROOT) -> None:
    """Raises NotReady unless a release with this tag can be made."""
    here = version(root)
    if tag != f"v{here}":
        raise NotReady(f"the tag is {tag}, and the version is {here}: tag v{here}, or change __version__")
    name, day, _ = newest(root)
    if name != here:
        raise NotReady(f"the newest version in CHANGELOG.md is {name}, and not {here}")
    if not DAY.fullmatch(day):
        raise NotReady(f"CHANGELOG.md says {day!r} of {name}: write the day, YYYY-MM-DD")
    for path in ("pyproject.toml", "clients/library/pyproject.toml"):
        if not tomllib.loads((root / path).read_text())["project"].get("license"):
            raise NotReady(f"{path} has no `license`: the owner chooses it (RELEASING.md)")


def main(words: list[str]) -> int:
    """Does what the command line says; returns the exit status."""
    try:
        match words:
            case ["check", tag]:
                check(tag)
                print(f"{tag} can be released")
            case ["notes"]:
                print(newest()[2])
            case _:
                print((__doc__ or "").split("\n\n")[1], file=sys.stderr)
                return 2
    except NotReady as error:
        print(f"not released: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
