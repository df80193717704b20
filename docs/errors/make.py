"""Writes docs/errors/README.md, the list of all pages; with a file of sections (`## reason`), first a page for each.

    python docs/errors/make.py [SECTIONS]

A page that is there already stays as it is.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
TOP = """# Errors

Every error has a stable `reason` (the `reason` of `google.rpc.ErrorInfo`, or the `code` of a fault in a record), a
message for the person who reads it, and a page here: what it means, why it happens, and what to do. `hubbub explain
CODE` shows a page without a hub or a network. The help links of errors lead here, too; `help_base_url` in `[hub]` says
where these documents are served.

"""


def page(section: str) -> None:
    """The page of one section, unless there is one."""
    reason, _, text = section.partition("\n")
    path = HERE / f"{reason.strip()}.md"
    if path.exists():
        return
    meaning, _, advice = text.strip().partition("What to do:")
    advice = re.sub(r"\]\((?!https?:)([a-z])", r"](../\1", advice.strip())
    meaning = re.sub(r"\]\((?!https?:)([a-z])", r"](../\1", meaning.strip())
    path.write_text(f"# {reason.strip().upper()}\n\n{meaning}\n\n## What to do\n\n{advice[:1].upper()}{advice[1:]}\n")


def main() -> None:
    """Pages, then their list."""
    for sections in sys.argv[1:]:
        for section in re.split(r"^## ", Path(sections).read_text(), flags=re.MULTILINE)[1:]:
            page(section)
    lines = list[str]()
    for path in sorted(HERE.glob("*.md")):
        if path.name != "README.md":
            title, _, text = path.read_text().partition("\n")
            first = re.split(r"(?<=[.:;])\s", " ".join(text.strip().partition("\n\n")[0].split()))[0]
            first = first.replace("](../", "](../")
            lines.append(f"- [{title.removeprefix('# ')}]({path.name}): {first.rstrip(':;')}")
    (HERE / "README.md").write_text(TOP + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
