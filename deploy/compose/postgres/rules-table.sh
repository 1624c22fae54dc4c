#!/bin/bash
# Makes the database `fraud` with the table of rules, and the login of the connector that reads it; what exists is kept.
set -euo pipefail
secrets=/run/secrets/rules-database
export PGHOST=postgres PGUSER=airflow PGSSLMODE=verify-full PGSSLROOTCERT=$secrets/ca.pem PGPASSFILE=$secrets/pgpass
sql() { psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 --single-transaction "$@"; }

[ -n "$(sql -d postgres -c "SELECT 1 FROM pg_database WHERE datname = 'fraud'")" ] || createdb fraud
[ -n "$(sql -d fraud -c "SELECT to_regclass('rules')")" ] || sql -d fraud -f /etc/rules.sql
# psql reads the password itself, so that it is on no command line.
sql -d fraud -f - <<'END'
\set password `cat /run/secrets/rules-database/debezium-password`
ALTER ROLE debezium PASSWORD :'password';
END
