#!/bin/sh
# Sends simulated payments and logins: two past days at once, with late events (where producers set the arrival, see
# .env), and then, until it is stopped, live ones.
set -eu
send() { # send FOLDER OPTIONS...
  folder=$1; shift
  for stream in transactions logins; do
    nightjar replay "$folder/$stream.parquet" --stream "$stream" "$@"
  done
}
if [ "${NIGHTJAR_ARRIVAL:-broker}" = producer ] && [ ! -e /var/lib/demo/history ]; then
  nightjar generate --out /tmp/history --events 4000 --days 2 --customers 300 --start "$(date -u -d '2 days ago' +%F)"
  send /tmp/history --keep-times --speed max --disorder 0.05 --late 0.01
  touch /var/lib/demo/history
fi
nightjar generate --out /tmp/live --events 20000 --days 1 --customers 2000
while :; do send /tmp/live --speed 24; done
