"""Names from outside make a bounded number of series."""

import re

from hubbubd.telemetry.metrics import METRICS, Shape
from hubbubd.telemetry.sdk.metrics import MAX_VALUES, SdkMeter

HISTOGRAM = next(each for each in METRICS if each.shape is Shape.HISTOGRAM and each.attributes)
COUNTER = next(each for each in METRICS if each.shape is Shape.COUNTER and each.attributes)
SERIES = re.compile(r'^\w+_(?:count|total)\{.*?name="(\w+)".*?\} (\S+)$', re.MULTILINE)


def test_names_beyond_the_bound_share_one_series_and_none_is_left_out() -> None:
    asked = 3 * MAX_VALUES
    meter = SdkMeter.open(None, scraped=True)
    for number in range(asked):
        meter.record(HISTOGRAM, 1, {"name": f"n{number}"})
        meter.count(COUNTER, {"name": f"n{number}"})
    _, text = meter.exposition()
    meter.close()
    series = SERIES.findall(text.decode())
    assert len(series) == 2 * (MAX_VALUES + 1)
    assert sum(float(value) for _, value in series) == 2 * asked
    assert [float(value) for name, value in series if name == "_OTHER"] == [asked - MAX_VALUES] * 2
