"""What a release has: the same bytes from each builder, place and archive."""

from pathlib import Path

import pytest

from ..repo import release
from .distributions import BuildFailed, build_from_archives, build_twice, digests, same


def test_two_builds_and_a_build_from_each_source_archive_have_the_same_bytes(tmp_path: Path) -> None:
    built, work = tmp_path / "built", tmp_path / "work"
    built.mkdir()
    work.mkdir()
    build_twice(built, work)
    build_from_archives(built, work)
    version = release.version()
    names = (f"hubbub-{version}", f"hubbub_client-{version}")
    ends = ("-py3-none-any.whl", ".tar.gz")
    assert set(digests(built)) == {f"{name}{end}" for name in names for end in ends}


@pytest.mark.parametrize("second", [{"a": "1", "b": "3"}, {"a": "1"}, {"a": "1", "b": "2", "c": "4"}])
def test_a_difference_is_named_by_its_file(tmp_path: Path, second: dict[str, str]) -> None:
    for folder, files in (("first", {"a": "1", "b": "2"}), ("second", second)):
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text)
    with pytest.raises(BuildFailed, match=r"not the same bytes .*: [bc]$"):
        same(tmp_path / "first", tmp_path / "second")
