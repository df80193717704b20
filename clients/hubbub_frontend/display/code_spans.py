"""Code in the texts of servers, between backticks: folded to its first line where only one line is shown."""

import re
from bisect import bisect_right
from collections import defaultdict

FENCE = 3
"""Backticks that may be followed by the name of a language, on their line."""

LANGUAGE = re.compile(r"[\w+-]{0,30}[ \t]*\n")
TICKS = re.compile(r"(`+)")


def fold_code(text: str) -> str:
    """Return a text in which code of several lines is its first line, and a sign that it goes on."""
    parts = TICKS.split(text)
    # Code ends at as many backticks as it begins with. The places of backticks are kept by their count, to be fast.
    places: defaultdict[int, list[int]] = defaultdict(list)
    for at in range(1, len(parts), 2):
        places[len(parts[at])].append(at)
    folded = [parts[0]]
    at = 1
    while at < len(parts):
        same = places[len(parts[at])]
        index = bisect_right(same, at)
        if index == len(same):  # no such backticks follow, so these begin no code
            folded += parts[at : at + 2]
            at += 2
            continue
        end = same[index]
        folded += [_fold_span(parts[at], "".join(parts[at + 1 : end])), parts[end + 1]]
        at = end + 2
    return "".join(folded)


def first_line(code: str) -> str:
    """Return the first line of code that is not blank, with a sign that the code goes on if there are more lines."""
    lines = [each.strip() for each in code.splitlines() if each.strip()]
    if len(lines) < 2:
        return "".join(lines)
    shown = lines[0].removesuffix("\\").rstrip()
    return f"{shown} …"


def _fold_span(ticks: str, code: str) -> str:
    """Return code in backticks; of code of several lines the first line, with a sign that the code goes on."""
    if "\n" not in code:
        return f"{ticks}{code}{ticks}"
    language = LANGUAGE.match(code) if len(ticks) >= FENCE else None
    return f"`{first_line(code[language.end() :] if language else code)}`"
