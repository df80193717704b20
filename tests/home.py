"""A home for the tests: none reads or writes what the person who runs them has in their own."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

# Settings of tools that tests run, which lie in the home of the person who runs them.
KEPT = {"PIP_CONFIG_FILE": ".config/pip/pip.conf", "NPM_CONFIG_USERCONFIG": ".npmrc", "XDG_CACHE_HOME": ".cache"}

for name, path in KEPT.items():
    if (Path.home() / path).exists():
        os.environ.setdefault(name, str(Path.home() / path))

HOME = tempfile.mkdtemp(prefix="hubbub-home-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ["HOME"] = HOME
for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
    os.environ.pop(name, None)
