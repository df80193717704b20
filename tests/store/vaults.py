"""The vault of a fleet over a real database, for tests."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
from pydantic import SecretStr

from hubbubd.config.sections.store import StoreSettings
from hubbubd.store.postgres.vault import PostgresVault
from hubbubd.store.vault.encryption import VaultKey
from hubbubd.store.vault.keys import VaultKeys

from ..postgres import Postgres

LIMIT_S = 60
TOKEN = {"tokens": {"access_token": "s3cr3t-access"}, "expires_at": 1.5, "issuer": None}
OTHER = {"tokens": {"access_token": "s3cr3t-renewed"}}


def keys(*secret: bytes) -> VaultKeys:
    return VaultKeys(tuple(VaultKey.with_id(each) for each in secret), "vault.key")


OLD, NEW = b"o" * 32, b"n" * 32


@dataclass
class Fleet:
    """The database of a fleet whose members all have taken their place: a, b and c, each in its first life."""

    server: Postgres
    schema: str
    opened: list[PostgresVault]

    async def ask(self, query: str, *words: Any) -> list[Any]:
        link: Any = await asyncpg.connect(self.server.url)
        try:
            return await link.fetch(query.replace("{schema}", self.schema), *words)
        finally:
            await link.close()

    async def vault(
        self, member: str | None = "a", of: VaultKeys | None = None, url: str | None = None, timeout_s: float = LIMIT_S
    ) -> PostgresVault:
        settings = StoreSettings(
            url=SecretStr(url or self.server.url), schema_name=self.schema, unavailable_after_s=timeout_s
        )
        vault = await PostgresVault.open(settings, of or keys(OLD), member, None if member is None else 1)
        self.opened.append(vault)
        return vault

    async def row(self, name: str) -> dict[str, Any]:
        [row] = await self.ask("SELECT * FROM {schema}.vault WHERE name = $1", name)
        return dict(row)

    async def put_back(self, row: dict[str, Any]) -> None:
        """Put parts of a row in place of what is there now, as the database's administrator can."""
        parts = [part for part in row if part not in ("name", "kind")]
        changes = ", ".join(f"{part} = ${number}" for number, part in enumerate(parts, 3))
        change = f"UPDATE {{schema}}.vault SET {changes} WHERE name = $1 AND kind = $2"
        await self.ask(change, row["name"], row["kind"], *(row[part] for part in parts))

    async def expel(self, member: str) -> None:
        await self.ask("UPDATE {schema}.members SET standing = 'gone' WHERE name = $1", member)


@asynccontextmanager
async def joined(postgres: Postgres) -> AsyncGenerator[Fleet]:
    """Make the members' table of a fleet in a schema of its own."""
    fleet = Fleet(postgres, f"t{secrets.token_hex(8)}", [])
    await fleet.ask("CREATE SCHEMA {schema}")
    await fleet.ask("CREATE TABLE {schema}.members (name text PRIMARY KEY, life bigint, standing text)")
    await fleet.ask("INSERT INTO {schema}.members SELECT unnest($1::text[]), 1, 'live'", ["a", "b", "c"])
    try:
        yield fleet
    finally:
        for vault in fleet.opened:
            await vault.close()
