"""Code in the texts of servers, between backticks: folded to its first line where only one line is shown."""

import re
from bisect import bisect_right
from collections import defaultdict

FENCE = 3
"""Backticks that may be followed by the name of a language, on their line."""

LANGUAGE = re.compile(r"[\w+-]{0,30}[ \t]*\n")
TICKS = re.compile(r"(`+)")


def fold_code(text: str) -> str:
    """Return a text in which each code span of several lines is cut to its first line and `…`."""
    parts = TICKS.split(text)
    # Code ends at as many backticks as it begins with. The positions of backticks are found by their count, to be fast.
    positions: defaultdict[int, list[int]] = defaultdict(list)
    for at in range(1, len(parts), 2):
        positions[len(parts[at])].append(at)
    folded = [parts[0]]
    at = 1
    while at < len(parts):
        closing_positions = positions[len(parts[at])]
        index = bisect_right(closing_positions, at)
        if index == len(closing_positions):  # no such backticks follow, so these begin no code
            folded += parts[at : at + 2]
            at += 2
            continue
        end = closing_positions[index]
        folded += [_fold_span(parts[at], "".join(parts[at + 1 : end])), parts[end + 1]]
        at = end + 2
    return "".join(folded)


def first_line(code: str) -> str:
    """Return the first line of code that is not blank; with `…` if more lines follow."""
    lines = [each.strip() for each in code.splitlines() if each.strip()]
    if len(lines) < 2:
        return "".join(lines)
    first = lines[0].removesuffix("\\").rstrip()
    return f"{first} …"


def _fold_span(ticks: str, code: str) -> str:
    """Return code in backticks; code of several lines is cut to its first line and `…`."""
    if "\n" not in code:
        return f"{ticks}{code}{ticks}"
    language = LANGUAGE.match(code) if len(ticks) >= FENCE else None
    return f"`{first_line(code[language.end() :] if language else code)}`"
