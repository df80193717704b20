"""What is sealed can be read with its key, in its place, and nowhere else."""

import secrets
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.store.vault.encryption import (
    KEY_BYTES,
    SealedSecret,
    SealLocation,
    UnreadableSecret,
    VaultKey,
    rewrap,
    seal,
    unseal,
)

KEYS = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES).map(VaultKey.with_id)
TEXTS = st.text(max_size=20)
PLACES = st.builds(SealLocation, TEXTS, TEXTS, TEXTS, st.integers(0, 2**63 - 1))


@given(KEYS, PLACES, st.binary(max_size=500))
def test_what_was_sealed_is_read_in_its_place_and_is_not_in_sight(key: VaultKey, place: SealLocation, content: bytes):
    sealed = seal(key, place, content)
    assert unseal(key, place, sealed) == content
    assert sealed.key_id == key.id
    if len(content) > 4:
        assert content not in sealed.content + sealed.wrapped


@given(KEYS, PLACES, PLACES, st.binary(max_size=100))
def test_it_is_read_in_no_other_place(key: VaultKey, place: SealLocation, other: SealLocation, content: bytes):
    sealed = seal(key, place, content)
    if other != place:
        with pytest.raises(UnreadableSecret):
            unseal(key, other, sealed)


@given(KEYS, PLACES, st.sampled_from(["vault", "name", "kind"]), TEXTS)
def test_each_part_of_the_place_counts(key: VaultKey, place: SealLocation, part: str, text: str):
    other = replace(place, **{part: getattr(place, part) + "|" + text})
    for there in (other, replace(place, version=place.version + 1)):
        with pytest.raises(UnreadableSecret):
            unseal(key, there, seal(key, place, b"secret"))


@given(KEYS, KEYS, PLACES)
def test_it_is_read_with_no_other_key(key: VaultKey, other: VaultKey, place: SealLocation):
    if key != other:
        with pytest.raises(UnreadableSecret):
            unseal(other, place, seal(key, place, b"secret"))


@given(KEYS, PLACES, st.binary(max_size=50), st.data())
def test_a_changed_bit_is_found(key: VaultKey, place: SealLocation, content: bytes, data: st.DataObject):
    sealed = seal(key, place, content)
    part = data.draw(st.sampled_from(["wrapped", "content"]))
    changed = bytearray(getattr(sealed, part))
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(UnreadableSecret):
        unseal(key, place, replace(sealed, **{part: bytes(changed)}))


@given(KEYS, PLACES, st.binary(max_size=60), st.binary(max_size=60))
def test_anything_at_all_is_unreadable_and_no_crash(key: VaultKey, place: SealLocation, wrapped: bytes, content: bytes):
    with pytest.raises(UnreadableSecret):
        unseal(key, place, SealedSecret(key.id, wrapped, content))


@given(KEYS, PLACES)
def test_parts_of_two_versions_do_not_fit_together(key: VaultKey, place: SealLocation):
    one, two = seal(key, place, b"secret"), seal(key, place, b"secret")
    assert one != two
    with pytest.raises(UnreadableSecret):
        unseal(key, place, replace(one, wrapped=two.wrapped))


@given(KEYS, KEYS, PLACES, st.binary(max_size=100))
def test_with_another_key_it_is_the_same_content_in_the_same_place(
    old: VaultKey, new: VaultKey, place: SealLocation, content: bytes
):
    again = rewrap(old, new, place, seal(old, place, content))
    assert again.key_id == new.id
    assert unseal(new, place, again) == content
    if old != new:
        with pytest.raises(UnreadableSecret):
            unseal(old, place, again)


def test_no_key_and_no_content_is_printed():
    secret = secrets.token_bytes(KEY_BYTES)
    key = VaultKey.with_id(secret)
    assert repr(secret) not in repr((key, seal(key, SealLocation("v", "n", "k", 1), secret)))
    assert key.id in repr(key)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_refused(size: int):
    with pytest.raises(ValueError, match=f"this has {size}"):
        VaultKey.with_id(bytes(size))
