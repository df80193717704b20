"""The store in PostgreSQL: its tables, and the one function by which a group of commits is applied.

Each key has one row. A deletion leaves the row without a value, a tombstone, until it is compacted. The row of `meta`
is locked from the reading of its revision to the commit, so a revision is durable before the next one exists.
"""

import re
from typing import Final

SCHEMA_VERSION: Final = 1
"""Of the tables and the function. An older hub refuses a newer one."""

NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
"""Names of schemas that need no quotes."""

REPLACED: Final = "HB001"
"""SQLSTATE of a group whose hub has been replaced by another one."""

LOCK: Final = "SELECT pg_try_advisory_lock(hashtext('hubbub'), hashtext($1))"
"""Takes the lock of a schema, which whoever uses it alone holds; whether it was free."""

TABLES: Final = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  id text NOT NULL,
  version int NOT NULL,
  revision bigint NOT NULL,
  compacted bigint NOT NULL,
  life bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE {schema}.entries (
  key text COLLATE "C" PRIMARY KEY,
  revision bigint NOT NULL,
  value bytea
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX entries_by_revision ON {schema}.entries (revision);
CREATE TABLE {schema}.commits (
  op uuid PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  outcomes jsonb
);
CREATE INDEX commits_by_time ON {schema}.commits (at);
INSERT INTO {schema}.meta (id, version, revision, compacted, life) VALUES ($id$, {version}, 0, 0, 0);
"""
"""`life` counts the hubs that have opened the store. `outcomes` are those of a group; NULL makes its `op` void."""

# The parts of commit i are those from its end in `*_to` of commit i - 1, exclusively, to its own. Each outcome is
# [revision, deletions that changed nothing] or, with the guard that failed, [key].
FUNCTION: Final = """
CREATE OR REPLACE FUNCTION {schema}.apply(
  own_op uuid, own_life bigint,
  guards_to int[], guard_keys text[], guard_revisions bigint[],
  writes_to int[], write_keys text[], write_values bytea[]
) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  now_at bigint;
  before bigint;
  life_now bigint;
  outcomes jsonb := '[]';
  failed text;
  changed text[];
  g int := 0;
  w int := 0;
BEGIN
  SELECT revision, life INTO STRICT now_at, life_now FROM {schema}.meta FOR UPDATE;
  IF life_now <> own_life THEN
    RAISE EXCEPTION 'another hub has taken over the store' USING ERRCODE = '{replaced}';
  END IF;
  before := now_at;
  FOR i IN 1 .. array_length(writes_to, 1) LOOP
    failed := NULL;
    FOR n IN g + 1 .. guards_to[i] LOOP
      IF guard_revisions[n] <> coalesce(
        (SELECT e.revision FROM {schema}.entries e WHERE e.key = guard_keys[n] AND e.value IS NOT NULL), 0
      ) THEN
        failed := guard_keys[n];
        EXIT;
      END IF;
    END LOOP;
    IF failed IS NOT NULL THEN
      outcomes := outcomes || jsonb_build_array(jsonb_build_array(failed));
    ELSE
      WITH wanted AS (
        SELECT x.key, x.value
        FROM unnest(write_keys[w + 1 : writes_to[i]], write_values[w + 1 : writes_to[i]]) AS x (key, value)
      ), written AS (
        INSERT INTO {schema}.entries (key, revision, value)
        SELECT x.key, now_at + 1, x.value FROM wanted x
        WHERE x.value IS NOT NULL
          OR EXISTS (SELECT FROM {schema}.entries e WHERE e.key = x.key AND e.value IS NOT NULL)
        ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = excluded.value
        RETURNING key
      )
      SELECT array_agg(key) INTO changed FROM written;
      IF changed IS NOT NULL THEN
        now_at := now_at + 1;
      END IF;
      outcomes := outcomes || jsonb_build_array(jsonb_build_array(now_at, to_jsonb(ARRAY(
        SELECT key FROM unnest(write_keys[w + 1 : writes_to[i]]) AS x (key)
        WHERE NOT key = ANY (coalesce(changed, ARRAY[]::text[]))
      ))));
    END IF;
    g := guards_to[i];
    w := writes_to[i];
  END LOOP;
  IF now_at <> before THEN
    UPDATE {schema}.meta SET revision = now_at;
  END IF;
  INSERT INTO {schema}.commits (op, outcomes) VALUES (own_op, outcomes);
  RETURN outcomes;
END
$function$;
"""

APPLY: Final = "SELECT {schema}.apply($1, $2, $3, $4, $5, $6, $7, $8)"

# Under the lock of `meta`, so that a group that is still on its way has ended: either it is there, or it never will be.
SETTLE: Final = """
WITH locked AS (SELECT FROM {schema}.meta WHERE life = $2 FOR UPDATE)
INSERT INTO {schema}.commits (op) SELECT $1 FROM locked ON CONFLICT (op) DO NOTHING
"""
SETTLED: Final = "SELECT outcomes FROM {schema}.commits WHERE op = $1"

ENTRIES: Final = """
SELECT m.revision, e.key, e.revision, e.value FROM {schema}.meta m
LEFT JOIN {schema}.entries e ON e.key >= $1 AND starts_with(e.key, $1)
ORDER BY e.key
"""
CHANGES: Final = """
SELECT m.revision, m.compacted, e.revision, e.key, e.value FROM {schema}.meta m
LEFT JOIN {schema}.entries e ON e.revision > $2 AND starts_with(e.key, $1)
ORDER BY e.revision, e.key
"""
STATS: Final = """
SELECT m.revision, m.compacted, count(e.value), count(e.key),
  pg_total_relation_size('{schema}.entries') + pg_total_relation_size('{schema}.commits')
FROM {schema}.meta m LEFT JOIN {schema}.entries e ON true GROUP BY m.revision, m.compacted
"""
COMPACT: Final = """
WITH moved AS (
  UPDATE {schema}.meta SET compacted = least($1, revision) WHERE life = $2 AND compacted < least($1, revision)
  RETURNING compacted
), trimmed AS (
  DELETE FROM {schema}.commits WHERE at < clock_timestamp() - interval '1 day'
)
DELETE FROM {schema}.entries e USING moved WHERE e.value IS NULL AND e.revision <= moved.compacted
"""
TAKE_OVER: Final = "UPDATE {schema}.meta SET life = life + 1 RETURNING id, revision, life"
PROBE: Final = "UPDATE {schema}.meta SET life = life WHERE life = $1"
"""Does all that a commit does, and writes: the row stays as it is."""
