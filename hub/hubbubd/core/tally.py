"""How much of something each of many has."""


class Tally:
    """Amounts by name. Whoever has nothing takes no memory, and each step costs the same however many there are.

    That is what `collections.Counter` is not made for: `counter -= other` looks at every name that it has.
    """

    def __init__(self) -> None:
        self._amounts: dict[str, int] = {}

    def __len__(self) -> int:
        """How many have something."""
        return len(self._amounts)

    def __getitem__(self, name: str) -> int:
        return self._amounts.get(name, 0)

    def add(self, name: str, amount: int = 1) -> None:
        """So much more."""
        self._amounts[name] = self[name] + amount

    def take(self, name: str, amount: int = 1) -> None:
        """So much less."""
        if (left := self[name] - amount) > 0:
            self._amounts[name] = left
        else:
            self._amounts.pop(name, None)
