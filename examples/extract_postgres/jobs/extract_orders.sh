#!/bin/sh
# One day of the table as CSV. No host, user or password stands here: another environment needs no other script.
set -eu
PGPASSWORD=$orders_password
export PGPASSWORD
psql --no-psqlrc --quiet --no-password --set ON_ERROR_STOP=1 \
    --host "$orders_hostname" --dbname "$orders_database" --username "$orders_username" \
    --set schema="$orders_schemaname" --set table="$orders_tablename" --set day="$dataid" \
    > "$extract_location" <<'SQL'
COPY (SELECT id, customer, amount FROM :"schema".:"table" WHERE ordered_on = :'day' ORDER BY id)
    TO STDOUT WITH (FORMAT csv, HEADER)
SQL
echo "$dataid: $(($(wc -l < "$extract_location") - 1)) rows of $orders_schemaname.$orders_tablename"
