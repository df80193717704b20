"""Full collections look at what is new; at everything they look seldom, and only once there is more of it."""

import gc
from dataclasses import dataclass

from hubbubd.process import garbage
from hubbubd.process.garbage import GROWTH, MAX_PERMANENT, REST_FACTOR, Garbage

FULL = 2
COUNTED_PER_S = 100_000_000


@dataclass
class Heap:
    """A heap as the collector has it, and its time."""

    permanent: int = 0
    new: int = 0
    now: float = 0.0
    counted: int = 0

    def __post_init__(self) -> None:
        self.garbage = Garbage(self, lambda: self.now)

    def freeze(self) -> None:
        self.permanent, self.new = self.permanent + self.new, 0

    def unfreeze(self) -> None:
        self.permanent, self.new = 0, self.permanent + self.new

    def get_freeze_count(self) -> int:
        self.counted += 1
        self.now += self.permanent / COUNTED_PER_S
        return self.permanent

    def collect(self, generation: int = FULL) -> int:
        """Collect as CPython does; return at how many objects it looked, a millionth of a second each."""
        self.garbage.on_collection("start", {"generation": generation})
        looked_at = self.new
        self.now += looked_at / 1_000_000
        self.garbage.on_collection("stop", {"generation": generation})
        return looked_at


def test_what_a_full_collection_has_left_is_not_looked_at_by_the_next_one() -> None:
    heap = Heap(new=1_000_000)
    assert heap.collect() == 1_000_000
    heap.new = 500_000
    assert (heap.collect(), heap.permanent) == (500_000, 1_500_000)


def test_what_a_short_one_has_left_is_looked_at_again_since_it_may_become_garbage() -> None:
    heap = Heap(new=1_000)
    assert [heap.collect(), heap.collect(), heap.permanent] == [1_000, 1_000, 0]


def test_what_was_permanent_before_is_not_looked_at_until_there_is_a_quarter_more() -> None:
    heap = Heap(permanent=400_000, new=100_000)
    assert heap.collect() == 100_000
    heap.now += REST_FACTOR
    assert heap.collect() == 500_000


def test_what_was_permanent_is_so_again_after_a_short_look_at_everything() -> None:
    heap = Heap(permanent=1_000)
    heap.permanent = 2_000
    assert heap.collect() == 2_000
    assert (heap.permanent, heap.new) == (2_000, 0)


def test_a_hub_that_starts_has_its_imports_permanent_and_its_collections_seldom() -> None:
    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    try:
        garbage.configure_collection()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == garbage.THRESHOLDS
        assert len(gc.callbacks) == len(callbacks) + 1
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks[:] = callbacks
        gc.unfreeze()


def test_everything_is_looked_at_again_after_a_rest_and_once_it_has_grown() -> None:
    heap = Heap(new=600_000)
    heap.collect()
    heap.new = int(600_000 * (GROWTH - 1))
    heap.collect()
    assert heap.collect() == 0  # it has grown, and rests
    heap.now += 2 * REST_FACTOR
    assert heap.collect() == 600_000 * GROWTH
    heap.now += 2 * REST_FACTOR
    assert heap.collect() == 0  # it has rested, and has not grown


def test_no_look_at_everything_takes_longer_than_about_a_second() -> None:
    heap = Heap(new=MAX_PERMANENT // 2)
    heap.collect()
    heap.permanent = MAX_PERMANENT + 1
    heap.now += 2 * REST_FACTOR
    heap.new = 100
    assert heap.collect() == 100
    heap.permanent, heap.new = MAX_PERMANENT, 0
    heap.now += 2 * REST_FACTOR
    assert heap.collect() == MAX_PERMANENT


def test_it_rests_for_longer_the_longer_it_takes() -> None:
    for size in (250_000, 500_000):
        heap = Heap(new=size)
        heap.collect()
        heap.permanent *= 2
        heap.now = REST_FACTOR * size / 1_000_000
        assert heap.collect() == 0
        heap.now += REST_FACTOR * size / 10_000_000
        assert heap.collect() == 2 * size


def test_whoever_has_counted_and_found_no_growth_rests_too() -> None:
    heap = Heap(new=1_000_000)
    heap.collect()
    heap.now += 2 * REST_FACTOR
    before = heap.counted
    for _ in range(10):
        heap.new = 100
        heap.collect()
    assert heap.counted == before + 1


def test_collections_of_younger_generations_change_nothing() -> None:
    heap = Heap(new=10)
    for generation in range(FULL):
        heap.collect(generation)
    assert (heap.permanent, heap.new) == (0, 10)
