"""The queue of one server's calls, beside a plain list that does the same slowly."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hubbubd.core.calls.queue import MAX_QUEUED_BYTES, CallQueue, Slot
from hubbubd.errors import ResourceExhausted

from ..raising import raising


def a_queue(*calls: str, max_in_flight: int = 1, max_queued: int = 10) -> CallQueue:
    queue = CallQueue(max_in_flight, max_queued)
    for call in calls:
        queue.add(call)
    return queue


def on_the_wire(queue: CallQueue, *calls: str) -> set[str]:
    return {call for call in calls if queue.slot(call) is Slot.IN_FLIGHT}


def test_a_parked_call_leaves_its_slot_to_the_next_and_comes_back_over_the_limit() -> None:
    queue = a_queue("a", "b", "c")
    queue.start_next()
    queue.park("a")
    assert queue.start_next() == "b"
    queue.unpark("a")
    assert on_the_wire(queue, "a", "b") == {"a", "b"}
    queue.remove("b")
    assert queue.start_next() is None, "the slot is a's again"


def test_what_waits_is_bounded_in_bytes_but_one_call_always_fits() -> None:
    queue = a_queue("runs")
    queue.start_next()
    queue.add("large", 2 * MAX_QUEUED_BYTES)
    with raising(ResourceExhausted, "QUEUE_FULL"):
        queue.add("small", 1)
    queue.remove("large")
    queue.add("half", MAX_QUEUED_BYTES // 2)
    queue.add("other half", MAX_QUEUED_BYTES // 2)
    with pytest.raises(ResourceExhausted):
        queue.add("small", 1)
    queue.remove("runs")
    assert queue.start_next() == "half"
    queue.add("small", 1)


def test_a_call_that_is_sent_again_comes_before_all_that_wait_even_when_the_queue_is_full() -> None:
    queue = a_queue("a", "b", max_queued=2)
    queue.start_next()
    queue.add("c")
    queue.park("a")
    queue.add_first("a")
    assert queue.waiting == ("a", "b", "c")
    assert queue.count(Slot.IN_FLIGHT, Slot.PARKED) == 0


@pytest.mark.parametrize("operation", ["park", "unpark"])
def test_a_call_that_only_waits_for_its_turn_can_neither_be_parked_nor_unparked(operation: str) -> None:
    queue = a_queue("a")
    with pytest.raises(KeyError):
        getattr(queue, operation)("a")
    assert queue.waiting == ("a",)


def test_a_call_set_aside_leaves_its_slot_for_good() -> None:
    queue = a_queue("a", "b")
    assert queue.start_next() == "a"
    queue.set_aside("a")
    assert queue.start_next() == "b"
    assert (queue.slot("a"), queue.slot("b")) == (Slot.ASIDE, Slot.IN_FLIGHT)
    queue.remove("a")
    assert queue.slot("a") is None


class QueueBesideAList(RuleBasedStateMachine):
    @initialize(max_in_flight=st.integers(1, 4), max_queued=st.integers(1, 6))
    def start(self, max_in_flight: int, max_queued: int) -> None:
        self.queue = CallQueue(max_in_flight, max_queued)
        self.max_in_flight, self.max_queued = max_in_flight, max_queued
        self.waiting: list[str] = []
        self.on_the_wire: list[str] = []
        self.parked: list[str] = []
        self.made = 0

    @rule()
    def add(self) -> None:
        self.made += 1
        call = f"call-{self.made}"
        if len(self.waiting) >= self.max_queued:
            with raising(ResourceExhausted, "QUEUE_FULL"):
                self.queue.add(call)
        else:
            self.queue.add(call)
            self.waiting.append(call)

    @rule()
    def take_next(self) -> None:
        free = len(self.on_the_wire) < self.max_in_flight
        expected = self.waiting.pop(0) if free and self.waiting else None
        before = len(self.on_the_wire)
        assert self.queue.start_next() == expected
        if expected is not None:
            self.on_the_wire.append(expected)
            assert before < self.max_in_flight

    @precondition(lambda self: self.on_the_wire)
    @rule(pick=st.randoms(use_true_random=False))
    def park(self, pick) -> None:
        call = pick.choice(self.on_the_wire)
        self.queue.park(call)
        self.on_the_wire.remove(call)
        self.parked.append(call)

    @precondition(lambda self: self.parked)
    @rule(pick=st.randoms(use_true_random=False))
    def unpark(self, pick) -> None:
        call = pick.choice(self.parked)
        self.queue.unpark(call)
        self.parked.remove(call)
        self.on_the_wire.append(call)

    @precondition(lambda self: self.parked or self.on_the_wire)
    @rule(pick=st.randoms(use_true_random=False))
    def send_again(self, pick) -> None:
        call = pick.choice(self.parked + self.on_the_wire)
        self.queue.add_first(call)
        self.forget(call)
        self.waiting.insert(0, call)

    @precondition(lambda self: self.waiting or self.parked or self.on_the_wire)
    @rule(pick=st.randoms(use_true_random=False))
    def remove(self, pick) -> None:
        call = pick.choice(self.waiting + self.parked + self.on_the_wire)
        self.queue.remove(call)
        self.queue.remove(call)  # again is no error
        self.forget(call)

    def forget(self, call: str) -> None:
        for place in (self.waiting, self.parked, self.on_the_wire):
            if call in place:
                place.remove(call)

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.queue.waiting == tuple(self.waiting)
        for number in range(1, self.made + 1):
            call = f"call-{number}"
            if call in self.waiting:
                assert self.queue.slot(call) is Slot.WAITING
            elif call in self.on_the_wire:
                assert self.queue.slot(call) is Slot.IN_FLIGHT
            elif call in self.parked:
                assert self.queue.slot(call) is Slot.PARKED
            else:
                assert self.queue.slot(call) is None
        slots = [self.queue.count(slot) for slot in Slot]
        assert slots == [len(self.waiting), len(self.on_the_wire), len(self.parked), 0]


TestQueueBesideAList = QueueBesideAList.TestCase


def test_with_one_question_at_a_time_a_parked_call_keeps_the_others_waiting() -> None:
    queue = CallQueue(5, 10, one_question_at_a_time=True)
    for call in "abc":
        queue.add(call)
    assert (queue.start_next(), queue.start_next()) == ("a", None), "one slot, whatever max_in_flight says"
    queue.park("a")
    assert queue.start_next() is None
    queue.unpark("a")
    assert queue.start_next() is None
    queue.remove("a")
    assert queue.start_next() == "b"
