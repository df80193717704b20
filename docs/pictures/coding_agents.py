"""Takes the pictures of a coding agent behind the hub: its session, a difference and a command to approve.

make pictures
"""

import sys
import tempfile
from pathlib import Path

from make import BIN, PHONE, ROOT, at_the_page, client, go, take
from playwright.sync_api import Page

AGENT = ROOT / "tests" / "peers" / "acp_agent.py"
BEFORE = "def total(items):\n    return sum(items)\n"
AFTER = BEFORE.replace("sum(items)", "round(sum(items), 2)")
PROMPT = f"""title Round the prices
plan Find where prices are added up; Round them; Run the tests
say Totals are added up in prices.py without being rounded. I round them to cents there.
edit prices.py {AFTER.encode("unicode_escape").decode()}
run pytest -q tests/test_prices.py
"""
DESKTOP = {"width": 1100, "height": 860}


def main() -> None:
    """Puts the tests' agent behind the demo, has it work, takes the pictures."""
    with tempfile.TemporaryDirectory() as folder, at_the_page() as (page, data_dir):
        shop = Path(folder) / "shop"
        shop.mkdir()
        (shop / "prices.py").write_text(BEFORE)
        acp = [str(BIN / "hubbub"), "acp", "--", sys.executable, str(AGENT), "--name", "coder"]
        client(data_dir, "servers", "add", "coder", "--wait", "--", *acp)
        client(data_dir, "call", "coder", "start", f"prompt={PROMPT}", f"cwd={shop}", "--detach")
        page.set_viewport_size(DESKTOP)
        go(page, "agents")
        page.locator("#main a.entry", has_text="waits").click()
        waits = page.get_by_label("It waits for an answer")
        waits.locator(".diff .removed").wait_for()
        take(page, "agent-session")
        look_from_a_phone(page, "Edit prices.py", "agent-diff")
        page.get_by_role("button", name="Allow once").click()
        page.get_by_text("arrived at the server").wait_for()
        look_from_a_phone(page, "pytest", "agent-command")


def look_from_a_phone(page: Page, text: str, name: str) -> None:
    """Takes the picture of a question, opened from the inbox."""
    page.set_viewport_size(PHONE)
    go(page, "inbox")
    page.locator("a.card", has_text=text).click()
    page.get_by_role("button", name="Allow once").wait_for()
    take(page, name)


if __name__ == "__main__":
    main()
