"""Which rules the pushes of `hubbub web` follow."""

from pathlib import Path

import pytest

from hubbub_cli.notices.rules import read_rules
from hubbub_notify.rules import NoticeRuleProblem


def test_pushes_need_no_variable_of_the_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_TOKEN", raising=False)
    file = tmp_path / "hubbub.toml"
    file.write_text('[notify]\nurls = ["slack://${SLACK_TOKEN}"]\nafter_s = 60\n')
    made, _ = read_rules({}, file, ignored_keys={"urls"})
    assert (made.urls, made.after_s) == ((), 60)
    with pytest.raises(NoticeRuleProblem, match="SLACK_TOKEN is not set"):
        read_rules({}, file)
