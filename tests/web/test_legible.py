"""The characters that the page shows by their number are those that a terminal is not given; no browser."""

import json

import pytest

from hubbub_shared.legible import clean

from .test_static import node, ran

__all__ = ["node"]


@pytest.mark.parametrize("before", ["", "x", "#", "\u0915", "\u200d", "\u0915\u200d", "\ufe0f"], ids=ascii)
def test_the_page_and_a_terminal_hide_the_same_characters(node: str, before: str) -> None:
    program = f"""
    const {{ clean }} = await import(`${{JS}}/dom.js`);
    const hidden = [];
    for (let code = 0; code < 0x110000; code += 1) {{
      const text = String.fromCodePoint(code);
      if (!clean({json.dumps(before)} + text).endsWith(text)) hidden.push(code);
    }}
    console.log(JSON.stringify(hidden));
    """
    hidden = {code for code in range(0x110000) if not clean(before + chr(code)).endswith(chr(code))}
    assert set(ran(node, program)) == hidden
