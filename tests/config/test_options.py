"""Which options of a server need a new connection: a decision for each of them."""

from hubbubd.config import ServerConfig
from hubbubd.config.servers.options import CONNECTION, HUB_SIDE, needs_connection


def test_it_is_decided_of_each_option_whether_its_change_needs_a_new_connection() -> None:
    assert set(ServerConfig.model_fields) == CONNECTION | HUB_SIDE
    assert not CONNECTION & HUB_SIDE


def test_only_what_a_connection_is_made_of_asks_for_another_one() -> None:
    before = ServerConfig(name="one", command="/bin/one")
    assert not needs_connection(before, before)
    assert needs_connection(before, ServerConfig(name="one", command="/bin/one", args=("-v",)))
    assert needs_connection(before, ServerConfig(name="one", command="/bin/one", sampling=False))
    assert not needs_connection(before, ServerConfig(name="one", command="/bin/one", call_timeout_s=61))
