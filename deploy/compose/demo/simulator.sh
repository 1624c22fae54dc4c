#!/bin/sh
# Sends simulated payments and logins: two past days at once, with late events (where producers set the arrival, see
# .env), and then, until it is stopped, live ones: a day of them at SPEED, again and again.
set -eu
send() { # send FOLDER OPTIONS...
  folder=$1; shift
  nightjar replay "$folder/logins.parquet" --stream logins "$@" &
  nightjar replay "$folder/transactions.parquet" --stream transactions "$@"
  wait $!
}
if [ "${NIGHTJAR_ARRIVAL:-broker}" = producer ] && [ ! -e /var/lib/demo/history ]; then
  nightjar generate --out /tmp/history --events 4000 --days 2 --customers 300 --start "$(date -u -d '2 days ago' +%F)" \
    --prefix history-
  send /tmp/history --keep-times --speed max --disorder 0.05 --late 0.01
  touch /var/lib/demo/history
fi
# Each pass, also of a container that was restarted, has ids of its own; the job takes those it knows for duplicates.
while :; do
  nightjar generate --out /tmp/live --events 20000 --days 1 --customers 2000 --prefix "$(date -u +%Y%m%dT%H%M%S)-"
  send /tmp/live --speed "$SPEED"
done
