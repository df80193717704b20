"""The option `confirm` of a server and of the hub: which calls a person has to approve, without rules."""

import json
from contextlib import suppress
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

WRITES: Final = "writes"
"""The word for each tool that is not marked as one that only reads."""


def _parse_confirm(value: object) -> object:
    """Return the patterns of a JSON list or the word WRITES; a list as it is. Raises ValueError for other text."""
    if isinstance(value, str):
        if value.startswith("["):  # of the environment
            with suppress(ValueError):
                return json.loads(value)
        if value != WRITES:
            raise ValueError(f'must be "{WRITES}", or a list of patterns of tools, such as ["delete_*"]')
        return (value,)
    return value


Confirm = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256)], ...],
    Field(max_length=1000),
    BeforeValidator(_parse_confirm),
]
"""Patterns of tools, and WRITES."""
