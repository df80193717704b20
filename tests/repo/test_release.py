"""A release is made only of a tree whose tag, version, changelog and licence fit together."""

from pathlib import Path

import pytest

from hubbub_shared import __version__

from .release import ROOT, NotReady, check, newest, version

PROJECT = '[project]\nname = "x"\nlicense = "MIT"\n'
GIVEN = {
    "hub/hubbub_shared/__init__.py": '"""Text."""\n\n__version__ = "1.2.3"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3, 2026-11-30\n\n- One.\n\n## 1.2.2, 2026-10-01\n\n- Older.\n",
    "pyproject.toml": PROJECT,
    "clients/library/pyproject.toml": PROJECT,
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in GIVEN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_tree_that_is_ready_is_released_with_what_the_changelog_says(tree: Path) -> None:
    check("v1.2.3", tree)
    assert newest(tree) == ("1.2.3", "2026-11-30", "- One.")


@pytest.mark.parametrize(
    ("tag", "name", "old", "new", "problem"),
    [
        ("v1.2.4", "CHANGELOG.md", "", "", r"the tag is v1\.2\.4, and the version is 1\.2\.3"),
        ("1.2.3", "CHANGELOG.md", "", "", "tag v1.2.3"),
        ("v1.2.3", "CHANGELOG.md", "1.2.3", "1.3.0", r"newest version in CHANGELOG\.md is 1\.3\.0"),
        ("v1.2.3", "CHANGELOG.md", "2026-11-30", "not released", "write the day"),
        ("v1.2.3", "CHANGELOG.md", "## 1.2.3", "1.2.3", r"newest version in CHANGELOG\.md is 1\.2\.2"),
        ("v1.2.3", "CHANGELOG.md", "##", "#", "no heading"),
        ("v1.2.3", "hub/hubbub_shared/__init__.py", "__version__", "VERSION", "has no __version__"),
        ("v1.2.3", "pyproject.toml", 'license = "MIT"', "", "^pyproject.toml has no `license`"),
        ("v1.2.3", "clients/library/pyproject.toml", 'license = "MIT"', "", "the owner chooses it"),
    ],
)
def test_what_does_not_fit_is_named(tree: Path, tag: str, name: str, old: str, new: str, problem: str) -> None:
    (tree / name).write_text(GIVEN[name].replace(old, new) if old else GIVEN[name])
    with pytest.raises(NotReady, match=problem):
        check(tag, tree)


def test_the_newest_version_of_the_changelog_is_that_of_the_programs() -> None:
    assert newest(ROOT)[0] == version() == __version__
