"""Settings of Connect and gRPC-Web."""

import sys

import pytest

from hubbubd.config import load_settings
from hubbubd.errors import ConfigError


def test_connect_is_off_unless_an_address_is_given() -> None:
    assert load_settings([], {}).hub.connect_listen is None
    assert load_settings([], {"HUBBUBD_CONNECT_LISTEN": "127.0.0.1:0"}).hub.connect_listen == "127.0.0.1:0"


@pytest.mark.parametrize("address", ["unix:hub.sock", "192.0.2.1:80", "127.0.0.1", "127.0.0.1:70000"])
def test_connect_listens_on_a_port_of_loopback_only(address: str) -> None:
    with pytest.raises(ConfigError, match="HUBBUBD_CONNECT_LISTEN"):
        load_settings([], {"HUBBUBD_CONNECT_LISTEN": address})


def test_connect_without_its_packages_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "connectrpc", None)
    with pytest.raises(ConfigError, match=r"HUBBUBD_CONNECT_LISTEN.* install 'connectrpc>="):
        load_settings([], {"HUBBUBD_CONNECT_LISTEN": "127.0.0.1:0"})
    load_settings([], {})


@pytest.mark.parametrize("origin", ["http://localhost:5173", "https://inbox.example.com", "http://[::1]:80"])
def test_an_origin_is_taken_as_browsers_send_it(origin: str) -> None:
    assert load_settings([], {"HUBBUBD_CONNECT_ORIGINS": f'["{origin}"]'}).hub.connect_origins == (origin,)


@pytest.mark.parametrize("origin", ["*", "null", "localhost:5173", "http://localhost/", "http://LOCALHOST", "file://"])
def test_what_no_browser_sends_as_an_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="is not an origin"):
        load_settings([], {"HUBBUBD_CONNECT_ORIGINS": f'["{origin}"]'})
