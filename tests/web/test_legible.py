"""The characters that the page shows by their number are those that a terminal is not given; no browser."""

import json
import subprocess
from urllib.parse import quote

import pytest

from hubbub_shared.legible import clean
from hubbub_web.app import STATIC

LIMIT_S = 60


@pytest.mark.parametrize("before", ["", "x", "#", "\u0915", "\u200d", "\u0915\u200d", "\ufe0f"], ids=ascii)
def test_the_page_and_a_terminal_hide_the_same_characters(everything_command: list[str], before: str) -> None:
    module = quote((STATIC / "js" / "dom.js").read_text(encoding="utf-8"))
    program = f"""
    import {{ clean }} from {json.dumps("data:text/javascript," + module)};
    const hidden = [];
    for (let code = 0; code < 0x110000; code += 1) {{
      const text = String.fromCodePoint(code);
      if (!clean({json.dumps(before)} + text).endsWith(text)) hidden.push(code);
    }}
    console.log(JSON.stringify(hidden));
    """
    command = [everything_command[0], "--input-type=module", "-e", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    hidden = {code for code in range(0x110000) if not clean(before + chr(code)).endswith(chr(code))}
    assert set(json.loads(ran.stdout)) == hidden
