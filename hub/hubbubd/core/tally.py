"""Counters by name."""


class Tally:
    """Amounts by name. Each change takes constant time, and names at zero take no memory.

    `collections.Counter` does not fit: `counter -= other` visits every name in it.
    """

    def __init__(self) -> None:
        self._amounts: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many names have a positive amount."""
        return len(self._amounts)

    def __getitem__(self, name: str) -> int:
        return self._amounts.get(name, 0)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to the amount of a name."""
        self._amounts[name] = self._amounts.get(name, 0) + amount

    def subtract(self, name: str, amount: int = 1) -> None:
        """Subtract from the amount of a name. An amount that would be zero or less is forgotten, and counts as zero."""
        if (remaining := self._amounts.get(name, 0) - amount) > 0:
            self._amounts[name] = remaining
        else:
            self._amounts.pop(name, None)
