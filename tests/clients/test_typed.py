"""Commands that are shown to be typed reach the hub that the program uses."""

import os
from pathlib import Path

import pytest

from hubbub_frontend import shell_commands

from .. import forks
from ..command_tree import whole
from .conftest import HUBBUB


def test_all_commands_are_known() -> None:
    assert {*shell_commands.LOCAL, *shell_commands.ANY, *shell_commands.NONE} == set(whole().commands)


def test_each_command_in_a_text_names_the_hub_and_other_words_do_not() -> None:
    shell_commands.set_hub_prefix("hubbub --data-dir '/its data'")
    assert shell_commands.with_hub_options("start one: `hubbub up -d`; claude mcp add hubbub -- hubbub mcp") == (
        "start one: `hubbub --data-dir '/its data' up -d`; claude mcp add hubbub -- hubbub --data-dir '/its data' mcp"
    )
    for text in (
        "hubbub --data-dir /other status",
        "./hubbub up",
        "a hubbub is noise",
        "hubbub upset",
        "hubbub explain X",
    ):
        assert shell_commands.with_hub_options(text) == text
    shell_commands.set_hub_prefix("hubbub --address elsewhere:1", local="hubbub")
    assert (
        shell_commands.with_hub_options("hubbub up -d, hubbub status")
        == "hubbub up -d, hubbub --address elsewhere:1 status"
    )


@pytest.mark.usefixtures("processes")
async def test_what_a_command_says_to_type_names_the_data_directory_that_it_was_given(tmp_path: Path) -> None:
    done = await forks.run([HUBBUB, "--data-dir", "some where", "status"], env=os.environ, cwd=tmp_path)
    assert f"`hubbub --data-dir '{tmp_path}/some where' up -d`" in done.stderr.decode()
