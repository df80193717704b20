"""Makes untrusted text safe to print; all of it passes through here on its way to a terminal or a log.

Sources: Unicode general categories (UAX 44), Default_Ignorable_Code_Point, and confusables (UTS 39).
"""

import json
import re

Range = tuple[int, int]

# Code points that never reach a screen, by reason.
HIDDEN: dict[str, tuple[Range, ...]] = {
    # Cc except tab and line feed: terminals execute them.
    "control": ((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F)),
    # Zl, Zp: line breaks in what should be one line.
    "line break": ((0x2028, 0x2029),),
    # Cf: they change the direction of the text that follows (UAX 9).
    "direction": ((0x061C, 0x061C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069)),
    # Cf and others that are never drawn: texts with and without them look the same.
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
    # Letters that are drawn blank.
    "blank": (
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFFA0, 0xFFA0),
        (0x1D159, 0x1D159),
    ),
    # Tags, and variation selectors that no script needs: they can encode a hidden text, one letter each.
    "hidden text": ((0xFE00, 0xFE0D), (0xE0000, 0xE0FFF)),
    # Cs: lone surrogates, which UTF-8 cannot express.
    "half": ((0xD800, 0xDFFF),),
}
JOINERS = "\u200c\u200d"
SELECTORS = "\u180b-\u180d\u180f\ufe0e\ufe0f"

_HIDDEN = "".join(f"{chr(first)}-{chr(last)}" for ranges in HIDDEN.values() for first, last in ranges)
# A joiner or a selector changes how the character before it is drawn. After ASCII, or after another joiner or selector,
# it is only a hiding place; keycaps such as 1 U+FE0F U+20E3 are the exception. The pattern begins with one character
# class, which keeps long texts fast.
NOT_LEGIBLE = re.compile(
    rf"[{_HIDDEN}{JOINERS}{SELECTORS}]"
    rf"(?:(?<=[{_HIDDEN}])"
    rf"|(?<=[{JOINERS}])(?<![^\x00-\x7f{JOINERS}][{JOINERS}])"
    rf"|(?<=[{SELECTORS}])(?<![^\x00-\"$-)+-/:-\x7f{JOINERS}{SELECTORS}][{SELECTORS}]))"
)


def clean(text: str) -> str:
    """Return the text with U+FFFD for each character of HIDDEN, and for joiners and selectors out of place."""
    return NOT_LEGIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_json(document: str) -> str:
    """Return the same JSON text with an escape for each character that `clean` would replace."""
    return NOT_LEGIBLE.sub(lambda match: json.dumps(match.group())[1:-1], document)


def is_text(text: str) -> bool:
    """Return whether UTF-8 can express the text: Python decodes arguments that are not UTF-8 to lone surrogates."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def is_clean(text: str) -> bool:
    """Return whether `clean` would leave the text as it is."""
    return NOT_LEGIBLE.search(text) is None
