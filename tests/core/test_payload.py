"""JSON that is odd and legal, and JSON that is too much."""

import gc
import math
import tracemalloc
from collections.abc import Callable

import pytest

from hubbubd import payload
from hubbubd.errors import InvalidArgument

HALF = '"\\ud800"'


@pytest.mark.parametrize("other", ["1" * 30, HALF])
def test_a_number_past_a_double_leaves_as_null_whatever_stands_beside_it(other: str) -> None:
    read = payload.loads(f'{{"a":[1e999,{{"b":-1e999}}],"c":{other}}}')
    assert read["a"][0] == math.inf
    assert payload.loads(payload.dumps(read)) == {"a": [None, {"b": None}], "c": payload.loads(other)}


@pytest.mark.parametrize("depth", [201, 900, 100_000])
def test_half_a_surrogate_pair_lifts_no_limit(depth: int) -> None:
    with pytest.raises(ValueError, match="recursion"):
        payload.loads("[" * depth + HALF + "]" * depth)


def test_what_was_read_can_be_written_taken_apart_and_read_again() -> None:
    read = payload.loads("[" * 190 + HALF + "]" * 190)
    while isinstance(read, list):
        assert payload.loads(payload.dumps(read)) == read
        read = read[0]
    assert read == "\ud800"


@pytest.mark.parametrize("text", ['["\\ud800",NaN]', '["\\ud800",]', '"\\ud800', '["\\\\ud800"x]'])
def test_half_a_surrogate_pair_makes_nothing_else_legal(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        payload.loads(text)


def test_a_backslash_before_what_looks_like_a_surrogate_stays_one() -> None:
    assert payload.loads('["\\\\ud800","\\ud800"]') == ["\\ud800", "\ud800"]


@pytest.mark.parametrize("meta", ["7", '"x"', "[]", "null"])
def test_the_meta_of_a_message_is_an_object(meta: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        payload.loads_message(f'{{"_meta":{meta}}}'.encode(), "spec.params")
    assert refused.value.violations == (("spec.params._meta", "must be a JSON object"),)


@pytest.mark.parametrize("text", [b"[]", b"[[[1]]]", HALF.encode()])
def test_nobody_looks_for_garbage_while_a_document_is_read(text: bytes) -> None:
    """Each search looks at all that has been read so far, and a nested document brings very many."""
    rounds: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        rounds.append(phase)

    document = b"[" + b",".join([text] * 100_000) + b"]"
    gc.collect()
    gc.callbacks.append(note)
    try:
        value = payload.loads(document)
    finally:
        gc.callbacks.remove(note)
    assert len(value) == 100_000
    assert rounds == []
    assert gc.isenabled()


def test_the_search_for_garbage_goes_on_after_what_is_no_document() -> None:
    with pytest.raises(ValueError, match=r"."):
        payload.loads(b"[[]," * payload.LONG_BYTES)
    assert gc.isenabled()


def test_a_document_does_not_begin_a_search_for_garbage_that_was_turned_off() -> None:
    gc.disable()
    try:
        payload.loads(b" " * payload.LONG_BYTES + b"[]")
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("serialize", [payload.dumps, payload.dumps_canonical])
@pytest.mark.parametrize("length", [1, 1_000, 100_000])
def test_a_document_that_is_kept_takes_no_more_memory_than_it_is_long(
    serialize: Callable[[object], bytes], length: int
) -> None:
    value = {"content": [{"type": "text", "text": "x" * length}]}
    tracemalloc.start()
    try:
        document = serialize(value)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < len(document) + 200
