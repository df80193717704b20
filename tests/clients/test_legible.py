# ruff: noqa: RUF001 - these are the letters that it is about
"""Which characters of a text that others wrote reach a screen."""

import re
import unicodedata
from collections.abc import Iterator

import pytest

from hubbub_shared import legible
from hubbub_shared.legible import clean, is_clean


def every() -> Iterator[str]:
    """Each character that there can be."""
    return map(chr, range(0x110000))


# Tab and line feed; the joiners of scripts; signs that are drawn, though they are of the category Cf: they stand
# before a number (Prepended_Concatenation_Mark).
ALLOWED = {
    *"\t\n\u200c\u200d",
    *"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd",
}
# Default_Ignorable_Code_Point of DerivedCoreProperties.txt, Unicode 16: never drawn by themselves.
IGNORABLE = (
    "00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 "
    "FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)


def test_no_control_format_or_separator_character_passes_whatever_unicode_adds() -> None:
    refused = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    passing = {each for each in every() if unicodedata.category(each) in refused and is_clean(f"\u0915{each}")}
    assert passing <= ALLOWED


def test_nothing_that_is_never_drawn_passes_by_itself() -> None:
    for part in IGNORABLE.split():
        first, _, last = part.partition("-")
        for code in range(int(first, 16), int(last or first, 16) + 1):
            assert not is_clean(f"a{chr(code)}"), hex(code)


@pytest.mark.parametrize(
    "text",
    [
        "plain text\twith\nlines",
        "क्\u200dष and می\u200cخواهم",
        "👩\u200d💻 🏳️\u200d🌈 ❤️ 1️⃣ #️⃣",
        "é\u0301 ß 東京 עברית العربية",
    ],
)
def test_what_scripts_and_emoji_need_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\u200db", "a�b"),
        ("\u200ca", "�a"),
        ("क\u200d\u200d", "क\u200d�"),
        ("a\ufe0fb", "a�b"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f�"),
        ("a\U000e0068\U000e0069", "a��"),
        ("\x1b]0;EVIL\x07", "�]0;EVIL�"),
        ("\ud800", "�"),
    ],
)
def test_joiners_selectors_and_tags_hide_nothing(given: str, shown: str) -> None:
    assert clean(given) == shown


def test_a_text_is_as_long_as_before() -> None:
    """Each character is replaced by one, so that what was laid out stays in its place."""
    assert all(len(clean(f"\u0915{each}")) == 2 for each in every())


def test_the_table_says_each_character_once() -> None:
    said = [code for ranges in legible.HIDDEN.values() for first, last in ranges for code in range(first, last + 1)]
    assert len(said) == len(set(said))
    assert re.compile(legible.NOT_LEGIBLE.pattern)
