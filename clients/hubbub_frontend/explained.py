"""The pages about errors (`docs/errors`): which there are, and how a person is sent to one.

A wheel has them beside this module. A checkout has them where they are written.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

BESIDE, IN_A_CHECKOUT = Path(__file__).parent / "errors", Path(__file__).parents[2] / "docs" / "errors"
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,80}")


def _pages() -> Path:
    return BESIDE if BESIDE.is_dir() else IN_A_CHECKOUT


def text_about(code: str) -> str | None:
    """Return the page about a code, as Markdown without links to other documents; None if there is none."""
    name = normal(code).lower()
    path = _pages() / f"{name}.md"
    if not CODE.fullmatch(name) or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)


@cache
def codes() -> Sequence[tuple[str, str]]:
    """Return each code that has a page, with the first sentence of it."""
    listed = (_pages() / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^- \[([A-Z0-9_]+)\]\([^)]*\): (.*)$", listed, re.MULTILINE)


def normal(code: str) -> str:
    """Return a code as it is written in errors: `server-not-found` is SERVER_NOT_FOUND."""
    return code.strip().replace("-", "_").replace(" ", "_").upper()


def more_about(code: str, help_url: str | None) -> str | None:
    """Return what to type to read about a code, or where to look; None if nothing is known.

    The link of a hub counts if it is one, so if the hub has a `help_base_url`.
    """
    link = help_url if help_url and "://" in help_url else None
    if CODE.fullmatch(code) and (_pages() / f"{code.lower()}.md").is_file():
        return f"hubbub explain {code}" + (f", {link}" if link else "")
    return link
