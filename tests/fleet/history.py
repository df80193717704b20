"""Who had which server when, as the database and the servers themselves have seen it, and what must not be."""

import bisect
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import asyncpg

NOTED = """
SELECT FROM hubbub.meta FOR UPDATE;
CREATE TABLE public.leases_noted (
  number bigserial PRIMARY KEY, revision bigint NOT NULL, server text NOT NULL, member text NOT NULL,
  life bigint NOT NULL, at float8 NOT NULL, robbed boolean NOT NULL
);
CREATE FUNCTION public.holder_lives(value bytea) RETURNS boolean LANGUAGE sql AS $$
  SELECT EXISTS (
    SELECT FROM hubbub.members m, (SELECT convert_from(value, 'UTF8')::json AS lease) l
    WHERE m.name = lease->>'member' AND m.life = (lease->>'life')::bigint AND m.standing <> 'gone'
  )
$$;
CREATE FUNCTION public.note_lease() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  lease json := convert_from(NEW.value, 'UTF8')::json;
  member text := coalesce(lease->>'member', '');
  life bigint := coalesce((lease->>'life')::bigint, 0);
BEGIN
  INSERT INTO public.leases_noted (revision, server, member, life, at, robbed) VALUES (
    NEW.revision, substr(NEW.key, 7), member, life, extract(epoch FROM clock_timestamp()),
    TG_OP = 'UPDATE' AND OLD.value <> NEW.value AND member <> '' AND public.holder_lives(OLD.value)
  );
  RETURN NULL;
END
$$;
CREATE TRIGGER note_lease AFTER INSERT OR UPDATE ON hubbub.entries FOR EACH ROW
WHEN (NEW.key LIKE 'lease/%') EXECUTE FUNCTION public.note_lease();
UPDATE hubbub.entries SET key = key WHERE key LIKE 'lease/%';
"""
"""Each change of a lease is noted as it is made. `robbed`: another member had it, and was not gone."""


@dataclass(frozen=True, slots=True)
class Held:
    """A change of a lease; `member` is empty when it was given up. `at` are seconds since the epoch."""

    revision: int
    server: str
    member: str
    life: int
    at: float
    robbed: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A request of a member to a server."""

    at: float
    server: str
    member: str


class History:
    """A connection to the database that is made when it is needed, since the database goes away."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def ask(self, query: str, *words: Any) -> list[Any]:
        """The rows of a query. Raises OSError and asyncpg.PostgresError."""
        link = await cast("Any", asyncpg).connect(self.url, timeout=5)
        try:
            return await link.fetch(query, *words, timeout=30)
        finally:
            await link.close()

    async def begin(self) -> None:
        """Note leases from now on."""
        link = await cast("Any", asyncpg).connect(self.url, timeout=5)
        try:
            await link.execute(NOTED)
        finally:
            await link.close()

    async def held(self) -> list[Held]:
        """All changes of leases, in order."""
        rows = await self.ask(
            "SELECT revision, server, member, life, at, robbed FROM public.leases_noted ORDER BY number"
        )
        return [Held(*row) for row in rows]

    async def owners(self) -> dict[str, str]:
        """Which member has each server now."""
        return {each.server: each.member for each in await self.held()}

    async def members(self) -> list[str]:
        """What the database has of each member."""
        rows = await self.ask(
            "SELECT name, life, standing, forward, position, clock_timestamp() - beat_at AS silent,"
            " expires_at < clock_timestamp() AS overdue FROM hubbub.members ORDER BY name"
        )
        return [", ".join(f"{key} {value}" for key, value in row.items()) for row in rows]

    async def lives(self, member: str) -> int | None:
        """The life of a member that takes part; None if it does not."""
        rows = await self.ask(
            "SELECT life FROM hubbub.members WHERE name = $1 AND standing = 'live' AND expires_at > clock_timestamp()",
            member,
        )
        return rows[0][0] if rows else None


def frames(path: Path) -> list[Frame]:
    """The requests that servers have noted, in order."""
    noted = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return sorted((Frame(each["at"], each["server"], each["member"]) for each in noted), key=lambda frame: frame.at)


def judge(held: Iterable[Held], sent: Iterable[Frame], counts: Counter[str]) -> list[str]:
    """What must not be: a lease that was taken from a member that was not gone; a frame of an old owner after the
    first of the new one."""
    wrong: list[str] = []
    changes: dict[str, list[Held]] = {}
    for each in held:
        counts["changes of leases"] += 1
        changes.setdefault(each.server, []).append(each)
        if each.robbed:
            wrong.append(f"{each.server}: {each.member} took it at {each.revision} from a member that was not gone")
    for server, all_of_it in changes.items():
        revisions = [each.revision for each in all_of_it]
        if revisions != sorted(set(revisions)):
            wrong.append(f"{server}: its lease changed twice at a revision: {revisions}")
    of_new: dict[str, tuple[float, float]] = {}
    for frame in sent:
        counts["requests of members to servers"] += 1
        of_it = changes.get(frame.server, [])
        index = bisect.bisect(of_it, frame.at, key=lambda each: each.at) - 1
        if index < 0:
            continue
        holder = of_it[index]
        if frame.member == holder.member:
            of_new.setdefault(frame.server, (holder.at, frame.at))
            if of_new[frame.server][0] != holder.at:
                of_new[frame.server] = holder.at, frame.at
        elif holder.member and of_new.get(frame.server, (0.0, 0.0))[0] == holder.at:
            late_s = frame.at - of_new[frame.server][1]
            wrong.append(
                f"{frame.server}: {frame.member} sent {late_s:.3f} s after the first request of {holder.member},"
                f" which has it since revision {holder.revision}"
            )
    return wrong
