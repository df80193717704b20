"""Telemetry costs nothing that nobody has asked for, and says so when what was asked for is not there."""

import subprocess
import sys

import pytest

from hubbubd.config import load_settings
from hubbubd.errors import ConfigError
from hubbubd.telemetry import logs, meter, setup

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}


def test_nothing_is_measured_or_sent_unless_somebody_asks() -> None:
    assert setup.open_meter({}, scraped=False) is meter.OFF
    assert setup.open_log_sink({}) is logs.OFF
    assert setup.open_meter({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, scraped=False) is meter.OFF
    assert setup.open_log_sink({**ENDPOINT, "OTEL_LOGS_EXPORTER": "none"}) is logs.OFF
    assert setup.open_log_sink({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}) is logs.OFF


@pytest.mark.usefixtures("processes")
def test_a_hub_without_telemetry_does_not_load_its_packages() -> None:
    found = "[name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'prometheus_client'))]"
    program = (
        "import sys; from hubbubd.program import app; from hubbubd.telemetry import setup;"
        f"setup.open_meter({{}}, scraped=False); setup.open_log_sink({{}}); print({found})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_metrics_listen_is_off_unless_an_address_is_given() -> None:
    assert load_settings([], {}).hub.metrics_listen is None
    assert load_settings([], {"HUBBUBD_METRICS_LISTEN": "127.0.0.1:9464"}).hub.metrics_listen == "127.0.0.1:9464"


@pytest.mark.parametrize("address", ["unix:hub.sock", "192.0.2.1:80", "0.0.0.0:9464", "127.0.0.1", "127.0.0.1:70000"])
def test_metrics_are_served_on_a_port_of_loopback_only(address: str) -> None:
    with pytest.raises(ConfigError, match="HUBBUBD_METRICS_LISTEN"):
        load_settings([], {"HUBBUBD_METRICS_LISTEN": address})


def test_metrics_without_their_packages_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"HUBBUBD_METRICS_LISTEN.* install .*'opentelemetry-sdk>="):
        load_settings([], {"HUBBUBD_METRICS_LISTEN": "127.0.0.1:0"})
    load_settings([], {})
