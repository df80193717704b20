"""Looks for secrets in every line that the repository has ever had. Exits with 1 for one that nobody has looked at.

    python tests/repo/secret_scan.py            (or `make secrets`; needs detect-secrets)

`known_secrets.txt` beside it has what was looked at and is none: the SHA-1 of the text, and what it is.
"""

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from detect_secrets import SecretsCollection
from detect_secrets.settings import default_settings

HERE = Path(__file__).resolve().parent
KNOWN = HERE / "known_secrets.txt"
GENERATED = ("package-lock.json", "_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi", "secret_scan.py", KNOWN.name)


def lines_ever() -> dict[str, dict[str, None]]:
    """For each path that there was, the lines that it had at any time."""
    command = ["git", "log", "--all", "-p", "-U0", "--no-color", "--no-renames", "--format="]
    log = subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout.decode(errors="replace")
    found: dict[str, dict[str, None]] = defaultdict(dict)
    path = ""
    for line in log.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif line.startswith("+") and not path.endswith(GENERATED):
            found[path][line[1:]] = None
    return found


def main() -> int:
    """The exit status."""
    known = {line.split()[0] for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")}
    ever = lines_ever()
    unknown: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory, default_settings():
        secrets = SecretsCollection(root=directory)
        for path, lines in ever.items():
            (file := Path(directory) / path).parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines) + "\n")
            secrets.scan_file(path)
        for path, secret in secrets:
            if secret.secret_hash not in known:
                line = list(ever[path])[secret.line_number - 1].strip()
                unknown[secret.secret_hash] = f"{path}: {secret.type}: {line[:100]}"
    for digest, what in unknown.items():
        print(f"{digest}  {what}")
    print(f"{sum(map(len, ever.values()))} lines of {len(ever)} files, {len(unknown)} unknown findings")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
