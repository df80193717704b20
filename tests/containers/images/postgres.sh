#!/bin/sh
# Makes the database where there is none, and starts the server: with the variables of the official image.
set -eu
data=/var/lib/postgresql/data
[ -e "$data/PG_VERSION" ] || {
  cd /tmp
  printf '%s\n' "$POSTGRES_PASSWORD" > password
  # Its words are options: a space parts them.
  initdb --username "$POSTGRES_USER" --pwfile password --auth-local trust $POSTGRES_INITDB_ARGS --pgdata "$data"
  rm password
  echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
  pg_ctl --pgdata "$data" --wait --options "-c listen_addresses=" start
  createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl --pgdata "$data" --wait --mode fast stop
}
exec postgres -D "$data" -c listen_addresses='*'
