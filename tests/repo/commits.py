"""Subjects of commits: what `git commit` and `make check` hold them to.

    commits.py FILE          the message in this file; git's hook `commit-msg`
    commits.py               those of this branch, since the rule was made
    commits.py install       puts the hook where git looks for it, unless somebody has one of their own

Needs nothing that is installed, as the hook may run before anything is.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SINCE = "53c1bc6d"
"""The last commit before there was a rule."""

MOST = 72
OF_GIT = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ")
NOT_IMPERATIVE = re.compile(
    r"(?i)[a-z]+s(?<!ss)(?<!focus)(?<!bias)|[a-z]+ed(?<!eed)(?<!embed)(?<!shed)|[a-z]{2,}ing(?<!string)(?<!bring)"
)
MARK = "# Hubbub: subjects of commits"
HOOK = f"""#!/bin/sh
{MARK}
rules="$(git rev-parse --show-toplevel)/tests/repo/commits.py"
[ ! -f "$rules" ] || exec python3 "$rules" "$1"
"""


def wrong(subject: str) -> Iterator[str]:
    """What is wrong with a subject."""
    if OF_GIT.match(subject):
        return
    if len(subject) > MOST:
        yield f"has {len(subject)} characters; {MOST} are the most"
    first = re.split(r"[\s:,]", subject, maxsplit=1)[0]
    if not subject[:1].isupper():
        yield "does not begin with a capital letter"
    elif NOT_IMPERATIVE.fullmatch(first):
        yield f"is not in the imperative: {first!r}"
    if subject.endswith("."):
        yield "ends with a full stop"
    if ";" in subject:
        yield "has a semicolon, so it says two things; make two commits"


def judged(subjects: list[str]) -> int:
    """Says what is wrong with any of them; an exit status."""
    found = [f"{subject}\n  {problem}" for subject in subjects for problem in wrong(subject)]
    for each in found:
        print(f"commit subject: {each}", file=sys.stderr)
    return 1 if found else 0


def of_message(text: str) -> str:
    """The subject of a message that git is about to take."""
    return next((line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")), "")


def git(*words: str) -> str | None:
    """What git says here; None when it refuses, or when this is no checkout."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def of_branch() -> list[str]:
    """The subjects of this branch. A copy without the older history has only its last one looked at."""
    said = git("log", "--no-merges", "--format=%s", f"{SINCE}..HEAD")
    return (git("log", "-1", "--format=%s") or "" if said is None else said).splitlines()


def install() -> None:
    """Puts the hook into this repository's own directory, and nowhere else; a hook that is not ours stays."""
    inside, place = git("rev-parse", "--git-common-dir"), git("rev-parse", "--git-path", "hooks/commit-msg")
    if inside is None or place is None:
        return
    hook = (ROOT / place).resolve()
    if not hook.is_relative_to((ROOT / inside).resolve()) or (hook.exists() and MARK not in hook.read_text()):
        return
    if not hook.exists() or hook.read_text() != HOOK:
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(HOOK)
        hook.chmod(0o755)


def main(words: list[str]) -> int:
    """Does what these words ask for; an exit status."""
    if words == ["install"]:
        install()
        return 0
    return judged([of_message(Path(words[0]).read_text(encoding="utf-8"))] if words else of_branch())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
