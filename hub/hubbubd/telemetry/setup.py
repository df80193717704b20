"""Which exporters the environment asks for, by the variables that OpenTelemetry defines.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from hubbubd.errors import ConfigError
from hubbubd.process import installation
from hubbubd.telemetry import logs
from hubbubd.telemetry import meter as metering
from hubbubd.telemetry.logs import LogSink
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.tracer import OFF, Tracer

_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc")


def find_exporter(environ: Mapping[str, str], signal: str) -> str | None:
    """Return the exporter of a signal (`traces`, `metrics`, `logs`): `otlp`, `console`, or None to export nothing.

    OTLP needs an endpoint: unlike the SDK, the hub does not try the default port when none is configured. Raises
    ConfigError for an exporter or protocol that is not offered, and for packages that are missing.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    name = f"OTEL_{signal.upper()}_EXPORTER"
    exporter = environ.get(name, "").strip() or "otlp"
    if exporter not in ("otlp", "console", "none"):
        raise ConfigError(name, f"{exporter!r} is none of otlp, console, none")
    variable_prefix = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
    if exporter == "none" or (exporter == "otlp" and not _endpoint(environ, signal)):
        return None
    protocol = environ.get(f"{variable_prefix}_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"
    if exporter == "otlp" and protocol != "grpc":
        raise ConfigError("OTEL_EXPORTER_OTLP_PROTOCOL", f"{protocol!r} is not offered, only grpc")
    if any(not _is_installed(package) for package in _PACKAGES):
        raise ConfigError(
            name,
            f"{signal} need packages that are not installed: {installation.make_extra_install_command('telemetry')}",
        )
    return exporter


def require_usable_exporters(environ: Mapping[str, str]) -> None:
    """Raise ConfigError if a configured exporter cannot be used."""
    for signal in ("traces", "metrics", "logs"):
        find_exporter(environ, signal)


def open_tracer(environ: Mapping[str, str], now: Callable[[], float], *, content: bool = False) -> Tracer:
    """Return the tracer that the environment asks for. Raises ConfigError."""
    exporter = find_exporter(environ, "traces")
    if exporter is None:
        return OFF
    from hubbubd.telemetry.sdk.tracer import SdkTracer  # lazy: slow to import, and an optional extra

    return SdkTracer.open(exporter, now, content=content)


def open_meter(environ: Mapping[str, str], *, scraped: bool) -> Meter:
    """Return the meter that the environment asks for, or one for Prometheus if `scraped`. Raises ConfigError."""
    exporter = find_exporter(environ, "metrics")
    if exporter is None and not scraped:
        return metering.OFF
    from hubbubd.telemetry.sdk.metrics import SdkMeter

    return SdkMeter.open(exporter, scraped=scraped)


def open_log_sink(environ: Mapping[str, str]) -> LogSink:
    """Return the log exporter that the environment asks for. Raises ConfigError."""
    exporter = find_exporter(environ, "logs")
    if exporter is None:
        return logs.OFF
    from hubbubd.telemetry.sdk.logs import SdkLogSink

    return SdkLogSink.open(exporter)


def describe_destinations(environ: Mapping[str, str]) -> str:
    """Return which signals go where, for people, without credentials; empty when none does. Raises ConfigError."""
    signals_by_destination: dict[str, list[str]] = {}
    for signal in ("traces", "metrics", "logs"):
        exporter = find_exporter(environ, signal)
        if exporter is not None:
            target = _endpoint(environ, signal) if exporter == "otlp" else exporter
            signals_by_destination.setdefault(_without_credentials(target), []).append(signal)
    return ", ".join(f"{target} ({', '.join(signals)})" for target, signals in signals_by_destination.items())


def _endpoint(environ: Mapping[str, str], signal: str) -> str:
    """Return the OTLP endpoint for a signal; empty if none is configured."""
    signal_endpoint = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return signal_endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")


def _without_credentials(url: str) -> str:
    """Return a URL without user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _is_installed(package: str) -> bool:
    """Return whether a package, or a module in one, can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
