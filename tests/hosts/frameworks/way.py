"""How a framework's script finds the hub and its model. Each script runs in its framework's own environment.

NAME.py URL|BRIDGE PROMPT        (BRIDGE is a command as JSON; TOKEN, MODEL and OPENAI_BASE_URL in the environment)

Each sets the longest wait for a tool, as their users have to: by themselves most give up after 5 to 60 seconds.
"""

import json
import os
import sys
from typing import Any

TARGET, PROMPT = sys.argv[1:3]
URL = TARGET if TARGET.startswith("http") else ""
COMMAND, *ARGUMENTS = [""] if URL else json.loads(TARGET)
HEADERS = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
ENVIRONMENT = dict(os.environ)
MODEL = os.environ["MODEL"]
WAIT_S = 300
TURNS = 500

STDIO: dict[str, Any] = {"command": COMMAND, "args": ARGUMENTS, "env": ENVIRONMENT}
