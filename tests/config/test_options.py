"""Which options of a server need a new connection, and that document and library have each of them."""

import runpy
from pathlib import Path

from hubbubd.config import ServerConfig
from hubbubd.config.servers.server import needs_connection

ROOT = Path(__file__).parents[2]


def test_only_what_a_connection_is_made_of_asks_for_another_one() -> None:
    before = ServerConfig(name="one", command="/bin/one")
    assert not needs_connection(before, before)
    assert needs_connection(before, ServerConfig(name="one", command="/bin/one", args=("-v",)))
    assert needs_connection(before, ServerConfig(name="one", command="/bin/one", sampling=False))
    assert not needs_connection(before, ServerConfig(name="one", command="/bin/one", call_timeout_s=61))


def test_the_document_has_the_rows_that_the_table_of_options_gives() -> None:
    document = (ROOT / "docs/configuration.md").read_text()
    assert runpy.run_path(str(ROOT / "docs/site/option_rows.py"))["document_with_rows"](document) == document


def test_the_library_has_the_options_of_the_api_as_they_are_generated() -> None:
    library = ROOT / "clients/hubbub_client/data/spec_options.py"
    assert runpy.run_path(str(ROOT / "docs/site/spec_options.py"))["module"]() == library.read_text()
