"""Lists come page by page."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypedDict, TypeVar

A = TypeVar("A")

PAGE_SIZE = 200


class PageFields(TypedDict):
    """Fields of every list request that choose the page."""

    page_size: int
    page_token: str


async def fetch_pages(
    fetch: Callable[[PageFields], Awaitable[tuple[Sequence[A], str]]], limit: int | None = None
) -> list[A]:
    """Fetch a list page by page and return at most `limit` records of it."""
    collected: list[A] = []
    token = ""
    while limit is None or len(collected) < limit:
        size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - len(collected))
        records, token = await fetch(PageFields(page_size=size, page_token=token))
        collected += records
        if not token:
            break
    return collected
