"""Changed copies of frozen records."""

from dataclasses import dataclass, replace

import pytest

from hubbubd.frozen import carry_over_changes, replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    colour: str
    veins: tuple[str, ...] = ()
    tree: str | None = None


def test_a_copy_differs_only_in_what_was_changed() -> None:
    leaf = Leaf(colour="green", tree="oak")
    changed = replaced(leaf, colour="red", tree=None)
    assert changed == replace(leaf, colour="red", tree=None) == Leaf(colour="red")
    assert hash(changed) == hash(Leaf(colour="red"))
    assert leaf == Leaf(colour="green", tree="oak")


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="Leaf has no size"):
        replaced(Leaf(colour="green"), size=3)


GREEN, RED = Leaf(colour="green"), Leaf(colour="red")
THEIRS = Leaf(colour="green", tree="oak")


@pytest.mark.parametrize(
    ("before", "after", "there", "becomes"),
    [
        (GREEN, RED, GREEN, RED),
        (GREEN, RED, THEIRS, Leaf(colour="red", tree="oak")),
        (GREEN, RED, RED, RED),
        (GREEN, RED, None, None),
        (GREEN, None, THEIRS, None),
        (None, RED, None, RED),
        (None, RED, THEIRS, THEIRS),
        (None, None, THEIRS, None),
    ],
    ids=[
        "as it was",
        "changed meanwhile",
        "changed alike",
        "gone: stays gone",
        "deleted whatever it is",
        "new",
        "new where another is",
        "deleted though new",
    ],
)
def test_a_change_is_carried_over_to_what_is_there(
    before: Leaf | None, after: Leaf | None, there: Leaf | None, becomes: Leaf | None
) -> None:
    assert carry_over_changes(before, after, there) == becomes
