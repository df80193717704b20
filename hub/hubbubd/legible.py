"""Sanitize text from others before it is printed: against terminal escapes, bidi tricks and invisible characters.

Clients have the same table (`hubbub_client/legible.py`), since neither package imports the other; a test compares
the two for every character. Sources: Unicode general categories (UAX 44), Default_Ignorable_Code_Point, and UTS 39
for confusable text.
"""

import re

Range = tuple[int, int]

# Code points that are replaced before they reach a screen, by reason.
HIDDEN: dict[str, tuple[Range, ...]] = {
    # Cc, except tab and line feed: terminals obey them.
    "control": ((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F)),
    # Zl, Zp: unexpected line breaks.
    "line break": ((0x2028, 0x2029),),
    # Cf: they change the direction of text (UAX 9).
    "direction": ((0x061C, 0x061C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069)),
    # Cf and others that are never drawn: different texts would look the same.
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
    # Letters drawn as blanks.
    "blank": (
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFFA0, 0xFFA0),
        (0x1D159, 0x1D159),
    ),
    # Tags, and variation selectors that no script needs: they can encode hidden text.
    "hidden text": ((0xFE00, 0xFE0D), (0xE0000, 0xE0FFF)),
    # Cs: surrogates, which UTF-8 cannot encode.
    "half": ((0xD800, 0xDFFF),),
}
JOINERS = "\u200c\u200d"
SELECTORS = "\u180b-\u180d\u180f\ufe0e\ufe0f"

_HIDDEN = "".join(f"{chr(first)}-{chr(last)}" for ranges in HIDDEN.values() for first, last in ranges)
# A joiner or selector changes how the character before it is drawn. After ASCII, or after another one, it can only
# hide; except after the characters of keycap emoji, as in 1 U+FE0F U+20E3. The pattern starts with a single class, so
# that long texts are fast.
NOT_LEGIBLE = re.compile(
    rf"[{_HIDDEN}{JOINERS}{SELECTORS}]"
    rf"(?:(?<=[{_HIDDEN}])"
    rf"|(?<=[{JOINERS}])(?<![^\x00-\x7f{JOINERS}][{JOINERS}])"
    rf"|(?<=[{SELECTORS}])(?<![^\x00-\"$-)+-/:-\x7f{JOINERS}{SELECTORS}][{SELECTORS}]))"
)


def clean(text: str) -> str:
    """Return the text with U+FFFD for each character that steers a terminal, changes direction, or is invisible."""
    return NOT_LEGIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def is_clean(text: str) -> bool:
    """Return whether `clean` would change nothing."""
    return NOT_LEGIBLE.search(text) is None
