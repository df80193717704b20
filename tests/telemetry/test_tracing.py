"""Places in traces, what the environment says of them, and spans that were begun long before they are exported."""

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hubbubd.errors import ConfigError
from hubbubd.redaction import MAX_PATTERN_CHARS, REDACTION
from hubbubd.telemetry import mcp, setup
from hubbubd.telemetry.sdk.otlp import encode
from hubbubd.telemetry.sdk.tracer import SdkTracer
from hubbubd.telemetry.trace import Attributes, Span, SpanEvent, SpanKind, Trace, inject_trace, parse_trace
from hubbubd.telemetry.tracer import OFF

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = Trace(trace_id=TRACE_ID, span_id=SPAN_ID)


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE_ID}-{SPAN_ID}-01", True),
        (f"00-{TRACE_ID}-{SPAN_ID}-00", False),
        (f"00-{TRACE_ID}-{SPAN_ID}-02", False),
        (f"00-{TRACE_ID}-{SPAN_ID}-03", True),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-what-comes-later", True),
    ],
)
def test_a_valid_traceparent_is_a_place(header: str, sampled: bool) -> None:
    assert parse_trace({"traceparent": header}) == Trace(trace_id=TRACE_ID, span_id=SPAN_ID, sampled=sampled)


@pytest.mark.parametrize(
    "carrier",
    [
        None,
        [],
        {},
        {"traceparent": 7},
        {"traceparent": ""},
        {"traceparent": f"00-{TRACE_ID.upper()}-{SPAN_ID}-01"},
        {"traceparent": f"00-{'0' * 32}-{SPAN_ID}-01"},
        {"traceparent": f"00-{TRACE_ID}-{'0' * 16}-01"},
        {"traceparent": f"ff-{TRACE_ID}-{SPAN_ID}-01"},
        {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01-more"},
        {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}"},
        {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01\n"},
        {"traceparent": f"cc-{TRACE_ID}-{SPAN_ID}-01-{'x' * 10_000}"},
    ],
)
def test_anything_else_is_none(carrier: object) -> None:
    assert parse_trace(carrier) is None


@pytest.mark.parametrize(("state", "kept"), [("a=1,b=2", "a=1,b=2"), ("x" * 513, ""), ("a=\u00e9", ""), (["a=1"], "")])
def test_a_tracestate_comes_along_when_it_is_one(state: object, kept: str) -> None:
    found = parse_trace({"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01", "tracestate": state})
    assert found is not None
    assert found.state == kept


def test_a_place_in_params_replaces_the_one_that_was_there_and_nothing_else() -> None:
    given = {"name": "x", "_meta": {"traceparent": "theirs", "tracestate": "theirs", "progressToken": 1}}
    header = f"00-{TRACE_ID}-{SPAN_ID}-01"
    assert inject_trace(given, PARENT) == {"name": "x", "_meta": {"progressToken": 1, "traceparent": header}}
    assert given["_meta"]["traceparent"] == "theirs"
    assert inject_trace(None, PARENT) == {"_meta": {"traceparent": header}}
    assert inject_trace({"_meta": 7}, PARENT)["_meta"] == {"traceparent": header}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_SERVICE_NAME": "x"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
        ENDPOINT | {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4317"},
    ],
)
def test_nothing_is_traced_until_somebody_says_where_to(environ: dict[str, str]) -> None:
    assert setup.open_tracer(environ, float) is OFF


@pytest.mark.parametrize(
    ("environ", "exporter"),
    [
        (ENDPOINT, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4317"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
    ],
)
def test_an_endpoint_or_the_console_is_where_to(environ: dict[str, str], exporter: str) -> None:
    assert setup.find_exporter(environ, "traces") == exporter


@pytest.mark.parametrize(
    "environ", [{"OTEL_TRACES_EXPORTER": "zipkin"}, ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}]
)
def test_what_is_not_offered_is_said(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        setup.open_tracer(environ, float)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, ""),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://ann:secret@127.0.0.1:4317/?key=secret"},
            "http://127.0.0.1:4317/ (traces, metrics, logs)",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1", "OTEL_LOGS_EXPORTER": "console"},
            "http://127.0.0.1:1 (traces), console (logs)",
        ),
    ],
)
def test_where_to_is_said_without_credentials(environ: dict[str, str], said: str) -> None:
    assert setup.describe_destinations(environ) == said


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_PACKAGES", ("opentelemetry.there_is_no_such",))
    with pytest.raises(ConfigError, match=r"traces need packages that are not installed: .*opentelemetry-sdk"):
        setup.open_tracer(ENDPOINT, float)


@pytest.mark.usefixtures("processes")
def test_a_hub_that_does_not_trace_does_not_load_the_sdk() -> None:
    code = "import sys, hubbubd.program.app; sys.exit(any(n.startswith('opentelemetry.sdk') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_where_nothing_is_traced_the_places_of_others_are_passed_on() -> None:
    assert OFF.begin(None) is None
    assert OFF.begin(PARENT) is PARENT


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tracer over an exporter that keeps: `told(**environ)` returns both."""

    def make(**environ: str) -> tuple[SdkTracer, InMemorySpanExporter]:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        exporter = InMemorySpanExporter()
        return SdkTracer(exporter, lambda: 1000.0), exporter

    return make


def test_a_span_is_told_under_the_ids_and_times_that_it_began_with(told: Any) -> None:
    tracer, exporter = told()
    place = tracer.begin(PARENT, "ask", SpanKind.SERVER)
    assert (place.trace_id, place.parent_id, place.own) == (TRACE_ID, SPAN_ID, True)
    span = Span(name="ask", kind=SpanKind.SERVER, trace=place, start=1.5, attributes={"a": 1})
    tracer.export_span(
        span,
        4.25,
        attributes={"b": True},
        error="LATE",
        events=[SpanEvent("shown", 2.5, {"by": "ann"})],
        links=[PARENT],
    )
    tracer.close()
    (found,) = exporter.get_finished_spans()
    assert found.context is not None
    assert f"{found.context.trace_id:032x}" == TRACE_ID
    assert f"{found.context.span_id:016x}" == place.span_id
    assert found.parent is not None
    assert f"{found.parent.span_id:016x}" == SPAN_ID
    assert (found.start_time, found.end_time) == (1_500_000_000, 4_250_000_000)
    assert dict(found.attributes or {}) == {"a": 1, "b": True, "error.type": "LATE"}
    assert [(e.name, e.timestamp) for e in found.events] == [("shown", 2_500_000_000)]
    assert found.resource.attributes["service.name"] == "hubbub"


def test_what_is_not_sampled_is_passed_on_and_not_told(told: Any) -> None:
    tracer, exporter = told()
    unsampled = tracer.begin(Trace(trace_id=TRACE_ID, span_id=SPAN_ID, sampled=False))
    assert not unsampled.own
    assert unsampled.headers()["traceparent"].endswith("-00")
    tracer.export_span(Span(name="x", kind=SpanKind.INTERNAL, trace=unsampled, start=0), 1)
    tracer.export_span(Span(name="theirs", kind=SpanKind.INTERNAL, trace=PARENT, start=0), 1)
    tracer.close()
    assert exporter.get_finished_spans() == ()


def test_a_ratio_decides_once_for_a_whole_trace(told: Any) -> None:
    tracer, exporter = told(OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0.5")
    roots = [tracer.begin(None) for _ in range(200)]
    assert {root.own for root in roots} == {True, False}
    for root in roots:
        below = tracer.begin(root)
        assert below.own is root.own
        tracer.export_span(Span(name="below", kind=SpanKind.INTERNAL, trace=below, start=0), 1)
        tracer.export_span(Span(name="root", kind=SpanKind.INTERNAL, trace=root, start=0), 1)
    tracer.close()
    assert len(exporter.get_finished_spans()) == 2 * sum(root.own for root in roots)


def test_what_is_sent_is_what_the_sdk_would_send(told: Any) -> None:
    tracer, exporter = told()
    long = "x" * 1000
    for state, error in (("", None), ("a=1,b=2", "LATE"), ("", "LATE")):
        around = Trace(trace_id=TRACE_ID, span_id=SPAN_ID, state=state)
        for kind in SpanKind:
            span = Span(
                name=f"tools/call \u00e9 {kind}",
                kind=kind,
                trace=tracer.begin(around, "x", kind),
                start=1700000000.25,
                attributes={"text": "a", "long": long, "yes": True, "no": False, "one": 1, "half": 0.5, "none": ""},
            )
            events = [
                SpanEvent("shown", 1700000000.5, {"hubbub.by": "ann", "hubbub.agent": False}),
                SpanEvent("lapsed", 2, {}),
            ]
            tracer.export_span(span, 1700000001, error=error, events=events, links=[PARENT, span.trace])
            tracer.export_span(Span(name="root", kind=kind, trace=tracer.begin(None), start=1), 1)
    tracer.close()
    spans = exporter.get_finished_spans()
    assert len(spans) == 18
    assert encode(spans) == encode_spans(spans)
    assert encode(spans[:1]) == encode_spans(spans[:1])


def test_spans_of_any_length_are_sent(told: Any) -> None:
    tracer, exporter = told()
    for length in (0, 50, 100, 150, 200, 300, 20_000, 3_000_000):
        tracer.export_span(Span(name="x" * length, kind=SpanKind.CLIENT, trace=tracer.begin(None), start=1), 2)
    tracer.close()
    spans = exporter.get_finished_spans()
    assert encode(spans) == encode_spans(spans)


def test_equal_values_of_different_types_are_sent_as_what_they_are(told: Any) -> None:
    tracer, exporter = told()
    for value in ("", 1, True, 1.0, "1"):
        tracer.export_span(
            Span(name="x", kind=SpanKind.CLIENT, trace=tracer.begin(None), start=1), 2, attributes={"same": value}
        )
    tracer.close()
    spans = exporter.get_finished_spans()
    assert encode(spans) == encode_spans(spans)


@pytest.mark.parametrize("secret", ["canary-key", f"canary-key-{'x' * MAX_PATTERN_CHARS}"], ids=["short", "long"])
def test_a_secret_is_in_nothing_that_is_told(told: Any, secret: str) -> None:
    tracer, exporter = told()
    place = tracer.begin(None)
    REDACTION.set_secrets("test", [secret])
    try:
        for where in ("name", "attribute", "event"):
            said = {each: f"a {secret}" if each == where else "nothing" for each in ("name", "attribute", "event")}
            span = Span(name=said["name"], kind=SpanKind.CLIENT, trace=place, start=0, attributes={"a": 1})
            tracer.export_span(
                span, 1, attributes={"b": said["attribute"]}, events=[SpanEvent("shown", 1, {"c": said["event"]})]
            )
    finally:
        REDACTION.set_secrets("test", ())
    tracer.close()
    found = [
        repr((s.name, dict(s.attributes or {}), dict(s.events[0].attributes))) for s in exporter.get_finished_spans()
    ]
    assert len(found) == 3
    assert all("[redacted]" in text and "canary" not in text for text in found)


def test_no_part_of_a_secret_is_left_where_a_text_is_cut() -> None:
    REDACTION.set_secrets("test", ["canary-key"])
    try:
        assert "can" not in mcp.bounded_text("x" * (mcp.MAX_NAME_CHARS - 3) + "canary-key")
    finally:
        REDACTION.set_secrets("test", ())


def test_the_limits_of_the_environment_hold_for_attributes(told: Any) -> None:
    tracer, exporter = told(OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT="2", OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT="3")
    attributes: Attributes = {"a": "longer", "b": 12345, "c": "more"}
    tracer.export_span(
        Span(name="x", kind=SpanKind.INTERNAL, trace=tracer.begin(None), start=0, attributes=attributes), 1
    )
    tracer.close()
    (found,) = exporter.get_finished_spans()
    assert dict(found.attributes or {}) == {"b": 12345, "c": "mor"}
    assert encode([found, found]) == encode_spans([found, found])


def test_the_environment_names_the_service(told: Any) -> None:
    tracer, exporter = told(OTEL_SERVICE_NAME="lunch", OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test")
    tracer.export_span(Span(name="x", kind=SpanKind.INTERNAL, trace=tracer.begin(None), start=0), 1)
    tracer.close()
    (found,) = exporter.get_finished_spans()
    assert found.resource.attributes["service.name"] == "lunch"
    assert found.resource.attributes["deployment.environment.name"] == "test"
