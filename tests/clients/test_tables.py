"""Tables of the command line: without a terminal they are laid out without rich, as rich does it."""

from typing import Any

import pytest

from hubbub_cli import output
from hubbub_client.records import CatalogEntry


def entries(*rows: tuple[str, str | None]) -> list[Any]:
    return [
        CatalogEntry(server=server, kind="tool", object={"name": "echo", "description": about})
        for server, about in rows
    ]


def printed(records: list[Any], capsys: pytest.CaptureFixture[str]) -> str:
    output.print_records(CatalogEntry, records, as_json=False)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "about",
    [
        "Echoes",
        "",
        "[bold]no markup[/bold] :smile:",
        "two\nlines",
        "a\tb \x1b[2J",
        "x" * 150,
        "x" * 300,
        "gr\u00fc\u00df dich",
        "\u4f60\u597d",
    ],
)
def test_a_table_for_a_pipe_is_as_rich_lays_it_out(
    about: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = entries(("demo", about), ("a-longer-name", "Adds"), ("x", None))
    plain = printed(records, capsys)
    monkeypatch.setattr(output, "plain_table", lambda names, rows: None)
    assert plain == printed(records, capsys)


def test_only_rich_lays_out_wide_letters_and_long_lines() -> None:
    assert output.plain_table(["id", "name"], [["1", "echo"]]) == "id  name\n1   echo\n"
    assert output.plain_table(["id"], [["\u4f60"]]) is None
    assert output.plain_table(["id", "name"], [["1", "x" * output.PIPE_WIDTH]]) is None


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_colours_that_the_environment_asks_for_are_left_to_rich(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "1")
    assert "\x1b[1m" in printed(entries(("demo", "Echoes")), capsys)
