"""Files of a person, replaced whole or not at all, with a copy of what was there."""

import os
import shutil
import tempfile
from pathlib import Path

from hubbub_shared.platform.files import sync

OWNER_ONLY = 0o600


def replace_file(file: Path, text: str, *, private: bool = False) -> Path | None:
    """Replace a file's content and return where the old one is now; None if there was none. A link stays a link.

    The rights stay as they were; a new file, and one that is to be `private`, is for its owner alone. Raises OSError.
    """
    raw = text.encode()  # fails before anything is made
    file = file.resolve()
    existed = file.exists()
    backup = _make_backup(file) if existed else None
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, new_file = tempfile.mkstemp(dir=file.parent)  # only its owner can read it
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(raw)
            output.flush()
            sync(output.fileno())
        if existed and not private:
            shutil.copymode(file, new_file)
        Path(new_file).replace(file)
    except BaseException:
        Path(new_file).unlink(missing_ok=True)
        raise
    if backup is not None and private:
        backup.chmod(OWNER_ONLY)
    return backup


def _make_backup(file: Path) -> Path:
    """Copy a file to a free name beside it, and return the path of the copy.

    Others cannot read the copy before it has the rights of the file.
    """
    number = 0
    while True:
        backup = file.with_name(f"{file.name}.bak{number or ''}")
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
            break
        except FileExistsError:
            number += 1
    try:
        with os.fdopen(descriptor, "wb") as output, file.open("rb") as old:
            shutil.copyfileobj(old, output)
        shutil.copystat(file, backup)
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    return backup
