"""The file with the secrets that authorization servers gave the hub."""

from pathlib import Path

import pytest

from hubbubd.store import StoreError
from hubbubd.store.vault.file import NAME, TokenFile


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b'{"guarded": 1}'])
def test_a_damaged_token_file_is_said_and_not_overwritten(content: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        TokenFile.open(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content
