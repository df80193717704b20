"""Search over descriptions of tools, for hosts that should not get all of them: Okapi BM25.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SATURATION: Final = 1.2
"""How soon a word that is repeated stops to count for more (k1)."""

LENGTH: Final = 0.75
"""How far a long text counts for less than a short one with the same words (b)."""

MAX_WORDS: Final = 2000
"""Words of a text that are looked at."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD: Final = re.compile(r"[^\W\d_]+|\d+")


def words(text: str) -> list[str]:
    """Return a text's words in lower case; `getUser_by-id` has four."""
    found = (match[0].lower() for match in _WORD.finditer(_HUMP.sub(" ", text)))
    return [word for word, _ in zip(found, range(MAX_WORDS), strict=False)]


@dataclass(frozen=True, slots=True)
class Index:
    """Texts that can be searched, by key."""

    counts: Mapping[str, Counter[str]]
    holders: Mapping[str, int]
    """In how many texts a word is."""
    mean_length: float

    def best(self, query: str, most: int) -> list[str]:
        """Return the keys of the texts that fit best, the best first; equal ones in the order of the index."""
        asked = set(words(query))
        scores = {key: self._score(asked, counts) for key, counts in self.counts.items()}
        found = [key for key, score in scores.items() if score > 0]
        return sorted(found, key=lambda key: -scores[key])[:most]

    def _score(self, asked: Iterable[str], counts: Counter[str]) -> float:
        length = 1 - LENGTH + LENGTH * counts.total() / self.mean_length
        return sum(
            self._rarity(word) * counts[word] * (SATURATION + 1) / (counts[word] + SATURATION * length)
            for word in asked
            if word in counts
        )

    def _rarity(self, word: str) -> float:
        holders = self.holders[word]
        return math.log(1 + (len(self.counts) - holders + 0.5) / (holders + 0.5))


def index(texts: Mapping[str, Sequence[str]]) -> Index:
    """Return an index of texts, each in parts; a part that stands first counts twice, as names do."""
    counts = {key: Counter(words(" ".join((*parts[:1], *parts)))) for key, parts in texts.items()}
    holders = Counter(word for each in counts.values() for word in each)
    total = sum(each.total() for each in counts.values())
    return Index(counts, holders, max(total / max(len(counts), 1), 1.0))
