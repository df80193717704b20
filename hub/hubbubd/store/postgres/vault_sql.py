"""The table of the vault in PostgreSQL, and its statements. `{alive}` is a query with a row if the writer may write."""

from typing import Final

CONTENT_BYTES: Final = 1024 * 1024
"""The longest secrets of a server, as JSON."""

LONGEST: Final = CONTENT_BYTES + 64
"""Bytes of a column, with nonce and tag. Of a longer one comes nothing."""

LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('hubbub vault'), hashtext($1))"

TABLES: Final = """
CREATE TABLE {schema}.vault_meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  id text NOT NULL,
  versions bigint NOT NULL
);
CREATE TABLE {schema}.vault (
  name text COLLATE "C",
  kind text COLLATE "C",
  version bigint NOT NULL,
  key_id text NOT NULL,
  wrapped bytea NOT NULL,
  sealed bytea NOT NULL,
  PRIMARY KEY (name, kind)
);
INSERT INTO {schema}.vault_meta (id, versions) VALUES ($id$, 0);
"""
"""`id` is that of the vault: the store gets another one when its history is lost, and the secrets stay. `versions` is
the newest that was given to a row."""

ID: Final = "SELECT id FROM {schema}.vault_meta"

ROWS: Final = """
SELECT name, kind, version, key_id,
  CASE WHEN octet_length(wrapped) <= {longest} THEN wrapped END,
  CASE WHEN octet_length(sealed) <= {longest} THEN sealed END
FROM {schema}.vault WHERE $1::text[] IS NULL OR name = ANY ($1) ORDER BY name, kind
"""

FRESH: Final = """
UPDATE {schema}.vault_meta SET versions = greatest(versions, $1::bigint) + $2::bigint RETURNING versions
"""

# The lock lets no other member expel this one while it writes. So what a gone member wrote is there before another one
# reads it.
OF_A_MEMBER: Final = """
SELECT 1 FROM {schema}.members WHERE name = $1::text AND life = $2::bigint AND standing <> 'gone' FOR SHARE
"""
OF_NOBODY: Final = "SELECT 1 WHERE $1::text IS NULL AND $2::bigint IS NULL"

INSERT: Final = """
WITH alive AS ({alive})
INSERT INTO {schema}.vault (name, kind, version, key_id, wrapped, sealed)
SELECT $3::text, $4::text, $5::bigint, $6::text, $7::bytea, $8::bytea FROM alive
ON CONFLICT DO NOTHING RETURNING version
"""
UPDATE: Final = """
WITH alive AS ({alive})
UPDATE {schema}.vault v SET version = $5, key_id = $6, wrapped = $7, sealed = $8 FROM alive
WHERE v.name = $3 AND v.kind = $4 AND v.version = $9 RETURNING v.version
"""
DELETE: Final = """
WITH alive AS ({alive})
DELETE FROM {schema}.vault v USING alive WHERE v.name = $3 AND v.kind = $4 AND v.version = $5 RETURNING v.version
"""
LOOK: Final = """
WITH alive AS ({alive})
SELECT EXISTS (SELECT FROM alive),
  coalesce((SELECT version FROM {schema}.vault WHERE name = $3 AND kind = $4), 0)
"""
INSERT_ALL: Final = """
WITH alive AS ({alive})
INSERT INTO {schema}.vault (name, kind, version, key_id, wrapped, sealed)
SELECT x.* FROM alive, unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::bytea[], $8::bytea[]) AS x
WHERE NOT EXISTS (SELECT FROM {schema}.vault) RETURNING version
"""

OTHERS: Final = """
SELECT name, kind, version, key_id,
  CASE WHEN octet_length(wrapped) <= {longest} THEN wrapped END,
  CASE WHEN octet_length(sealed) <= {longest} THEN sealed END
FROM {schema}.vault WHERE key_id <> $1 AND (name, kind) > ($2::text, $3::text) ORDER BY name, kind LIMIT $4
"""
COUNTS: Final = "SELECT count(*) FILTER (WHERE key_id = $1), count(*) FROM {schema}.vault"

REWRAP: Final = """
WITH alive AS ({alive}), new AS (
  SELECT * FROM unnest($4::text[], $5::text[], $6::bigint[], $7::bytea[]) AS x (name, kind, version, wrapped)
), done AS (
  UPDATE {schema}.vault v SET key_id = $3, wrapped = new.wrapped FROM alive, new
  WHERE v.name = new.name AND v.kind = new.kind AND v.version = new.version
)
SELECT 1 FROM alive
"""
"""A row that another member has written meanwhile is left as it is: the next look finds it if need be."""
