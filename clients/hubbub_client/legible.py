"""What others wrote, made safe to print: the one function that such text passes on its way to a terminal or a log.

The hub has the same table (`hubbubd/legible.py`), since neither package imports the other; a test compares
the two for each character that there is. Sources: Unicode general categories (UAX 44), Default_Ignorable_Code_Point,
and UTS 39 for what can pass for something else.
"""

import json
import re

Range = tuple[int, int]

# Each reason with the code points that it is for. What stands here never reaches a screen.
HIDDEN: dict[str, tuple[Range, ...]] = {
    # Cc, but for tab and line feed: a terminal obeys them.
    "control": ((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F)),
    # Zl, Zp: a line break that the reader of a line does not expect.
    "line break": ((0x2028, 0x2029),),
    # Cf: they turn the direction of what follows (UAX 9).
    "direction": ((0x061C, 0x061C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069)),
    # Cf, and what else is never drawn: two texts look the same with and without it.
    "invisible": (
        (0x00AD, 0x00AD),
        (0x034F, 0x034F),
        (0x180E, 0x180E),
        (0x200B, 0x200B),
        (0x2060, 0x2065),
        (0x206A, 0x206F),
        (0xFEFF, 0xFEFF),
        (0xFFF0, 0xFFFB),
        (0x13430, 0x13440),
        (0x1BCA0, 0x1BCA3),
        (0x1D173, 0x1D17A),
    ),
    # Letters that are drawn as nothing.
    "blank": (
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFFA0, 0xFFA0),
        (0x1D159, 0x1D159),
    ),
    # Variation selectors that no script needs to be read, and tags: a text hides in them, a letter in each.
    "hidden text": ((0xFE00, 0xFE0D), (0xE0000, 0xE0FFF)),
    # Cs: half a character, which UTF-8 cannot express.
    "half": ((0xD800, 0xDFFF),),
}
JOINERS = "\u200c\u200d"
SELECTORS = "\u180b-\u180d\u180f\ufe0e\ufe0f"

_HIDDEN = "".join(f"{chr(first)}-{chr(last)}" for ranges in HIDDEN.values() for first, last in ranges)
# A joiner or a selector says how the character before it is drawn. After ASCII, or after another one, it only hides;
# but for the digits and signs of keys, as in 1 U+FE0F U+20E3. One class comes first, so that a long text is fast.
NOT_LEGIBLE = re.compile(
    rf"[{_HIDDEN}{JOINERS}{SELECTORS}]"
    rf"(?:(?<=[{_HIDDEN}])"
    rf"|(?<=[{JOINERS}])(?<![^\x00-\x7f{JOINERS}][{JOINERS}])"
    rf"|(?<=[{SELECTORS}])(?<![^\x00-\"$-)+-/:-\x7f{JOINERS}{SELECTORS}][{SELECTORS}]))"
)


def clean(text: str) -> str:
    """The text with U+FFFD for each character that steers a terminal, turns its text, or cannot be seen."""
    return NOT_LEGIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(document: str) -> str:
    """The same JSON, with an escape for each character that `clean` would replace."""
    return NOT_LEGIBLE.sub(lambda found: json.dumps(found.group())[1:-1], document)


def is_text(text: str) -> bool:
    """Whether UTF-8 can express it: bytes that are no UTF-8 reach a program as halves of characters."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def is_clean(text: str) -> bool:
    """Whether nothing would be taken out of a text."""
    return NOT_LEGIBLE.search(text) is None
