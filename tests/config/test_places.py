"""How the two stores of a copy are named."""

from pathlib import Path

import pytest

from hubbubd.config import load_settings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.config.store_addresses import DatabaseAddress, FileAddress, StoreAddress, StoreCopy, parse_store_address
from hubbubd.errors import ConfigError

SETTINGS = StoreSettings(schema_name="ours")
URL = "postgresql://ada@db1,db2:5433/hub"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqlite:hub/hubbub.db", FileAddress(Path("hub/hubbub.db"))),
        ("sqlite:///var/hubbub.db", FileAddress(Path("/var/hubbub.db"))),
        ("sqlite:~/hubbub.db", FileAddress(Path.home() / "hubbub.db")),
        (URL, DatabaseAddress(URL, "ours")),
        ("postgres://db/hub", DatabaseAddress("postgres://db/hub", "ours")),
        (f"{URL}?schema_name=other", DatabaseAddress(URL, "other")),
        (
            f"{URL}?sslmode=require&schema_name=other&target_session_attrs=read-write",
            DatabaseAddress(f"{URL}?sslmode=require&target_session_attrs=read-write", "other"),
        ),
    ],
)
def test_a_store_is_a_file_or_a_schema_of_a_database(text: str, expected: StoreAddress) -> None:
    assert parse_store_address(text, SETTINGS) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hubbub.db", "sqlite:PATH or postgresql://"),
        ("sqlite:", "sqlite:PATH or postgresql://"),
        ("sqlite:a\0b", "sqlite:PATH or postgresql://"),
        ("mysql://db/hub", "sqlite:PATH or postgresql://"),
        ("postgresql://ada:secret@db/hub", "other users of this machine see a password"),
        ("postgresql://ada@db/hub?password=secret", "other users of this machine see a password"),
        ("postgresql://[db/hub", "cannot be read"),
        (f"{URL}?schema=other", r"written \?schema_name=NAME"),
        (f"{URL}?schema_name=Other", "lower-case letters"),
        (f"{URL}?schema_name=", "lower-case letters"),
    ],
)
def test_another_name_is_refused_with_what_to_write_and_without_a_password(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        parse_store_address(text, SETTINGS)
    assert "secret" not in str(refused.value)


def test_a_copy_is_ordered_by_an_option_with_the_schema_of_the_settings() -> None:
    found = load_settings(["--copy-store", "sqlite:a.db", URL, "--verify"], {"HUBBUBD_STORE__SCHEMA_NAME": "of_mine"})
    assert found.copy_store == StoreCopy(
        source=FileAddress(Path("a.db")), target=DatabaseAddress(URL, "of_mine"), secrets=False, verify=True
    )
    assert load_settings([], {}).copy_store is None


def test_the_end_of_a_member_is_told_by_an_option() -> None:
    assert load_settings(["--release"], {}).release
    assert not load_settings([], {}).release


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--copy-store", "sqlite:a.db", "sqlite:./x/../a.db"], "are the same store"),
        (["--copy-store", f"{URL}?schema_name=hubbub", URL], "are the same store"),
        (["--copy-store", "sqlite:a.db"], "expected 2 arguments"),
        (["--copy-store", "sqlite:a.db", "sqlite:b.db", "--check-config"], "not allowed with"),
        (["--copy-store", "sqlite:a.db", "sqlite:b.db", "--release"], "not allowed with"),
        (["--check-config", "--release"], "not allowed with"),
        (["--verify"], "belong to --copy-store"),
        (["--secrets"], "belong to --copy-store"),
    ],
)
def test_an_order_that_makes_no_sense_is_wrong_usage(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_settings(words, {})
