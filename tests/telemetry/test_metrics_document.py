"""`docs/metrics.md` has the metrics that there are, by the names that they have."""

import re
from pathlib import Path

from hubbubd.telemetry.metrics import METRICS, Shape
from hubbubd.telemetry.sdk.metrics import SdkMeter

DOCUMENT = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
ROW = re.compile(r"^\| `([a-z_.]+)` \| `([a-z_]+)` \| (\w+), (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def prometheus_names() -> dict[str, str]:
    """By the name of a metric, what Prometheus calls it."""
    names = {}
    for metric in METRICS:
        meter = SdkMeter.open(None, scraped=True)
        if metric.shape is Shape.HISTOGRAM:
            meter.record(metric, 1)
        else:
            meter.observe(metric, lambda: [(1, {})])
        _, text = meter.exposition()
        (name,) = set(re.findall(r"^# TYPE (\w+)", text.decode(), re.MULTILINE)) - {"target_info"}
        names[metric.name] = f"{name}_total" if metric.shape is Shape.COUNTER and "_total" not in name else name
        meter.close()
    return names


def test_the_document_has_a_row_for_each_metric_and_it_is_true() -> None:
    names = prometheus_names()
    expected = [
        (
            metric.name,
            names[metric.name],
            metric.shape.value,
            metric.unit.strip("{}") or "0 or 1",
            ", ".join(f"`{each}`" for each in metric.attributes),
            metric.about,
        )
        for metric in METRICS
    ]
    rows = ROW.findall(DOCUMENT)
    assert [tuple(row) for row in rows] == expected


def test_the_document_says_which_gauges_are_not_to_be_added_up() -> None:
    said = DOCUMENT.partition("shows the whole fleet in these gauges:")[2].partition("Added up")[0]
    assert re.findall(r"hubbub\.[a-z_.]+", said) == [metric.name for metric in METRICS if metric.whole]


def test_the_document_has_the_buckets_of_each_histogram() -> None:
    for metric in METRICS:
        if metric.shape is Shape.HISTOGRAM:
            assert ", ".join(f"{bound:g}" for bound in metric.buckets) in DOCUMENT, metric.name
