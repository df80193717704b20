"""What the benchmarks compute from what they measure."""

import os
import runpy
import time
from pathlib import Path
from threading import Thread

import anyio

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_one_call_in_a_hundred_is_slower_than_the_99th_percentile() -> None:
    percentile = runpy.run_path(str(BENCHMARKS / "measure.py"))["percentile"]
    assert percentile([*range(100)], 0.99) == 98
    assert percentile([*range(400)], 0.99) == 395
    assert percentile([7], 0.99) == 7


async def test_a_round_has_a_call_however_little_time_there_is() -> None:
    series = runpy.run_path(str(BENCHMARKS / "measure.py"))["Series"]()

    async def work() -> None: ...

    await series.round(work, 5, in_flight=3, most_s=-1.0)
    assert len(series.latencies_s) == 1
    assert series.rate > 0


def test_a_ratio_of_rates_is_of_the_way_itself_to_its_base_round_by_round() -> None:
    measure = runpy.run_path(str(BENCHMARKS / "measure.py"))
    hub, direct = measure["Series"](), measure["Series"]()
    for own, plain in ((10.0, 40.0), (30.0, 60.0), (90.0, 90.0)):
        hub.rounds.append(measure["Round"]([0.001], own, 0.0))
        direct.rounds.append(measure["Round"]([0.001], plain, 0.0))
    assert hub.rate_ratio(direct) == 0.5


async def test_paced_work_begins_whether_or_not_that_before_has_ended() -> None:
    paced = runpy.run_path(str(BENCHMARKS / "measure.py"))["run_paced"]
    begun, last = 0, anyio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 10:
            last.set()
        await last.wait()

    assert len(await paced(work, rate=1000, calls=10)) == 10


def test_processor_time_is_that_of_one_process_with_its_threads() -> None:
    cpu_s = runpy.run_path(str(BENCHMARKS / "processes.py"))["cpu_s"]
    other = Thread(target=spend)
    other.start()
    other.join()
    before_s = time.process_time()
    assert before_s <= cpu_s(os.getpid()) <= time.process_time()


def spend() -> None:
    """Takes processor time in this thread."""
    while time.thread_time() < 0.05:
        pass
