"""Spans of time as people type them: 30d, 12h, 45m, 90s."""

import re

from hubbub_cli.run.session import Usage
from hubbub_client.numbers import whole_text
from hubbub_frontend.display.records import SPANS


def parse_span(option: str, span: str) -> float:
    """Return a span in seconds. Raises Usage."""
    form = re.fullmatch(r"(\d{1,9})([dhms])", span)
    amount = whole_text(form[1]) if form is not None else None
    if form is None or not amount:
        raise Usage(f"{option}: {span!r} is not a span such as 30d, 12h, 45m or 90s")
    return amount * next(size for size, unit in SPANS if unit == form[2])
