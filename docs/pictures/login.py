"""Takes the pictures of the log-in: a program that knows the demo's address asks to be let in.

make pictures
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from make import BIN, PHONE, chromium_path, client, environment, running, take
from playwright.sync_api import sync_playwright

BACK = "https://chat.example/callback"
DESKTOP = {"width": 760, "height": 900}


def main() -> None:
    """Starts the demo, asks to be let in, takes the pictures."""
    with tempfile.TemporaryDirectory() as data_dir:
        more = Path(data_dir) / "more.toml"
        more.write_text('[hub]\nmcp_listen = "127.0.0.1:0"\n')
        words = ["docs/demo/run.py", "--listen", "127.0.0.1:0", "--config", str(more), "--data-dir", data_dir]
        with running([sys.executable, *words], data_dir) as said, sync_playwright() as playwright:
            said.readline()
            client(data_dir, "servers", "list", "--wait", "connected", "--timeout", "60")
            made = new_code(data_dir)
            base = made["endpoint"].removesuffix("/mcp")
            chromium = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
            page = chromium.new_page(viewport=DESKTOP)
            page.goto(address_of_question(base))
            page.get_by_label("Code").fill(made["code"])
            page.get_by_role("button", name="Continue").click()
            page.get_by_role("button", name="Allow").wait_for()
            take(page, "login")
            page.set_viewport_size({**PHONE, "height": 1040})
            page.emulate_media(color_scheme="dark")
            take(page, "login-phone")
            chromium.close()


def new_code(data_dir: str) -> dict[str, str]:
    """Asks the hub for a code."""
    words = [BIN / "hubbub", "--json", "--as", "Ada", "mcp", "login"]
    done = subprocess.run(  # noqa: S603 - our own command
        words, env=environment(data_dir), capture_output=True, check=True, timeout=90
    )
    return json.loads(done.stdout)


def address_of_question(base: str) -> str:
    """Registers a program, and returns where it sends the browser."""
    about = {"client_name": "Chat", "redirect_uris": [BACK], "token_endpoint_auth_method": "none"}
    asked = Request(  # noqa: S310 - our own hub
        f"{base}/oauth/register", json.dumps(about).encode(), {"content-type": "application/json"}
    )
    with urlopen(asked, timeout=90) as response:  # noqa: S310
        client_id = json.load(response)["client_id"]
    params = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": BACK,
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
        "resource": f"{base}/mcp",
    }
    return f"{base}/oauth/authorize?{urlencode(params)}"


if __name__ == "__main__":
    main()
