"""Changed copies of frozen records."""

from dataclasses import dataclass, replace

import pytest

from hubbubd.frozen import replaced


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
