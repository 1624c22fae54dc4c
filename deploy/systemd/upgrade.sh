#!/usr/bin/env bash
# Replaces the release that the job runs from, and goes back if the new one does not run: docs/how-to/upgrade.md.
#
#   upgrade.sh INSTALLATION RELEASE CHECKPOINT
#
# INSTALLATION/current is a link to the release in use; the unit of the job runs from it. RELEASE is the folder of the new
# one, set up already. CHECKPOINT is the folder of the job's checkpoint; a copy of it, as the old release left it, is beside
# it afterwards. Events wait in Kafka meanwhile. UPGRADE_SERVICE: the unit. UPGRADE_PATIENCE: how long it may take to
# start (seconds).
set -euo pipefail
[ $# = 3 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
service=${UPGRADE_SERVICE:-nightjar-job} patience=${UPGRADE_PATIENCE:-180}
link=$(realpath -s -- "$1")/current new=$(realpath -e -- "$2") checkpoint=$(realpath -e -- "$3")
old=$(realpath -e -- "$link") copy=$checkpoint.before-upgrade
for release in "$old" "$new"; do
  [ -x "$release/.venv/bin/nightjar" ] || { echo "error: $release is no release: it has no .venv/bin/nightjar" >&2; exit 2; }
done

unit=$(systemctl show --property=ExecStart --value -- "$service")
[[ $unit == *"path=$link/"* ]] || { echo "error: $service does not run from $link: $unit" >&2; exit 2; }

process() {  # the process id of the job that runs, as this release sees it; nothing if none does
  { "$1/.venv/bin/nightjar" status --json || :; } | python3 -c '
import json, sys
text = sys.stdin.read()
found = json.loads(text) if text else {}
print(found["process"] if found.get("running") else "")'
}

runs() {  # wait until a job runs that is not $before
  local until=$((SECONDS + patience)) now
  while [ $SECONDS -lt $until ]; do
    now=$(process "$1")
    [ -z "$now" ] || [ "$now" = "$before" ] || return 0
    sleep 1
  done
  return 1
}

use() { ln -sfn "$1" "$link.new" && mv -T "$link.new" "$link"; }

before=$(process "$old")
echo "stopping the job of $old"
systemctl stop "$service"
rm -rf "$copy"
cp -a --reflink=auto "$checkpoint" "$copy"
use "$new"
echo "starting the job of $new"
systemctl start "$service"
if runs "$new"; then
  echo "it runs; $copy is the checkpoint from before"
  exit 0
fi

echo "error: it does not run after $patience s; going back to $old" >&2
systemctl stop "$service" || :
# What the new release has announced since is announced again, with the same ids.
rm -rf "$checkpoint"
mv "$copy" "$checkpoint"
use "$old"
systemctl start "$service"
runs "$old" || echo "error: that does not run either: see its log" >&2
exit 1
