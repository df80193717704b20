"""Search over descriptions of tools, for hosts that should not get all of them: Okapi BM25.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.
"""

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from typing import Final

K1_SATURATION: Final = 1.2
"""How soon further occurrences of a word stop to raise the score (k1)."""

B_LENGTH_WEIGHT: Final = 0.75
"""How much the length of a text lowers its score (b): 0 not at all, 1 in full proportion."""

MAX_WORDS: Final = 2000
"""Words of a text that are looked at."""

MAX_CHARS: Final = 20_000
"""Characters of a text that are looked at."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD: Final = re.compile(r"[^\W\d_]+|\d+")


def split_words(text: str) -> list[str]:
    """Return a text's words in lower case; `getUser_by-id` has four."""
    words = (match[0].lower() for match in _WORD.finditer(_HUMP.sub(" ", text[:MAX_CHARS])))
    return [word for word, _ in zip(words, range(MAX_WORDS), strict=False)]


@dataclass(frozen=True, slots=True)
class Index:
    """Texts that can be searched, by key."""

    keys: Sequence[str]
    word_counts: "array[int]"
    """How many words each text has."""
    places: Mapping[str, "tuple[array[int], array[int]]"]
    """By word: the indices (in `keys`) of the texts that have the word, and how often each has it."""
    word_count: int
    """How many words all texts have together."""


def search_in_steps(indexes: Sequence[Index], query: str, max_results: int) -> Generator[None, None, list[str]]:
    """Return the keys of the texts of all indexes that fit a query best, the best first; at most `max_results`.

    Yields after each short step. Texts that fit equally well are in the order of the indexes.
    """
    texts = sum(len(each.keys) for each in indexes)
    mean = max(sum(each.word_count for each in indexes) / max(texts, 1), 1.0)
    scores: defaultdict[tuple[int, int], float] = defaultdict(float)
    for word in sorted(set(split_words(query))):
        holding_indexes = [
            (index_number, each.places[word]) for index_number, each in enumerate(indexes) if word in each.places
        ]
        holding_texts = sum(len(places) for _, (places, _) in holding_indexes)
        rarity = math.log(1 + (texts - holding_texts + 0.5) / (holding_texts + 0.5))
        for index_number, (places, counts) in holding_indexes:
            for place, count in zip(places, counts, strict=True):
                yield
                length_factor = 1 - B_LENGTH_WEIGHT + B_LENGTH_WEIGHT * indexes[index_number].word_counts[place] / mean
                scores[index_number, place] += (
                    rarity * count * (K1_SATURATION + 1) / (count + K1_SATURATION * length_factor)
                )
    # Places are negative here, so that of texts that fit equally well the earlier one stays.
    best: list[tuple[float, int, int]] = []
    for (index_number, place), score in scores.items():
        yield
        (heappush if len(best) < max_results else heappushpop)(best, (score, -index_number, -place))
    return [indexes[-index_number].keys[-place] for _, index_number, place in sorted(best, reverse=True)]


def build_index_in_steps(texts: Mapping[str, Sequence[str]]) -> Generator[None, None, Index]:
    """Return an index of texts, each given in parts: the first one, a name, counts twice. Yields before each text."""
    places: dict[str, tuple[array[int], array[int]]] = {}
    lengths = array("L")
    for place, parts in enumerate(texts.values()):
        yield
        counts = Counter(split_words(" ".join((*parts[:1], *parts))))
        lengths.append(counts.total())
        for word, count in counts.items():
            text_places, counts_of_word = places.setdefault(word, (array("L"), array("L")))
            text_places.append(place)
            counts_of_word.append(count)
    return Index(tuple(texts), lengths, places, sum(lengths))
