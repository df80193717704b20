"""The store in PostgreSQL: its tables, and the functions by which groups of commits and members change.

Each key has one row. A deletion leaves the row without a value, a tombstone, until it is compacted. The row of `meta`
is locked from the reading of its revision to the commit, so a revision is durable before the next one exists.

Each hub that has opened the store has a row in `members`, also a hub alone. One whose row is `gone` cannot commit.
"""

from typing import Final

SOLE: Final = "*"
"""The name of a hub that shares its store with nobody; no member can have it."""

LOCK: Final = "SELECT pg_try_advisory_lock(hashtext('hubbub'), hashtext($1))"
"""Takes the lock of a schema for a program that uses the schema alone; returns whether it was free."""

EXPELLED: Final = "HB001"
"""SQLSTATE of a group from a hub that is gone, according to `members`."""

BEHIND: Final = "HB002"
"""SQLSTATE of a group from a hub that has seen a later revision than the database has."""

KEY_BYTES: Final = 2600
"""The longest key: an entry of an index has less than a third of a page."""

_FIRST: Final = """
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
INSERT INTO {schema}.meta (id, version, revision, compacted, life) VALUES ($id$, 1, 0, 0, 0);
"""
"""`life` counts how often the store was opened. `outcomes` are those of a group; NULL makes its `op` void."""

# Whether the member `other` is overdue by `clock`, to one whose leases last `ttl_s`. Its lease has run out, or its last
# heartbeat is far in the future: the clock was set back, and the last heartbeat of a member that has died stays there.
# `expel` obeys only a member that has been steady since then: by that time all who live have sent a heartbeat by the
# new time. A step back that is shorter than the leases needs nothing: heartbeats are in the past again soon.
_OVERDUE: Final = """(other.expires_at < clock.now
    OR other.beat_at - clock.now > greatest(ttl_s * interval '1 second', other.expires_at - other.beat_at))"""

# `*_to` has, for each commit, where its guards or writes end; they begin after those of the commit before. An outcome
# is [revision, deletions that changed nothing], or [key of the guard that failed]. `found_*` are what others have
# changed since `known`, in order. The row of `members` is read under the lock of `meta`: a member that is gone by then
# has changed nothing since. All is found by index, whatever the tables' statistics say, so plans are kept; to make them
# again for each group took more than half of its time.
_FUNCTIONS: Final = """
CREATE FUNCTION {schema}.apply(
  own_op uuid, own_name text, own_life bigint, known bigint,
  guards_to int[], guard_keys text[], guard_revisions bigint[],
  writes_to int[], write_keys text[], write_values bytea[],
  OUT outcomes jsonb, OUT newest uuid, OUT found_revisions bigint[], OUT found_keys text[], OUT found_values bytea[]
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $function$
DECLARE
  now_at bigint;
  before bigint;
  failed text;
  changed text[];
  g int := 0;
  w int := 0;
BEGIN
  outcomes := '[]';
  SELECT revision, op INTO STRICT now_at, newest FROM {schema}.meta FOR UPDATE;
  IF now_at < known THEN
    RAISE EXCEPTION 'the database is behind what this hub knows' USING ERRCODE = '{behind}';
  ELSIF now_at > known THEN
    SELECT array_agg(e.revision), array_agg(e.key), array_agg(e.value)
    INTO found_revisions, found_keys, found_values
    FROM (SELECT * FROM {schema}.entries x WHERE x.revision > known ORDER BY x.revision, x.key) e;
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
    UPDATE {schema}.meta SET revision = now_at, op = own_op;
    newest := own_op;
  END IF;
  INSERT INTO {schema}.commits (op, last, outcomes)
  SELECT own_op, now_at, outcomes FROM {schema}.members m
  WHERE m.name = own_name AND m.life = own_life AND m.standing <> 'gone';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'this hub is gone, says the database' USING ERRCODE = '{expelled}';
  END IF;
END
$function$;

CREATE FUNCTION {schema}.expel(
  own_name text, own_life bigint, other_name text, other_life bigint, ttl_s float8
) RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
  PERFORM FROM {schema}.members WHERE name IN (own_name, other_name) ORDER BY name FOR UPDATE;
  UPDATE {schema}.members other SET standing = 'gone'
  FROM {schema}.members own, (SELECT clock_timestamp() AS now) clock
  WHERE other.name = other_name AND other.life = other_life AND {overdue}
    AND own.name = own_name AND own.life = own_life AND own.standing <> 'gone' AND own.name <> other.name
    AND own.beat_at <= clock.now AND own.expires_at > clock.now
    AND clock.now - own.steady_since >= greatest(ttl_s * interval '1 second', other.expires_at - other.beat_at);
  RETURN NOT EXISTS (
    SELECT FROM {schema}.members WHERE name = other_name AND life = other_life AND standing <> 'gone'
  );
END
$function$;
""".replace("{overdue}", _OVERDUE)

_MEMBERS: Final = """
ALTER TABLE {schema}.meta ADD COLUMN op uuid;
UPDATE {schema}.meta SET op = gen_random_uuid();
ALTER TABLE {schema}.meta ALTER COLUMN op SET NOT NULL;
ALTER TABLE {schema}.commits ADD COLUMN last bigint;
INSERT INTO {schema}.commits (op, last, outcomes) SELECT op, revision, '[]' FROM {schema}.meta;
CREATE TABLE {schema}.members (
  name text COLLATE "C" PRIMARY KEY,
  life bigint NOT NULL,
  proof text NOT NULL,
  standing text NOT NULL CHECK (standing IN ('live', 'draining', 'gone')),
  address text NOT NULL DEFAULT '',
  forward text NOT NULL DEFAULT '',
  version text NOT NULL,
  position bigint NOT NULL,
  beat_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  steady_since timestamptz NOT NULL
) WITH (fillfactor = 20);
DROP FUNCTION IF EXISTS {schema}.apply(uuid, bigint, int[], text[], bigint[], int[], text[], bytea[]);
"""
"""`op` of meta is that of the group that made its revision; `last` of a group is the revision at its end.

`proof` is known to the data directory from which a member was started, and to no other.
"""

# A program that opens the store holds the row of `meta` from the reading of `required` until it is a member.
_UPGRADES: Final = """
ALTER TABLE {schema}.meta ADD COLUMN required int NOT NULL DEFAULT 3;
ALTER TABLE {schema}.members ADD COLUMN knows int NOT NULL DEFAULT 2;
CREATE FUNCTION {schema}.finish_upgrade() RETURNS int[] LANGUAGE plpgsql AS $function$
DECLARE reached int;
BEGIN
  SELECT version INTO STRICT reached FROM {schema}.meta FOR UPDATE;
  UPDATE {schema}.meta SET required = reached
  WHERE NOT EXISTS (SELECT FROM {schema}.members WHERE standing <> 'gone' AND knows < reached);
  RETURN (SELECT ARRAY[version, required] FROM {schema}.meta);
END
$function$;
"""
"""`required` is the version that a hub must know to open the store, `knows` the one that a member knows.

`finish_upgrade` requires the version of the tables if no member knows less; it returns that version, and the required.
"""

MIGRATIONS: Final = (_FIRST, _MEMBERS + _FUNCTIONS, _UPGRADES)
"""The one at index n takes a schema from version n to n + 1. Functions change with the version alone.

From version 3 on members of the version before go on beside a migration: it adds, and leaves what they use as it is.
A new column has a name that no table, function or variable has yet. What those members could not read, or would drop,
is written once its version is required.
"""

UPGRADES: Final = 3
"""The first version that members of different versions know how to share."""

SCHEMA_VERSION: Final = len(MIGRATIONS)
"""The version of the tables and the functions that this hub knows."""

VERSION: Final = "SELECT version FROM {schema}.meta"
VERSIONS: Final = """
SELECT version, coalesce((to_jsonb(m) ->> 'required')::int, version) FROM {schema}.meta m FOR UPDATE
"""
MIGRATED: Final = "UPDATE {schema}.meta SET version = {version} WHERE version < {version}"
BESIDE: Final = "UPDATE {schema}.meta SET required = {version} - 1 WHERE required < {version} - 1"
TOO_OLD: Final = """
SELECT name FROM {schema}.members WHERE standing <> 'gone' AND name <> '*' AND knows < {version} - 1 ORDER BY name
"""
REQUIRE: Final = "UPDATE {schema}.meta SET required = {version} WHERE required < {version}"

_TABLES: Final = "{schema}.meta, {schema}.entries, {schema}.commits, {schema}.members"

# Ends an autovacuum, which yields only to who waits for longer than `deadlock_timeout`. Nobody else waits for this.
KEEP_VACUUM_OUT: Final = f"LOCK TABLE {_TABLES} IN SHARE UPDATE EXCLUSIVE MODE"

# Who waits for such a lock keeps all others waiting, and may wait for one that waits for it: so not for long.
LOCK_TABLES: Final = f"""
SET LOCAL lock_timeout = '200ms';
LOCK TABLE {_TABLES} IN ACCESS EXCLUSIVE MODE;
RESET lock_timeout;
"""
FINISH_UPGRADE: Final = """
SELECT {schema}.finish_upgrade() FROM {schema}.members WHERE name = $1 AND life = $2 AND standing <> 'gone'
"""

APPLY: Final = "SELECT * FROM {schema}.apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

# Under the lock of `meta`, so that a group that is still on its way has ended: either it is there, or it never will be.
SETTLE: Final = """
WITH locked AS (SELECT FROM {schema}.meta FOR UPDATE)
INSERT INTO {schema}.commits (op) SELECT $1 FROM locked WHERE EXISTS (
  SELECT FROM {schema}.members m WHERE m.name = $2 AND m.life = $3 AND m.standing <> 'gone'
) ON CONFLICT (op) DO NOTHING
"""
SETTLED: Final = "SELECT outcomes FROM {schema}.commits WHERE op = $1"

CHECK: Final = """
SELECT m.id, m.revision, m.life,
  coalesce((SELECT o.standing <> 'gone' FROM {schema}.members o WHERE o.name = $1 AND o.life = $2), false),
  (SELECT c.last FROM {schema}.commits c WHERE c.op = $3)
FROM {schema}.meta m
"""
RENAME: Final = "UPDATE {schema}.meta SET id = $1 WHERE id = $2"

LOOK: Final = """
SELECT m.id, m.op, m.revision, e.revision, e.key, e.value FROM {schema}.meta m
LEFT JOIN {schema}.entries e ON e.revision > $1
ORDER BY e.revision, e.key
"""
ENTRIES: Final = """
SELECT m.op, m.revision, e.key, e.revision, e.value FROM {schema}.meta m
LEFT JOIN {schema}.entries e ON e.key >= $1 AND starts_with(e.key, $1)
ORDER BY e.key
"""
CHANGES: Final = """
SELECT m.op, m.revision, m.compacted, e.revision, e.key, e.value FROM {schema}.meta m
LEFT JOIN {schema}.entries e ON e.revision > $2 AND starts_with(e.key, $1)
ORDER BY e.revision, e.key
"""
STATS: Final = """
SELECT m.revision, m.compacted, count(e.value), count(e.key),
  pg_total_relation_size('{schema}.entries') + pg_total_relation_size('{schema}.commits')
FROM {schema}.meta m LEFT JOIN {schema}.entries e ON true GROUP BY m.revision, m.compacted
"""

# Not beyond what some member has yet to read. Of one's own position, $4 is newer than the row. Only this locks `meta`:
# what is to be deleted may be much, and all commits would wait for it.
COMPACT: Final = """
WITH read AS (
  SELECT least($1, min(CASE WHEN name = $2 AND life = $3 THEN $4 ELSE position END)) AS most
  FROM {schema}.members WHERE standing <> 'gone'
)
UPDATE {schema}.meta m SET compacted = least(read.most, m.revision) FROM read
WHERE m.compacted < least(read.most, m.revision)
  AND EXISTS (SELECT FROM {schema}.members WHERE name = $2 AND life = $3 AND standing <> 'gone')
"""

SLICE: Final = 1000
"""Rows that are deleted in one statement; a commit to a key that was deleted may wait for one."""

# From revision $1 on: so the index is read once, in slices. Returns where the next one begins, NULL after the last one.
# A member that has written such a key meanwhile keeps it.
DELETE_TOMBSTONES: Final = """
WITH slice AS (
  SELECT e.key, e.revision FROM {schema}.entries e
  WHERE e.revision BETWEEN $1 AND (SELECT compacted FROM {schema}.meta) AND e.value IS NULL
  ORDER BY e.revision LIMIT $2
), deleted AS (
  DELETE FROM {schema}.entries e USING slice WHERE e.key = slice.key AND e.revision = slice.revision
)
SELECT CASE WHEN count(*) = $2 THEN max(revision) END FROM slice
"""

# Not those by which a member knows its history. Their time is compared with `now()`, as no index serves what may change
# within a statement. Returns how many there were.
DELETE_GROUPS: Final = """
WITH slice AS (
  SELECT c.op FROM {schema}.commits c, {schema}.meta m
  WHERE c.at < now() - interval '1 day' AND c.op <> m.op AND coalesce(c.last, 0) < (
    SELECT min(CASE WHEN name = $1 AND life = $2 THEN $3 ELSE position END)
    FROM {schema}.members WHERE standing <> 'gone'
  ) ORDER BY c.at LIMIT $4
), deleted AS (
  DELETE FROM {schema}.commits c USING slice WHERE c.op = slice.op
)
SELECT count(*) FROM slice
"""
PROBE: Final = """
UPDATE {schema}.meta SET life = life
WHERE EXISTS (SELECT FROM {schema}.members WHERE name = $1 AND life = $2 AND standing <> 'gone') RETURNING true
"""
"""Does all that a commit does, and writes: the row stays as it is."""

OPENING: Final = "SELECT pg_advisory_xact_lock(hashtext('hubbub opening'), hashtext($1))"
"""One hub at a time opens a store; before its tables are there, too."""

FORMER: Final = """
SELECT proof, standing <> 'gone' AND expires_at > clock_timestamp(),
  ceil(extract(epoch FROM expires_at - clock_timestamp()))::int
FROM {schema}.members WHERE name = $1 FOR UPDATE
"""
ALL_GONE: Final = "UPDATE {schema}.members SET standing = 'gone' WHERE name <> $1 AND standing <> 'gone'"
SOLE_GONE: Final = "UPDATE {schema}.members SET standing = 'gone' WHERE name = '*'"
FORGET: Final = (
    "DELETE FROM {schema}.members WHERE standing = 'gone' AND beat_at < clock_timestamp() - interval '1 day'"
)
LIFE: Final = "UPDATE {schema}.meta SET life = life + 1 RETURNING id, revision, op, life"
ENTER: Final = """
INSERT INTO {schema}.members (
  name, life, proof, standing, version, knows, position, beat_at, expires_at, steady_since
)
SELECT $1, $2, $3, 'live', $4, {version}, $5, now, coalesce(now + $6::float8 * interval '1 second', 'infinity'), now
FROM (SELECT clock_timestamp() AS now) clock
ON CONFLICT (name) DO UPDATE SET life = excluded.life, proof = excluded.proof, standing = 'live', address = '',
  forward = '', version = excluded.version, knows = excluded.knows, position = excluded.position,
  beat_at = excluded.beat_at, expires_at = excluded.expires_at, steady_since = excluded.steady_since
"""

# A member is steady since its last late heartbeat: one that came after half of a lease's time, in which two are due.
# The database may have been away, and then others have been silent for longer than this one, which sent its last one
# a moment after theirs. A member that starts says beforehand ($3) that it is busy for longer than its leases last; it
# is not steady in that time. A heartbeat also says where the member is reached, once that is known: said once, that
# might be lost, and nobody would reach the member.
BEAT: Final = """
UPDATE {schema}.members SET beat_at = clock.now, expires_at = clock.now + $3::float8 * interval '1 second',
  position = greatest(position, $4), address = coalesce($6, address), forward = coalesce($7, forward),
  steady_since = CASE WHEN least(expires_at, beat_at + $5::float8 / 2 * interval '1 second') < clock.now
    OR beat_at > clock.now THEN clock.now ELSE steady_since END
FROM (SELECT clock_timestamp() AS now) clock
WHERE name = $1 AND life = $2 AND standing <> 'gone' RETURNING extract(epoch FROM clock_timestamp())::float8
"""
STAND: Final = (
    "UPDATE {schema}.members SET standing = $3 WHERE name = $1 AND life = $2 AND standing <> 'gone' RETURNING 1"
)
# Both rows are held, in order: of two members that declare each other gone, one is.
APPOINT: Final = """
WITH pair AS MATERIALIZED (
  SELECT name, life, standing FROM {schema}.members WHERE name IN ($1, $3) ORDER BY name FOR UPDATE
)
UPDATE {schema}.members m SET standing = $5 FROM pair own, pair other
WHERE own.name = $1 AND own.life = $2 AND own.standing <> 'gone'
  AND other.name = $3 AND other.life = $4 AND other.standing <> 'gone' AND m.name = other.name RETURNING 1
"""
STANDBYS: Final = """
SELECT current_setting('synchronous_standby_names') <> '', pg_has_role('pg_read_all_stats', 'USAGE'),
  (SELECT count(*)::int FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
"""
RELEASE: Final = """
UPDATE {schema}.members SET standing = 'gone' WHERE name = $1 AND proof = ANY ($2::text[]) AND standing <> 'gone'
RETURNING life
"""
PUBLISH: Final = """
UPDATE {schema}.members SET address = $3, forward = $4 WHERE name = $1 AND life = $2 AND standing <> 'gone' RETURNING 1
"""
MEMBERS: Final = """
SELECT other.name, other.life, other.standing, other.address, other.forward, other.version, other.position, {overdue},
  greatest(extract(epoch FROM clock.now - other.beat_at), 0)::float8, other.knows, m.version, m.required
FROM {schema}.members other, {schema}.meta m, (SELECT clock_timestamp() AS now, $2::float8 AS ttl_s) clock
WHERE other.name <> '*' ORDER BY other.standing = 'gone', other.name LIMIT $1
""".replace("{overdue}", _OVERDUE)
# Whether the other member has lived is read under the locks that the function `expel` takes as well, in the same order.
# So of two that declare it gone at once, the second one waits, and reads that it is gone. A member that has missed a
# heartbeat asks in vain: the database may have been away for all, and be back for this member first.
EXPEL: Final = """
WITH pair AS MATERIALIZED (
  SELECT name, life, standing, beat_at FROM {schema}.members WHERE name IN ($1, $3) ORDER BY name FOR UPDATE
), known AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE name = $3 AND life = $4 AND standing <> 'gone') > 0 AS lived,
    bool_or(name = $1 AND beat_at + $5::float8 / 2 * interval '1 second' >= clock_timestamp()) AS heard
  FROM pair
)
SELECT CASE WHEN heard THEN {schema}.expel($1, $2, $3, $4, $5) ELSE NOT lived END, lived FROM known
"""
NOTIFY: Final = "SELECT pg_notify($1, $2)"


def explain_unfit_key(key: str) -> str:
    """Return why PostgreSQL cannot store a key; "" if it can. Raises ValueError if the key is not valid Unicode."""
    if "\0" in key:
        return "has a NUL, which PostgreSQL does not keep"
    if (size := len(key.encode())) > KEY_BYTES:
        return f"has {size} bytes, and PostgreSQL keeps at most {KEY_BYTES}"
    return ""
