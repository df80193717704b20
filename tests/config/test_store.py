"""Settings of the store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hubbubd.config import HubSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.errors import ConfigError

Load = Callable[..., HubSettings]
URL = "postgresql://hubbub@127.0.0.1/hubbub"


def address(settings: HubSettings) -> str | None:
    return settings.store.url and settings.store.url.get_secret_value()


def test_without_settings_the_store_is_a_file(load: Load) -> None:
    assert load().store == StoreSettings()
    assert address(load()) is None


def test_a_file_has_a_table_of_its_own(load: Load) -> None:
    settings = load(f'[store]\nurl = "{URL}"\nschema_name = "team"\nunavailable_after_s = 2')
    assert (address(settings), settings.store.schema_name, settings.store.unavailable_after_s) == (URL, "team", 2)


def test_the_environment_has_each_setting_and_leaves_the_others_to_the_file(load: Load) -> None:
    settings = load('[store]\nurl = "postgres://elsewhere/x"\nschema_name = "team"', HUBBUBD_STORE__URL=URL)
    assert (address(settings), settings.store.schema_name) == (URL, "team")
    assert address(load(HUBBUBD_STORE__URL=URL)) == URL


@pytest.mark.parametrize(
    ("text", "environ", "where"),
    [
        ('[store]\nurl = "mysql://x"', {}, r"hub\.toml: store: url: is postgresql://USER@HOST"),
        ('[store]\nurll = "x"', {}, r"hub\.toml: store\.urll: unknown key; did you mean 'url'"),
        ('[store]\nschema_name = "no; DROP"', {}, r"hub\.toml: store: schema_name"),
        ("[store]\nunavailable_after_s = -1", {}, r"hub\.toml: store: unavailable_after_s"),
        ("[hub]\nstore = 1", {}, r"hub\.toml: hub\.store: in a file, this is the table \[store\]"),
        ("store = 1", {}, r"hub\.toml: store: must be a table"),
        *(
            (
                "",
                {"HUBBUBD_STORE": wrong},
                r"^HUBBUBD_STORE: must be a table.*: \[store\] in a file, HUBBUBD_STORE__URL",
            )
            for wrong in ("0", "[]", '"x"', URL)
        ),
        ("", {"HUBBUBD_STORE__URL": "mysql://x"}, r"HUBBUBD_STORE__\*: url: is postgresql://USER@HOST"),
    ],
)
def test_what_is_wrong_is_named(load: Load, text: str, environ: dict[str, str], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        load(text, **environ)


def test_an_address_with_a_password_is_not_shown(load: Load) -> None:
    settings = load('[store]\nurl = "postgresql://hubbub:s3cr3t@127.0.0.1/hubbub"')
    assert "s3cr3t" not in repr(settings)
    with pytest.raises(ConfigError) as refused:
        load('[store]\nurl = "mysql://hubbub:s3cr3t@127.0.0.1/hubbub"')
    assert "s3cr3t" not in str(refused.value)


def test_a_password_is_read_from_its_file_without_the_line_end(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("with spaces \n")
    assert StoreSettings(password_file=file).read_password() == "with spaces "
    assert StoreSettings().read_password() is None


@pytest.mark.parametrize("content", [None, b"", b"\n", b"x" * 5000, b"\xff"])
def test_a_file_without_a_password_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"store.password_file: {file}"):
        StoreSettings(password_file=file).read_password()
